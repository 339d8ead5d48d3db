"""A run made again without rows: from the last version that had learnt from none of them, on the same settings."""

import json
import shutil
import time
from collections.abc import Mapping

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import AnyExperiment
from loomrl.experiments.algorithms import ray_for
from loomrl.experiments.forget.plan import STATE, Replay, WeightPlan, substitute
from loomrl.experiments.kinds import open_training
from loomrl.experiments.training import metrics_kept
from loomrl.run.fork import inherit_progress
from loomrl.run.record import run_folder
from loomrl.run.version import copied
from loomrl.store import LoomDB
from loomrl.store.datasets import find_dataset
from loomrl.store.runs import POLICIES, RUNS, RunStatus, finish_run, hold, load_experiment


def make_again(db: LoomDB, store_url: str, plan: WeightPlan, replay: Replay, made: Mapping[str, str]) -> dict[str, str]:
    """Each version of the run to replace → the one in its place. What was made before a kill is used.

    `made` has the versions that earlier replays put in the place of others.
    """
    experiment = _experiment(db, store_url, plan, replay, made)
    return {
        version: _train(experiment, replay, number, db)
        for version, number in sorted(replay.targets.items(), key=lambda each: each[1])
    }


def _experiment(db: LoomDB, store_url: str, plan: WeightPlan, replay: Replay, made: Mapping[str, str]) -> AnyExperiment:
    """The run's experiment, on the data without the rows and from the version without the people."""
    instead = {each.dataset: each.without for each in plan.datasets}
    if replay.parent is not None and replay.parent in made:
        instead[replay.parent] = made[replay.parent]
    experiment = load_experiment(RUNS.require(db, replay.run)).override({"store_url": store_url})
    return substitute(experiment, instead)


def _train(experiment: AnyExperiment, replay: Replay, number: int, db: LoomDB) -> str:
    """The version of the new run after so many updates, or its last one if a rule of the experiment stops it before."""
    wanted = f"{replay.into}/{number}"
    if POLICIES.find(db, wanted) is not None:
        return wanted
    run_folder(experiment.train, replay.into)
    if replay.start:
        _begin_at(experiment, replay, db)
    with ray_for(experiment, run=replay.into):
        training = open_training(experiment, replay.into, db, clock=time.time)
        try:
            training.begin()
            with metrics_kept(training, training.experiment, replay.into, db) as training.listen:
                while training.stopped is None and training.done < number:
                    training.train()
                    hold(db, training.claim)
                version = training.keep()
            told = {"policy": version, "updates": training.done, "stopped": f"as far as {replay.run} is needed"}
            finish_run(
                db,
                replay.into,
                status=RunStatus.FINISHED,
                finished_at=time.time(),
                result=told,
                claim=training.claim,
            )
        finally:
            training.stop()
    return version


def _begin_at(experiment: AnyExperiment, replay: Replay, db: LoomDB) -> None:
    """Give the new run, before its first start, the checkpoint of the version from which it goes on."""
    checkpoints = Checkpoints(open_artifacts(experiment.artifact_url), replay.into)
    if checkpoints.stored():
        return
    version = POLICIES.require(db, f"{replay.run}/{replay.start}")
    folder = copied(version, db)
    try:
        theirs = json.loads((folder / STATE).read_text())
        state = inherit_progress(theirs, version, experiment, run=replay.into) | {"parent": replay.parent}
        if "data" in state:
            assert experiment.data is not None
            assert experiment.data.dataset is not None
            state["data"] = find_dataset(db, experiment.data.dataset).sha256
        (folder / STATE).write_text(json.dumps(state))
        checkpoints.put(replay.start, folder)
    finally:
        shutil.rmtree(folder.parent)
