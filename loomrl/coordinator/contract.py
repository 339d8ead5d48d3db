"""Jobs in the words of the contracts `agent.rl.training.request.v1` and `….status.v1`, out and in.

A request for something that the loop cannot do, or that would have no effect, is refused by name.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from loomrl.bus.contract import TrainingRequest
from loomrl.bus.outgoing import ALGORITHMS
from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.decision import Alert
from loomrl.coordinator.job import USUAL, Priority, TrainingJob, Trigger
from loomrl.errors import ConfigError, unknown
from loomrl.store.events import Event

PLATFORM = "loomrl"
ALERT = "alert.raised"


def request_of(plan: LoopExperiment, job: TrainingJob, base_model: str) -> dict[str, Any]:
    """The request of a job that the loop triggers itself, without id and time."""
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


def status_of(job: TrainingJob) -> dict[str, Any]:
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


def request_events(job: TrainingJob, *, is_known: bool = False) -> list[Event]:
    """The events of a new job: its request, and that it is queued.

    `is_known`: the request came over the bus, and goes out by no other name.
    """
    asked = Event(
        kind="training.accepted" if is_known else "training.requested",
        subject=job.id,
        data=dict(job.request),
        created_at=job.at,
    )
    return [asked, *status_events(job)]


def status_events(job: TrainingJob, alerts: Sequence[Alert] = ()) -> list[Event]:
    """The events of a job's row."""
    status = Event(kind="training.moved", subject=job.id, data=status_of(job), created_at=job.at)
    return [status, *(alert_event(alert, job.endpoint, at=job.at, job=job.id) for alert in alerts)]


def alert_event(alert: Alert, endpoint: str, *, at: float, **about: str) -> Event:
    """The event of an alert."""
    data: Mapping[str, str] = {"alert": alert.name, "reason": alert.reason, **about}
    return Event(kind=ALERT, subject=endpoint, data=data, created_at=at)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


STREAM = "RL_TRAJECTORIES"
SOURCES = ("local", "nats_stream")
"""Both mean the loop's hubs, where trajectories from the bus are stored too."""
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16"}
PATHS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "learning_rate": {"": ("algorithm.optimizer.learning_rate",)},
    "batch_size": {"": ("data.batch",)},
    "epochs": {"": ("data.epochs",)},
    "clip_epsilon": dict.fromkeys(("ppo", "grpo", "rloo", "reinforce"), ("algorithm.clip.low", "algorithm.clip.high")),
    "gamma": dict.fromkeys(("ppo", "reinforce"), ("algorithm.gamma",)),
    "gae_lambda": {"ppo": ("algorithm.gae_lambda",)},
}
"""Hyperparameter → algorithm (any: empty) → the settings that it is."""


def job_from(
    plan: LoopExperiment, request: TrainingRequest, *, base_model: str, collected: int, now: float
) -> TrainingJob:
    """The job of a request; a ConfigError names what the loop cannot do.

    `base_model` is the policy in production, which is trained.
    """
    config: Mapping[str, Any] = request["training_config"]
    _check_algorithm(plan, config)
    _check_model(plan, config["base_model"], base_model)
    _check_machines(plan, config)
    settings = dict(_settings(plan, config))
    selection = dict(_selection(config["dataset"]))
    evaluation: Mapping[str, Any] = request.get("evaluation", {})
    _check_evaluation(evaluation)
    if "holdout_size" in evaluation:
        selection["holdout"] = evaluation["holdout_size"]
    plan.training.override(settings)
    plan.data.override(selection)
    trigger = Trigger(request["trigger_reason"])
    about: Mapping[str, Any] = request.get("metadata", {})
    return TrainingJob(
        id=str(request["training_job_id"]),
        endpoint=plan.endpoint,
        trigger=trigger,
        priority=Priority(request.get("priority", USUAL.get(trigger, Priority.NORMAL).value)),
        asked_at=now,
        at=now,
        since=now,
        reason=str(about.get("notes") or f"asked for by {request['requester']}")[:500],
        who=str(about.get("requested_by") or request["requester"])[:200],
        request=_plain(
            {name: value for name, value in request.items() if name not in ("training_job_id", "timestamp")}
        ),
        settings=settings,
        selection=selection,
        seen=collected,
    )


def _check_algorithm(plan: LoopExperiment, config: Mapping[str, Any]) -> None:
    own: str = plan.training.algorithm.kind
    known = {own, ALGORITHMS.get(own, own)}
    asked = config.get("variant", config["algorithm"])
    if asked not in known:
        also = f", which the contract calls {ALGORITHMS[own]}" if own in ALGORITHMS else ""
        raise ConfigError(f"algorithm={asked!r}: loop {plan.name!r} trains by {own}{also}, and by nothing else.")


def _check_model(plan: LoopExperiment, asked: str, base_model: str) -> None:
    known = [base_model, plan.endpoint, f"production:{plan.endpoint}"]
    if asked not in known:
        raise ConfigError(
            unknown("base_model", asked, known) + f" The stable version of endpoint {plan.endpoint!r} is trained."
        )


def _check_machines(plan: LoopExperiment, config: Mapping[str, Any]) -> None:
    """A ConfigError if the request asks for other machines than the loop's."""
    algorithm: Any = plan.training.algorithm
    learners = algorithm.learners
    here = {
        "gpu_count": learners.count * (learners.gpus > 0),
        "distributed": learners.count > 1,
        "mixed_precision": next(name for name, dtype in PRECISIONS.items() if dtype == algorithm.model.dtype),
    }
    for name, asked in config.get("compute", {}).items():
        if asked != here.get(name):
            raise ConfigError(
                f"compute.{name}={asked!r}: trainings of loop {plan.name!r} have {here.get(name, 'no such')!r}. Leave "
                "it out, or change the loop's training."
            )
    for name, asked in config.get("checkpointing", {}).items():
        if name != "save_interval":
            raise ConfigError(
                f"checkpointing.{name}={asked!r} has no effect: the loop says where checkpoints go. Leave it out."
            )


def _check_evaluation(evaluation: Mapping[str, Any]) -> None:
    if evaluation.get("enabled") is False:
        raise ConfigError("evaluation.enabled=false: nothing is released without the gate. Leave it out.")
    if tasks := evaluation.get("benchmark_tasks"):
        raise ConfigError(
            f"evaluation.benchmark_tasks={tasks!r:.100}: the loop's suite has the benchmarks. Leave it out."
        )


def _settings(plan: LoopExperiment, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    kind: str = plan.training.algorithm.kind
    for name, value in config["hyperparameters"].items():
        if name not in PATHS:
            raise ConfigError(unknown("hyperparameters", name, PATHS))
        paths = PATHS[name].get("") or PATHS[name].get(kind)
        if paths is None:
            raise ConfigError(f"hyperparameters.{name} has no effect with {kind}. Leave it out.")
        yield from ((path, value) for path in paths)
    interval = config.get("checkpointing", {}).get("save_interval")
    if interval is not None:
        yield "train.checkpoint_every", interval


def _selection(dataset: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if dataset["source"] not in SOURCES:
        raise ConfigError(
            f"dataset.source={dataset['source']!r}: trajectories are trained on from this loop's hubs. Known: "
            f"{', '.join(SOURCES)}."
        )
    if dataset.get("stream_name", STREAM) != STREAM:
        raise ConfigError(unknown("dataset.stream_name", dataset["stream_name"], [STREAM]))
    yield "limit", dataset["sample_size"]
    chosen: Mapping[str, Any] = dataset.get("filter", {})
    _refuse_others(
        "dataset.filter",
        chosen,
        ("min_reward", "max_trajectory_length", "date_range", "task_domains", "exclude_subordinate_profiles"),
    )
    if chosen.get("exclude_subordinate_profiles"):
        raise ConfigError("dataset.filter.exclude_subordinate_profiles: profiles are not on record. Leave it out.")
    if "min_reward" in chosen:
        yield "min_reward", chosen["min_reward"]
    if "max_trajectory_length" in chosen:
        yield "max_turns", chosen["max_trajectory_length"]
    if chosen.get("task_domains"):
        yield "domains", list(chosen["task_domains"])
    for ours, theirs in (("since", "start"), ("until", "end")):
        if theirs in chosen.get("date_range", {}):
            yield ours, chosen["date_range"][theirs].isoformat()


def _refuse_others(where: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(unknown(where, name, known))


def _plain(value: Any) -> Any:
    """JSON values."""
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | float) else str(value)
