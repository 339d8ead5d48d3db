"""A run that begins in the middle of another one, with some of its settings changed.

Its first checkpoint is the parent's, with the bytes shared and the run's progress as its own. It is there before the
run is on record, so a fork that was killed anywhere is resumed as any run is.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.artifacts import Artifacts, open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import AnyExperiment, ControlExperiment, Experiment, RewardModel
from loomrl.config.layout import length, refuse_shapes
from loomrl.errors import ArtifactError, ConfigError, did_you_mean
from loomrl.load import dump, parse_assignments
from loomrl.schema import Difference, differences, merge
from loomrl.store import LoomDB
from loomrl.store.runs import (
    POLICIES,
    RUNS,
    Run,
    code_revision,
    load_experiment,
    record_fork,
    refuse_forgotten,
    refuse_other_fork,
)
from loomrl.types import PolicyVersion


def find_fork_point(db: LoomDB, text: str) -> PolicyVersion:
    """The version that `RUN@STEP` names, whose checkpoint is there."""
    id, _, step = text.rpartition("@")
    runs = [run.id for run in RUNS.latest(db, kind="train")]
    if id not in runs:
        raise ConfigError(f"{text!r}: no training {id or step!r} is on record. Say RUN@STEP.{did_you_mean(id, runs)}")
    there = _versions(db, id)
    found = next((version for version in there if str(version.number) == step), None)
    if found is None:
        steps = ", ".join(str(version.number) for version in reversed(there)) or "none"
        raise ConfigError(
            f"{text!r}: there is no checkpoint of step {step!r}. Steps of {id} that have one: {steps}. "
            "`train.keep=all` keeps every one."
        )
    refuse_forgotten(db, found.id)
    return found


def _versions(db: LoomDB, run: str) -> list[PolicyVersion]:
    """The versions of a run that have checkpoints, newest first."""
    checkpoints = Checkpoints(open_artifacts(load_experiment(RUNS.require(db, run)).artifact_url, make=False), run)
    stored = {url for _, url in checkpoints.stored()}
    return [version for version in POLICIES.latest(db, run=run, limit=10**6) if version.url in stored]


def changed_experiment(db: LoomDB, version: PolicyVersion, words: Sequence[str]) -> AnyExperiment:
    """The experiment of the version's run with these settings; a ConfigError for one that has no effect in a fork."""
    run = RUNS.require(db, version.run)
    own = load_experiment(run)
    origin = f"fork of {version.id}"
    if isinstance(own, Experiment) and isinstance(own.algorithm, RewardModel):
        raise ConfigError(f"{origin}: algorithm.kind=reward cannot be forked. Train it anew: `loomrl train`.")
    changed = type(own).parse(merge(own.plain, parse_assignments(words)), origin=origin)
    found = differences(own.plain, changed.plain)
    for word in words:
        _refuse_equal(word, found, run.id)
    refuse_shapes(found, own)
    limit = changed.train.steps if isinstance(changed, ControlExperiment) else changed.train.updates
    if limit <= version.number:
        raise ConfigError(
            f"{origin}: {length(own)}={limit} leaves nothing to train. Say {length(own)}=NUMBER above {version.number}."
        )
    return changed


def _refuse_equal(word: str, found: Sequence[Difference], run: str) -> None:
    path = word.partition("=")[0]
    if not any(one == path or one.startswith(f"{path}.") or path.startswith(f"{one}.") for one, _, _ in found):
        raise ConfigError(f"{word}: run {run} has it so already, and the fork would not differ in it. Leave it out.")


def begin_fork(db: LoomDB, version: PolicyVersion, experiment: AnyExperiment, *, run: str) -> None:
    """Share the version's checkpoint with a run of this id, and put the run on record. May be repeated."""
    parent = RUNS.require(db, version.run)
    fork = Run(
        id=run,
        name=experiment.name,
        kind="train",
        experiment=experiment.sha256,
        resolved=dump(experiment),
        code=code_revision(),
        environments=parent.environments,
        parent_policy=version.id,
        started_at=time.time(),
    )
    refuse_other_fork(db, fork)
    artifacts = open_artifacts(experiment.artifact_url)
    file = "course.json" if isinstance(experiment, ControlExperiment) else "line.json"
    data = artifacts.get_file(version.url, file)
    if data is None:
        raise ArtifactError(f"the checkpoint {version.url!r} has no {file}: it is none of a run. Fork another step.")
    state = inherit_progress(json.loads(data), version, experiment, run=run)
    _share_league(artifacts, state, run)
    artifacts.derive(state["url"], version.url, {file: json.dumps(state).encode()})
    changed = differences(load_experiment(parent).plain, experiment.plain)
    record_fork(db, fork, {path: now for path, _, now in changed})


def inherit_progress(
    theirs: Mapping[str, Any], version: PolicyVersion, experiment: AnyExperiment, *, run: str
) -> dict[str, Any]:
    """The progress of a version's run, for a run that begins there: no leases, no place in a hub, no reason to stop, no
    best version before.
    """
    is_best = theirs["kept"].get("best") == version.number
    state = {
        **theirs,
        "run": run,
        "experiment": experiment.sha256,
        "parent": version.id,
        "kept": {"best": version.number},
        "best": theirs["best"] if is_best else None,
        "url": Checkpoints(open_artifacts(experiment.artifact_url), run).url(version.number),
    }
    if "cursor" in theirs:
        state |= {"cursor": 0, "leases": []}
    if "stopper" in theirs:
        state["stopper"] = {**theirs["stopper"], "stopped": None}
    if "onset" in theirs:
        state["onset"] = {**theirs["onset"], "found": None}
    if "stopped" in theirs:
        state["stopped"] = None
    return state


def _share_league(artifacts: Artifacts, state: dict[str, Any], run: str) -> None:
    """Past versions of the parent that are opponents become the fork's own."""
    if "league" not in state or "cursor" not in state:  # of control its members' weights are in the checkpoint
        return
    members = []
    for number, theirs, points in state["league"]["members"]:
        ours = Checkpoints(artifacts, run).url(number)
        if ours != state["url"]:  # the version it begins at may be a member itself
            artifacts.derive(ours, theirs, {})
        members.append([number, ours, points])
    state["league"] = {**state["league"], "members": members, "left": []}
