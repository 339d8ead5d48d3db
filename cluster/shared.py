"""Files that every host of a cluster must see, or that no other host may use."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from loomrl.errors import ClusterError
from loomrl.files import make_private

ANSWER_S = 60.0
"""Time limit for a host's answer: it starts a process for it."""
ELSEWHERE = "store_url=postgresql://HOST/loom artifact_url=s3://BUCKET/loom"


def refuse_unshared(
    *, store_url: str | None = None, artifact_url: str | None = None, paths: Mapping[str, str] | None = None
) -> None:
    """A ClusterError with the names of those hosts of Ray's that would not find what is here.

    `store_url`: of a LoomDB that they would open. `artifact_url`: where they would fetch weights. `paths`: setting → a
    file or folder that they would read.
    """
    others = _others()
    if not others:
        return
    if store_url is not None and store_url.startswith("sqlite:"):
        raise ClusterError(
            f"store_url={store_url}: SQLite is for one machine, and processes on {', '.join(sorted(others.values()))} "
            f"would use it too. Name what every host reaches: {ELSEWHERE}."
        )
    if artifact_url is not None and "://" not in artifact_url:
        with _marker(Path(artifact_url)) as file:
            _refuse_blind(others, "artifact_url", artifact_url, str(file))
    for setting, path in (paths or {}).items():
        _refuse_blind(others, setting, path, str(Path(path).absolute()))


def _others() -> dict[str, str]:
    """Id → name of the nodes of other hosts that have room for processes."""
    import ray

    if not ray.is_initialized():
        return {}
    here = ray.util.get_node_ip_address()
    return {
        node["NodeID"]: f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
        for node in ray.nodes()
        if node["Alive"] and node["NodeManagerAddress"] != here and node["Resources"].get("CPU")
    }


@contextmanager
def _marker(folder: Path) -> Iterator[Path]:
    """A file of ours: a folder of this name may be there too, and be another."""
    make_private(folder)
    file = folder.absolute() / f".seen-{uuid.uuid4().hex}"
    file.touch()
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def _refuse_blind(others: Mapping[str, str], setting: str, value: str, file: str) -> None:
    blind = [name for name, sees in zip(others.values(), _see(list(others), file), strict=True) if not sees]
    if blind:
        raise ClusterError(
            f"{setting}={value}: {', '.join(sorted(blind))} cannot see it. Mount that folder there under the same "
            f"path, or name what every host reaches: {ELSEWHERE}."
        )


def _see(nodes: Sequence[str], file: str) -> list[bool]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    look = ray.remote(num_cpus=0)(_is_there)
    asked = [look.options(scheduling_strategy=On(node, soft=False)).remote(file) for node in nodes]
    try:
        return list(ray.get(asked, timeout=ANSWER_S))
    except (ray.exceptions.RayError, TimeoutError) as error:
        said = " ".join(str(error).split())[:300]
        raise ClusterError(f"hosts of the cluster do not answer when they are asked for {file}: {said}") from error


def _is_there(file: str) -> bool:
    return Path(file).exists()
