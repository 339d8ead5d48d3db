"""Kubernetes objects against their schemas, key by key: KubeRay's against its definitions (CRDs), others against the
models of Kubernetes' Python client.

An API server drops keys that the operator's version does not know, and says nothing. Here they are mistakes. What ships
are the definitions of KubeRay 1.7.0 (Apache-2.0) without their descriptions.
"""

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from loomrl.errors import ConfigError, did_you_mean

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
                found[about] = _close_schema(version["schema"]["openAPIV3Schema"])
    return found


def crd_faults(raw: Mapping[str, Any], schemas: Schemas) -> Iterator[str]:
    """Faults: keys that this operator refuses or silently drops."""
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


def _close_schema(schema: Any) -> Any:
    """The schema without unknown keys, and without asking for what has a default."""
    if isinstance(schema, list):
        return [_close_schema(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _close_schema(value) for name, value in schema.items()}
    properties = schema.get("properties")
    if isinstance(properties, dict) and "type" in schema:
        given = {name for name, inner in properties.items() if isinstance(inner, dict) and "default" in inner}
        made["required"] = [name for name in schema.get("required", ()) if name not in given]
        if not schema.get(OPEN) and "additionalProperties" not in schema:
            made["additionalProperties"] = False
    return made


_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str, int, float),  # quantities may be numbers
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}
_INSIDE = re.compile(r"(?i)(?:list\[|dict[\[(]str, ?)(.*)[\])]$")
_OPEN = ("object", "datetime", "date")
"""Types that the models leave open."""


def matches(model: str, raw: Mapping[str, Any]) -> Any:
    """`raw`, if it is an object of this model; a ValueError names every unknown key, with the nearest known one."""
    faults = list(_faults(model, raw, ""))
    if faults:
        raise ValueError("; ".join(faults))
    return raw


def no_such_key(place: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown key."""
    known = sorted(known)
    return f"{place}: no such key. Known: {', '.join(known)}.{did_you_mean(name, known)}"


def _faults(kind: str, raw: Any, path: str) -> Iterator[str]:
    inside = _INSIDE.match(kind)
    where = path or "(top level)"
    if raw is None:
        yield f"{where} is empty: leave it out, or fill it in"
    elif kind.lower().startswith("list"):
        assert inside
        if not isinstance(raw, list):
            yield f"{where}={raw!r:.60}: a list is needed"
        else:
            for index, each in enumerate(raw):
                yield from _faults(inside[1], each, f"{path}.{index}".lstrip("."))
    elif kind.lower().startswith("dict"):
        assert inside
        for name, each in raw.items() if isinstance(raw, Mapping) else ():
            yield from _faults(inside[1], each, f"{path}.{name}".lstrip("."))
        if not isinstance(raw, Mapping):
            yield f"{where}={raw!r:.60}: a mapping is needed"
    elif kind in _PLAIN:
        if not isinstance(raw, _PLAIN[kind]) or (isinstance(raw, bool) and kind != "bool"):
            yield f"{where}={raw!r:.60}: {kind} is needed"
    elif kind not in _OPEN:
        yield from _object_faults(kind, raw, path)


def _object_faults(model: str, raw: Any, path: str) -> Iterator[str]:
    if not isinstance(raw, Mapping):
        yield f"{path or '(top level)'}={raw!r:.60}: a mapping is needed"
        return
    kind = getattr(_models(), model)
    types = {kind.attribute_map[name]: of for name, of in kind.openapi_types.items()}
    for name, each in raw.items():
        place = f"{path}.{name}".lstrip(".")
        if name not in types:
            yield no_such_key(place, str(name), types)
        else:
            yield from _faults(types[name], each, place)


@cache
def _models() -> Any:
    try:
        from kubernetes.client import models
    except ImportError:
        raise ConfigError(
            "objects of Kubernetes are checked with its Python client: pip install 'loomrl[kubernetes]'."
        ) from None
    return models
