"""Plans of trainings on record, and what became of them."""

import json
import os
import platform
from collections.abc import Mapping
from typing import Any

from loomrl.config import AnyExperiment
from loomrl.store import LoomDB
from loomrl.store.notes import Notes
from loomrl.store.runs import RUNS

LATEST = 5
"""Runs of the same kind by whose errors a plan is corrected."""


def keep_plan(db: LoomDB, experiment: AnyExperiment, figures: Mapping[str, float]) -> None:
    """Put a plan on record, in place of an earlier one: its `seconds` and `memory_gb`, uncorrected."""
    Notes(db).keep(_key(experiment), json.dumps({**figures, "kind": kind_of(experiment), "machine": _here()}))


def find_plan(db: LoomDB, experiment: AnyExperiment) -> dict[str, Any] | None:
    """The latest plan of this experiment, with any seed, on this machine."""
    text = Notes(db).find(_key(experiment))
    plan = None if text is None else json.loads(text)
    return plan if plan is not None and plan["machine"] == _here() else None


def earlier_errors(db: LoomDB, kind: str) -> list[dict[str, float]]:
    """Ratios of measured to planned seconds and GB, of the latest runs of this kind on this machine."""
    plans = [run.result.get("planned") for run in RUNS.latest(db, kind="train", limit=200)]
    ours = [plan for plan in plans if plan and plan["kind"] == kind and plan["machine"] == _here()]
    return [{name: plan["measured"][name] / plan[name] for name in ("seconds", "memory_gb")} for plan in ours[:LATEST]]


def kind_of(experiment: AnyExperiment) -> str:
    """The kind of a training, whose plans are off alike."""
    return f"{experiment.kind}/{experiment.algorithm.kind}"


def _key(experiment: AnyExperiment) -> str:
    return f"plan/{experiment.override({'seed': 0}).sha256}"


def _here() -> str:
    return f"{platform.node()}, {os.cpu_count()} cores"
