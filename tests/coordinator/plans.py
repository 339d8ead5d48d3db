"""A loop that was never trained: settings, jobs and records for tests of decisions."""

from typing import Any

from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.decision import LoopRecord
from loomrl.coordinator.job import Priority, TrainingJob, Trigger

ENDPOINT = "policy"
NOW = 1_800_000_000.0
"""2027-01-15 08:00 UTC."""
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


def plan(**changes: Any) -> LoopExperiment:
    """A loop with settings by path, `__` for a point."""
    base = LoopExperiment.parse(
        {
            "name": "loop",
            "endpoint": ENDPOINT,
            "triggers": {"count": 100, "schedule": None},
            "training": {
                "algorithm": {"kind": "kto", "optimizer": {"learning_rate": 1e-3}},
                "data": {"batch": 32},
            },
            "suite": "language_tiny",
        }
    )
    return base.override({name.replace("__", "."): value for name, value in changes.items()})


def record(*jobs: TrainingJob, **changes: Any) -> LoopRecord:
    """A record with these jobs."""
    return LoopRecord(endpoint=ENDPOINT, jobs=jobs, since=NOW - 30 * DAY, host="here", position=len(jobs), **changes)


def job(id: str = "1", **changes: Any) -> TrainingJob:
    """A job that was asked for by count."""
    usual: dict[str, Any] = {
        "id": id,
        "endpoint": ENDPOINT,
        "trigger": Trigger.COUNT,
        "priority": Priority.NORMAL,
        "asked_at": NOW,
        "at": NOW,
        "since": NOW,
    }
    return TrainingJob(**usual | changes)
