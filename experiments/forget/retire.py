"""Versions that learnt from people who are forgotten: their trainings are ended, their weights deleted."""

import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from loomrl.algorithms.language.resolved import inherited_name
from loomrl.checkpoints import number_of
from loomrl.experiments.forget.plan import WeightPlan
from loomrl.experiments.train_reward import FOLDER
from loomrl.run.version import artifact_roots, delete_checkpoint, has_checkpoint
from loomrl.store import LoomDB
from loomrl.store.forgettings import MOST, find_learners
from loomrl.store.runs import (
    POLICIES,
    RUNS,
    Run,
    RunStatus,
    finish_run,
    load_experiment,
    machines_of,
    start_run,
)
from loomrl.types import PolicyVersion


def end_trainings(db: LoomDB, plan: WeightPlan, id: str) -> None:
    """Take over, and end, the trainings that have learnt from the rows, or go on from a version that has."""
    learnt = find_learners(db, plan.untouched)
    for run in RUNS.latest(db, kind="train", status=RunStatus.RUNNING, limit=MOST):
        if run.id in plan.untouched or run.parent_policy in learnt or f"{run.id}/0" in learnt:
            claim = start_run(db, replace(run, started_at=time.time()))
            why = {"error": f"it learnt from people who are forgotten (forgetting {id})"}
            finish_run(db, run.id, status=RunStatus.FAILED, finished_at=time.time(), result=why, claim=claim)


def delete_weights(db: LoomDB, plan: WeightPlan, retired: Sequence[PolicyVersion]) -> list[dict[str, str]]:
    """Delete every file of weights of these versions; those that are on other machines, as far as is known."""
    first = {run: number + 1 for run, number in plan.untouched.items()}
    for version in retired:
        first[version.run] = min(version.number, first.get(version.run, version.number))
    runs = {run: RUNS.require(db, run) for run in first}
    unreached = [
        {"run": id, "machine": machine} for id, run in runs.items() if (machine := _elsewhere(db, run)) is not None
    ]
    for version in retired:
        delete_checkpoint(version, db)
    for id, run in runs.items():
        experiment = load_experiment(run)
        for artifacts in artifact_roots(experiment, db):
            for name in artifacts.list_begun(f"runs/{id}"):
                if number_of(name) >= first[id]:
                    artifacts.delete(name, missing_ok=True)
            for version in retired:
                artifacts.delete(inherited_name(version.id), missing_ok=True)
        shutil.rmtree(Path(experiment.train.folder) / id / FOLDER, ignore_errors=True)  # of a reward model
    return unreached


def _elsewhere(db: LoomDB, run: Run) -> str | None:
    """The machine of a run whose artifacts are not here, and were not deleted by us; else None.

    Its last start may be our own, which ended it.
    """
    own = f"{platform.node()}:"
    machines = machines_of(db, run.id) or [None]
    others = [machine or "unknown" for machine in machines if machine is None or not machine.startswith(own)]
    newest = POLICIES.latest(db, run=run.id, limit=1)
    return others[-1] if others and newest and not has_checkpoint(newest[0], db) else None
