"""Checks of cluster files without a cluster: Ray's launcher files by Ray's own schema, KubeRay's by its definitions."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from loomrl.cluster.manifest import Schemas, crd_faults, matches, no_such_key, shipped_crds
from loomrl.config import ServingExperiment
from loomrl.errors import ConfigError, unknown
from loomrl.load import parse_yaml

PROVIDER = "provider"
PLAIN = {
    "v1 Service": "V1Service",
    "v1 PersistentVolumeClaim": "V1PersistentVolumeClaim",
    "apps/v1 Deployment": "V1Deployment",
}
"""`apiVersion kind` of Kubernetes itself → its model."""
CLUSTERS = {"RayCluster": None, "RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
"""Kinds of KubeRay, and where in their `spec` the cluster is."""
OURS = "loomrl.serving.deployment.app:build"
"""The application of an experiment of serving."""


def check_file(file: Path, crds: Schemas | None = None) -> list[str]:
    """A summary of the file, one line per document; a ConfigError lists every mistake.

    Resources of KubeRay are checked against these definitions, or against those that ship.
    """
    found = [_check(document, f"{file}", crds) for document in documents(file)]
    if not found:
        raise ConfigError(f"{file}: is empty.")
    return found


def documents(file: Path) -> list[Any]:
    """The YAML documents of a file that are not empty."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}. Is the path right?") from None
    parts = [parse_yaml(part, origin=str(file)) for part in f"\n{text}".split("\n---")]
    return [part for part in parts if part is not None]


def kinds(file: Path) -> dict[str, dict[str, float]]:
    """Kind of node → its resources, by Ray's names."""
    found: dict[str, dict[str, float]] = {}
    for document in documents(file):
        if "available_node_types" in document:
            found |= {name: node["resources"] for name, node in document["available_node_types"].items()}
        elif document.get("kind") in CLUSTERS:
            _check(document, str(file), None)
            found |= {name: _resources(pods) for name, pods in _pods(_cluster_of(document)).items()}
    return found


def _check(raw: Any, origin: str, crds: Schemas | None) -> str:
    if not isinstance(raw, dict):
        raise ConfigError(f"{origin}: a mapping is needed at the top, got {type(raw).__name__}.")
    if "apiVersion" not in raw and "kind" not in raw:
        return _check_launcher(raw, origin)
    kind = raw.get("kind")
    plain = PLAIN.get(f"{raw.get('apiVersion')} {kind}")
    if plain is not None:
        return _check_plain(raw, plain, origin)
    if kind not in CLUSTERS:
        raise ConfigError(f"{origin}: {unknown('kind', kind, [*CLUSTERS, *(about.split()[1] for about in PLAIN)])}")
    _refuse(list(crd_faults(raw, shipped_crds() if crds is None else crds)), origin)
    cluster = _cluster_of(raw)
    faults = [*_kuberay_faults(cluster)]
    if kind == "RayService":
        faults += _serve_faults(raw["spec"].get("serveConfigV2", ""))
    _refuse(faults, origin)
    groups = ", ".join(group["groupName"] for group in cluster.get("workerGroupSpecs", ()))
    return f"{kind} {raw['metadata'].get('name')!r}: {groups if cluster else 'a cluster by its labels'}"


def _check_plain(raw: dict[str, Any], model: str, origin: str) -> str:
    """An object of Kubernetes itself, such as the Service before a front."""
    try:
        matches(model, raw)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from None
    return f"{raw['kind']} {raw.get('metadata', {}).get('name')!r}"


# -- Ray's launcher ----------------------------------------------------------------------------------------------------


def _check_launcher(raw: dict[str, Any], origin: str) -> str:
    import ray.autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    _refuse([*_schema_faults(raw, schema), *_node_faults(raw)], origin)
    try:
        validate_config(prepare_config(deepcopy(raw)))
    except Exception as error:  # noqa: BLE001 - the boundary: Ray raises what it likes
        raise ConfigError(f"{origin}: Ray refuses it: {' '.join(str(error).split())}") from None
    return f"Ray cluster {raw['cluster_name']!r} ({raw['provider']['type']}): {', '.join(_node_types(raw)) or 'nodes'}"


def _schema_faults(raw: Mapping[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    """Ray's schema leaves `provider` open; keys it does not list are refused here."""
    import jsonschema

    schema["properties"][PROVIDER]["additionalProperties"] = False
    for fault in sorted(
        jsonschema.Draft7Validator(schema).iter_errors(raw), key=lambda fault: list(map(str, fault.path))
    ):
        place = ".".join(map(str, fault.absolute_path))
        known = fault.schema.get("properties", {}) if isinstance(fault.schema, dict) else {}
        if fault.validator != "additionalProperties":
            yield f"{place or '(top level)'}: {fault.message}"
            continue
        for name in sorted(set(fault.instance) - set(known)):
            yield no_such_key(f"{place}.{name}".lstrip("."), name, known)


def _node_types(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    types = raw.get("available_node_types")
    return types if isinstance(types, Mapping) else {}


def _node_faults(raw: Mapping[str, Any]) -> Iterator[str]:
    """Mistakes beyond the schema: the head must be one of the types, and AWS must know every key of a node."""
    types = _node_types(raw)
    head = raw.get("head_node_type")
    if types and head not in types:
        yield unknown("head_node_type", head, types)
    provider = raw.get(PROVIDER)
    if isinstance(provider, Mapping) and provider.get("type") == "aws":
        for name, node in types.items():
            if isinstance(node, Mapping) and isinstance(node.get("node_config"), Mapping):
                yield from _aws_faults(f"available_node_types.{name}.node_config", node["node_config"])


def _aws_faults(place: str, node: Mapping[str, Any]) -> Iterator[str]:
    """Checked against the parameters of EC2's RunInstances; the launcher sets the counts."""
    shape = _run_instances()
    from botocore.validate import ParamValidator

    for name in sorted(set(node) - set(shape.members)):
        yield no_such_key(f"{place}.{name}", name, shape.members)
    known = {name: value for name, value in node.items() if name in shape.members}
    report = ParamValidator().validate({"MinCount": 1, "MaxCount": 1, **known}, shape)
    if report.has_errors():
        yield f"{place}: {' '.join(report.generate_report().split())}"


@cache
def _run_instances() -> Any:
    try:
        from botocore.session import Session
    except ImportError:
        raise ConfigError("clusters on AWS are checked with botocore: pip install 'loomrl[aws]'.") from None
    return Session().get_service_model("ec2").operation_model("RunInstances").input_shape


# -- KubeRay -----------------------------------------------------------------------------------------------------------


def _cluster_of(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The cluster of a resource; empty for a job that selects an existing one."""
    inside = CLUSTERS[raw["kind"]]
    cluster: Mapping[str, Any] = raw["spec"] if inside is None else raw["spec"].get(inside) or {}
    return cluster


def _kuberay_faults(cluster: Mapping[str, Any]) -> Iterator[str]:
    """Mistakes that no single key shows."""
    for group in cluster.get("workerGroupSpecs", ()):
        low, count, high = (group.get(key, 0) for key in ("minReplicas", "replicas", "maxReplicas"))
        if not low <= count <= high:
            yield (
                f"workerGroupSpecs {group['groupName']}: replicas={count} is not between minReplicas={low} and "
                f"maxReplicas={high}"
            )
    for name, pods in _pods(cluster).items():
        try:
            _resources(pods)
        except ValueError as error:
            yield f"{name}: rayStartParams.resources={pods['rayStartParams']['resources']}: {error}"


def _pods(cluster: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    if not cluster:
        return {}
    return {"head": cluster["headGroupSpec"]} | {
        group["groupName"]: group for group in cluster.get("workerGroupSpecs", ())
    }


def _resources(pods: Mapping[str, Any]) -> dict[str, float]:
    """By Ray's names: the first container's limits, and the resources given to Ray beside them."""
    limits = pods["template"]["spec"]["containers"][0].get("resources", {}).get("limits", {})
    params = pods.get("rayStartParams", {})
    custom = {}
    if "resources" in params:
        text = params["resources"]
        custom = json.loads(json.loads(text) if text.startswith('"') else text)
    cpus = float(params.get("num-cpus", limits.get("cpu", 0)))
    gpus = float(params.get("num-gpus", limits.get("nvidia.com/gpu", 0)))
    return {"CPU": cpus, "GPU": gpus} | {name: float(amount) for name, amount in custom.items()}


def _serve_faults(text: str) -> Iterator[str]:
    from pydantic import ValidationError
    from ray.serve.schema import ServeDeploySchema

    try:
        schema = ServeDeploySchema.model_validate(parse_yaml(text, origin="serveConfigV2"))
    except ValidationError as error:
        for fault in error.errors():
            yield f"serveConfigV2.{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        return
    for application in schema.applications:
        if application.import_path == OURS:
            try:
                ServingExperiment.parse(
                    application.args.get("experiment"), origin=f"{application.name}.args.experiment"
                )
            except ConfigError as error:
                yield str(error)


def _refuse(faults: list[str], origin: str) -> None:
    if faults:
        raise ConfigError(f"{origin}: {len(faults)} fault(s)\n  " + "\n  ".join(faults))
