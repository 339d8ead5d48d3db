"""A run's versions by name, and copies of their checkpoints."""

import json
from collections.abc import Iterator
from pathlib import Path

from loomrl.artifacts import MARKER, Artifacts, open_artifacts
from loomrl.config import AnyExperiment
from loomrl.errors import ArtifactError
from loomrl.files import scratch
from loomrl.store import LoomDB
from loomrl.store.runs import POLICIES, RUNS, load_experiment, refuse_forgotten
from loomrl.types import PolicyVersion

BASE_FILE = "adapter/base.json"
"""The file of a checkpoint that names the artifact of its base, its identity and its number format."""
BASE = "base"
CONFIGURATION = ("config.json", "generation_config.json")


def latest_of(run: str, db: LoomDB) -> PolicyVersion | None:
    """The last version of a run, or None if there is no such run."""
    made = POLICIES.latest(db, run=run, limit=1)
    return made[0] if made else None


def find_version(text: str, db: LoomDB) -> PolicyVersion | None:
    """The last version of `RUN`, or `RUN/NUMBER`; None if there is no such run."""
    return latest_of(text, db) or (POLICIES.require(db, text) if "/" in text else None)


def experiment_of(version: PolicyVersion, db: LoomDB) -> AnyExperiment:
    """The experiment that made the version."""
    return load_experiment(RUNS.require(db, version.run))


def copied(version: PolicyVersion, db: LoomDB, *, weights_of_base: bool = True) -> Path:
    """The version's checkpoint, copied from its artifact and verified; beside it, as `BASE`, the model to which its
    low-rank additions are to be added, if it is such a version.
    """
    refuse_forgotten(db, version.id)
    places = list(_places(version, db))
    for artifacts, name in places:
        if artifacts.exists(name):
            folder = artifacts.get_folder(name, scratch("policy") / "policy")
            fetch_base(artifacts, folder, weights=weights_of_base)
            return folder
    looked = ", ".join(dict.fromkeys(f"{artifacts.url}/{name}" for artifacts, name in places))
    raise ArtifactError(
        f"policy {version.id!r} is on record, but no whole checkpoint of it is at {looked}. Of a run the best, the "
        "last and those that were served are kept, and the first until it is pruned by age. If one was deleted, or "
        f"lacks its {MARKER}, restore it from a copy; if the folder was moved, move the database with it."
    )


def fetch_base(artifacts: Artifacts, checkpoint: Path, *, weights: bool = True) -> None:
    """Put the base of a checkpoint with low-rank additions beside it, without weights its configuration alone; nothing
    for other checkpoints.
    """
    if (reference := checkpoint / BASE_FILE).is_file():
        name = json.loads(reference.read_text())["artifact"]
        artifacts.get_folder(name, checkpoint.with_name(BASE), below="" if weights else CONFIGURATION)


def base_of(version: PolicyVersion, db: LoomDB) -> str | None:
    """The identity of the base to which the version's low-rank additions belong; None if it is a whole model."""
    data = file_of(version, db, BASE_FILE)
    return None if data is None else str(json.loads(data)["identity"])


def file_of(version: PolicyVersion, db: LoomDB, file: str) -> bytes | None:
    """One file of the version's checkpoint; None if there is no checkpoint, or no such file in it."""
    for artifacts, name in _places(version, db):
        if artifacts.exists(name):
            return artifacts.get_file(name, file)
    return None


def configuration_of(version: PolicyVersion, db: LoomDB) -> bytes | None:
    """`config.json` of the version's model, or of its additions' base; None if there is no checkpoint."""
    for artifacts, name in _places(version, db):
        if artifacts.exists(name):
            reference = artifacts.get_file(name, BASE_FILE)
            if reference is None:
                return artifacts.get_file(name, "model/config.json")
            return artifacts.get_file(json.loads(reference)["artifact"], "config.json")
    return None


def has_checkpoint(version: PolicyVersion, db: LoomDB) -> bool:
    """True if a whole checkpoint of the version is there."""
    return any(artifacts.exists(name) for artifacts, name in _places(version, db))


def delete_checkpoint(version: PolicyVersion, db: LoomDB) -> None:
    """Delete the version's checkpoint. The version stays on record."""
    for artifacts, name in _places(version, db):
        artifacts.delete(name, missing_ok=True)


def hashes_of(version: PolicyVersion, db: LoomDB) -> dict[str, str]:
    """The SHA-256 of the files of a version's weights; empty if there is no checkpoint."""
    for artifacts, name in _places(version, db):
        if artifacts.exists(name):
            return {file: hash for file, hash in artifacts.hashes(name).items() if file.endswith(".safetensors")}
    return {}


def artifact_roots(experiment: AnyExperiment, db: LoomDB) -> list[Artifacts]:
    """Where a run's artifacts may be: at its `artifact_url`, and there beside the database."""
    urls = [experiment.artifact_url]
    if db.is_sqlite and "://" not in urls[0]:
        urls.append(str(Path(db.engine.url.database or "").parent / urls[0]))
    return [open_artifacts(url, make=False) for url in urls]


def _places(version: PolicyVersion, db: LoomDB) -> Iterator[tuple[Artifacts, str]]:
    """Possible locations of the checkpoint: its own URL, below `artifact_url`, and there beside the database."""
    name = "/".join(version.url.split("/")[-3:])  # without what was before it
    for artifacts in artifact_roots(experiment_of(version, db), db):
        yield artifacts, name
