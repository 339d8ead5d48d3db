"""Jobs as the contracts `agent.rl.training.request.v1` and `agent.rl.training.status.v1` have them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.decision import Alert
from loomrl.coordinator.job import Job
from loomrl.store.events import Event

PLATFORM = "loomrl"
ALERT = "alert.raised"


def request_of(plan: LoopExperiment, job: Job, base_model: str) -> dict[str, Any]:
    """The request of a job that the loop asks for by itself, without id and time."""
    training = plan.training.override(job.settings)
    assert training.data is not None, "a loop's training has a data set"
    algorithm: Any = training.algorithm
    chosen = plan.data.override(job.selection)
    wanted = {
        "min_reward": chosen.min_reward,
        "max_trajectory_length": chosen.max_turns,
        "date_range": {"start": _iso(job.asked_at - 86_400 * plan.days)} if plan.days else None,
    }
    return {
        "requester": PLATFORM,
        "trigger_reason": job.trigger.value,
        "training_config": {
            "algorithm": algorithm.kind,
            "base_model": base_model,
            "dataset": {
                "source": "local",
                "sample_size": chosen.limit or max(1, job.seen),
                "filter": {name: value for name, value in wanted.items() if value is not None},
            },
            "hyperparameters": {
                "learning_rate": algorithm.optimizer.learning_rate,
                "batch_size": training.data.batch,
                "epochs": training.data.epochs,
            },
        },
        "evaluation": {"enabled": True, "holdout_size": chosen.holdout},
        "priority": job.priority.value,
        "metadata": {
            "requested_by": job.who or PLATFORM,
            "previous_training_job": job.previous or None,
            "notes": job.reason,
        },
    }


def status_of(job: Job) -> dict[str, Any]:
    """The status of a job, without id and time."""
    said: dict[str, Any] = {
        "status": job.phase.status,
        "progress": {"percent_complete": 10.0 * job.tenths},
        "metadata": {
            "training_platform": PLATFORM,
            "endpoint": job.endpoint,
            "phase": job.phase.value,
            "reason": job.reason,
            "run": job.run,
            "dataset": job.dataset,
            "trigger": job.trigger.value,
            "attempt": job.attempt,
        },
    }
    if job.policy:
        said["artifacts"] = {"final_checkpoint": job.policy}
    if job.ended_at and job.begun_at:
        said["resource_usage"] = {"total_training_time_seconds": round(job.ended_at - job.begun_at, 3)}
    if job.result.get("evaluation"):
        said["evaluation_results"] = dict(job.result["evaluation"])
    if job.fault is not None:
        said["error"] = {"code": job.fault.code.value, "message": job.fault.message}
    return said


def requested(job: Job, *, is_known: bool = False) -> list[Event]:
    """The events of a job that is asked for: its request, and that it is queued.

    `is_known`: the request came over the bus, and goes out by no other name.
    """
    asked = Event(
        kind="training.accepted" if is_known else "training.requested",
        subject=job.id,
        data=dict(job.request),
        created_at=job.at,
    )
    return [asked, *moved(job)]


def moved(job: Job, alerts: Sequence[Alert] = ()) -> list[Event]:
    """The events of a job's row."""
    status = Event(kind="training.moved", subject=job.id, data=status_of(job), created_at=job.at)
    return [status, *(raised(alert, job.endpoint, at=job.at, job=job.id) for alert in alerts)]


def raised(alert: Alert, endpoint: str, *, at: float, **about: str) -> Event:
    """The event of an alert."""
    data: Mapping[str, str] = {"alert": alert.name, "reason": alert.reason, **about}
    return Event(kind=ALERT, subject=endpoint, data=data, created_at=at)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
