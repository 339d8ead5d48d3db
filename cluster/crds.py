"""KubeRay's resources against the definitions (CRDs) of the operator that will read them.

An API server drops keys that the operator's version does not know, and says nothing. Here they are mistakes. What ships
are the definitions of KubeRay 1.7.0 (Apache-2.0) without their descriptions.
"""

import gzip
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from loomrl.cluster.pod import no_such_key
from loomrl.errors import ConfigError

Schemas = Mapping[str, dict[str, Any]]
"""`apiVersion kind` → its schema."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A definition is a megabyte."""
SHIPPED = Path(__file__).parent / "kubernetes/kuberay-1.7.0.json.gz"
OPEN = "x-kubernetes-preserve-unknown-fields"


@cache
def shipped_crds() -> Schemas:
    """The schemas that are used where no others are given."""
    return read_crds(SHIPPED)


def read_crds(file: Path) -> Schemas:
    """The schemas of a file as `kubectl get crd NAME… -o yaml` writes it, or of a release of KubeRay."""
    try:
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        documents = list(yaml.load_all(text, LOADER))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{file}: cannot be read: {' '.join(str(error).split())}.") from None
    found = {}
    for document in documents:
        for crd in document.get("items", [document]) if isinstance(document, dict) else ():
            if crd.get("kind") != "CustomResourceDefinition":
                raise ConfigError(f"{file}: kind={crd.get('kind')!r}: CustomResourceDefinitions are needed.")
            spec = crd["spec"]
            for version in spec["versions"]:
                about = f"{spec['group']}/{version['name']} {spec['names']['kind']}"
                found[about] = _closed(version["schema"]["openAPIV3Schema"])
    return found


def crd_faults(raw: Mapping[str, Any], schemas: Schemas) -> Iterator[str]:
    """What this operator would refuse, or drop without a word."""
    import jsonschema

    about = f"{raw.get('apiVersion')} {raw.get('kind')}"
    if about not in schemas:
        yield f"{about} is not defined there. Defined: {', '.join(sorted(schemas))}."
        return
    for fault in jsonschema.Draft7Validator(schemas[about]).iter_errors(raw):
        place = ".".join(map(str, fault.absolute_path))
        if fault.validator != "additionalProperties":
            yield f"{place or '(top level)'}: {fault.message:.200}"
            continue
        known = fault.schema["properties"]
        for name in sorted(set(fault.instance) - set(known)):
            yield no_such_key(f"{place}.{name}".lstrip("."), name, known)


def _closed(schema: Any) -> Any:
    """The schema without unknown keys, and without asking for what has a default."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _closed(value) for name, value in schema.items()}
    properties = schema.get("properties")
    if isinstance(properties, dict) and "type" in schema:
        given = {name for name, inner in properties.items() if isinstance(inner, dict) and "default" in inner}
        made["required"] = [name for name in schema.get("required", ()) if name not in given]
        if not schema.get(OPEN) and "additionalProperties" not in schema:
            made["additionalProperties"] = False
    return made
