"""The origin of a served policy, as plain data: found in LoomDB before anything starts, opened in a replica."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from loomrl.canonical import content_hash
from loomrl.config import (
    ControlExperiment,
    LanguageAlgorithm,
    OpenAIServing,
    Sampling,
    ServedArm,
    ServingEngine,
    TorchServing,
    VllmServing,
)
from loomrl.errors import ArtifactError, ConfigError, unknown
from loomrl.files import file_hash, is_file
from loomrl.inference.gguf import is_model, model_folder
from loomrl.run.version import BASE, BASE_FILE, base_of, copied, experiment_of, file_of, find_version, latest_of
from loomrl.store import LoomDB
from loomrl.store.runs import POLICIES, RUNS, refuse_forgotten
from loomrl.types import PolicyVersion

Kind = Literal["language", "control"]
Follow = Literal["newest", "best"]
FORMS = ("RUN", "RUN/NUMBER", "a model's folder", "FILE.gguf", "package:NAME", "an exported control policy's folder")
STATES = ("line.json", "course.json")
"""Files of a checkpoint that name the best version of its run."""
SHARED = "base:"
"""Beginning of the names of engines that hold adapters; the identity of their base and the context follow."""
TRIES = 5
_NONE_YET = "run {!r} has no version yet: its first checkpoint makes one."


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySource:
    """A policy to serve. `key` is what arms and replicas call it: `RUN/12`, `RUN@newest`, or a folder."""

    key: str
    kind: Kind
    version: str
    """Id of the policy version; for a folder its name."""
    number: int = 0
    run: str = ""
    follow: Follow | None = None
    folder: str = ""
    """The files, if no run made them."""
    context: int | None = None
    """Tokens of a conversation; None: what the model has."""
    sampling: Sampling | None = None
    """The run's own; None is the default."""
    trust_remote_code: bool = False
    """The run's own setting; `engine.trust_remote_code` is that of folders."""

    def content(self) -> str:
        """SHA-256 over the folder's files, by name and content; empty if a run made the policy, whose versions stay."""
        if not self.folder:
            return ""
        folder = Path(self.folder)
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        return content_hash({str(file.relative_to(folder)): file_hash(file) for file in files})


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """The files of a policy on this machine."""

    path: Path
    version: str
    number: int
    copy: Path | None = None
    """A copy to be deleted after use."""

    def discard(self) -> None:
        """Delete the copy."""
        if self.copy is not None:
            shutil.rmtree(self.copy, ignore_errors=True)


def source_of_arm(arm: ServedArm, db: LoomDB) -> PolicySource:
    """An arm's policy: a run's last version by its number, a folder by its absolute path."""
    return source_of(f"{arm.what}@{arm.follow}" if arm.follow else arm.what, db)


def source_of(what: str, db: LoomDB) -> PolicySource:
    """The policy of this name or key; a ConfigError says what it could be."""
    run, _, follow = what.rpartition("@")
    if follow in ("newest", "best") and RUNS.find(db, what) is None:
        return _source_to_follow(run, "newest" if follow == "newest" else "best", db)
    if is_file(f"{what}/policy.json"):
        folder = Path(what).expanduser().absolute()
        return PolicySource(key=str(folder), kind="control", version=folder.name, folder=str(folder))
    if is_model(what):
        folder = model_folder(what).expanduser().absolute()
        return PolicySource(key=str(folder), kind="language", version=folder.name, folder=str(folder))
    if _is_folder(what):
        raise ConfigError(
            f"{what!r} is a folder and no policy: it has neither config.json (a model in Hugging Face's format) nor "
            "policy.json (a control policy). `loomrl policies export RUN FOLDER` writes both kinds."
        )
    version = find_version(what, db)
    if version is None and RUNS.find(db, what) is not None:
        raise ConfigError(_NONE_YET.format(what))
    if version is None:
        raise ConfigError("policy " + unknown("name", what, [*FORMS, *(run.id for run in RUNS.latest(db))]))
    return _of_version(version, version.id, db)


def engine_of(source: PolicySource, engine: ServingEngine, db: LoomDB) -> str:
    """The name of the engine that serves a policy: its own key, or one that all adapters of the same base share."""
    match engine:
        case TorchServing():
            # float16 has fewer small numbers than bfloat16, to which `identify` rounds: the base would not be known
            holds_adapters = engine.dtype != "float16"
        case VllmServing():
            holds_adapters = bool(engine.settings.get("enable_lora"))
        case OpenAIServing():
            holds_adapters = False
    if not holds_adapters or source.kind != "language" or source.folder or source.trust_remote_code:
        return source.key
    base = base_of(POLICIES.require(db, source.version), db)
    return source.key if base is None else f"{SHARED}{base}/{source.context}"


def fetch(source: PolicySource, db: LoomDB) -> OpenFolder:
    """The files of a policy: verified copies of a run's checkpoint, or its folder."""
    if source.folder:
        return OpenFolder(Path(source.folder), source.version, source.number)
    return _fetch(source, db, partial(_fetch_whole, trust_remote_code=source.trust_remote_code))


def fetch_adapter(source: PolicySource, db: LoomDB, *, weights_of_base: bool = False) -> OpenFolder:
    """A model's folder without weights, or with those of the base, and low-rank additions beside it as `adapter/`."""
    return _fetch(source, db, partial(_fetch_beside_base, weights_of_base=weights_of_base))


def _fetch(source: PolicySource, db: LoomDB, get: Callable[[PolicyVersion, LoomDB], OpenFolder]) -> OpenFolder:
    if source.follow is None:
        return get(POLICIES.require(db, source.version), db)
    for left in reversed(range(TRIES)):
        version = version_to_follow(source.run, source.follow, db)
        try:
            return get(version, db)
        except ArtifactError:  # pruned since it was listed
            if not left:
                raise
    raise AssertionError("unreachable")


def version_to_follow(run: str, follow: Follow, db: LoomDB) -> PolicyVersion:
    """The version of a run that its followers should have now."""
    newest = latest_of(run, db)
    if newest is None:
        raise ConfigError(_NONE_YET.format(run))
    if follow == "newest":
        return newest
    states = [json.loads(state) for name in STATES if (state := file_of(newest, db, name)) is not None]
    best = next((state["kept"].get("best") for state in states), None)
    known = {version.number: version for version in POLICIES.latest(db, run=run, limit=1_000_000)}
    return known.get(newest.number if best is None else best, newest)


def _source_to_follow(run: str, follow: Follow, db: LoomDB) -> PolicySource:
    newest = latest_of(run, db)
    if newest is None:
        known = [each.id for each in RUNS.latest(db)]
        message = "has no version yet" if run in known else unknown("run", run, known)
        raise ConfigError(f"follow {run!r}: {message}")
    return _of_version(newest, f"{run}@{follow}", db, follow=follow)


def _of_version(version: PolicyVersion, key: str, db: LoomDB, *, follow: Follow | None = None) -> PolicySource:
    refuse_forgotten(db, version.id)
    experiment = experiment_of(version, db)
    if isinstance(experiment, ControlExperiment):
        return PolicySource(
            key=key, kind="control", version=version.id, number=version.number, run=version.run, follow=follow
        )
    algorithm = experiment.algorithm
    own = algorithm if isinstance(algorithm, LanguageAlgorithm) else None
    return PolicySource(
        key=key,
        kind="language",
        version=version.id,
        number=version.number,
        run=version.run,
        follow=follow,
        context=own.model.context if own else None,
        sampling=own.sampling if own else None,
        trust_remote_code=own is not None and own.model.trust_remote_code,
    )


def _fetch_beside_base(version: PolicyVersion, db: LoomDB, *, weights_of_base: bool) -> OpenFolder:
    checkpoint = copied(version, db, weights_of_base=weights_of_base)
    if not (checkpoint / BASE_FILE).is_file():
        raise ConfigError(f"policy {version.id!r} is a whole model now, and was additions to a base. Serve it anew.")
    for file in checkpoint.with_name(BASE).iterdir():
        file.rename(checkpoint / "model" / file.name)
    return OpenFolder(checkpoint / "model", version.id, version.number, copy=checkpoint.parent)


def _fetch_whole(version: PolicyVersion, db: LoomDB, *, trust_remote_code: bool) -> OpenFolder:
    checkpoint = copied(version, db)
    path = checkpoint / "policy"
    if not path.is_dir():
        from loomrl.inference.merged import whole_model

        path = whole_model(checkpoint, trust_remote_code=trust_remote_code)
    return OpenFolder(path, version.id, version.number, copy=checkpoint.parent)


def _is_folder(text: str) -> bool:
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):
        return False
