"""Our records as events of the contracts. Functions of plain data alone."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from loomrl.canonical import as_uuid
from loomrl.config import Experiment
from loomrl.config.language import LanguageAlgorithm
from loomrl.errors import LoomError
from loomrl.serving.wording import CallReader
from loomrl.store import LoomDB
from loomrl.store.deployments import CONTENT, DEPLOYMENTS, Deployment
from loomrl.store.events import Event
from loomrl.store.releases import read_release
from loomrl.store.replicas import front_of
from loomrl.store.runs import POLICIES, RUNS, load_experiment
from loomrl.store.trainings import TRAININGS
from loomrl.store.verdicts import VERDICTS
from loomrl.types import End, Message, Trajectory, Turn

Data = Mapping[str, Any]
TYPES = {"user": "user_message", "tool": "tool_result"}
"""Role → type of an observation; anything else is a message of the system."""
ALGORITHMS = {"kto": "dpo", "raft": "reinforce", "sft": "reinforce"}
"""Algorithms that the contract has no name for → the one that they are a variant of."""
STATUSES = {"finished": "completed"}
"""States of runs by another name."""


def trajectory_event(trajectory: Trajectory) -> dict[str, Any] | None:
    """`agent.rl.trajectory.v1` of what was served, its first thread; None for a control policy's, which has no turns.

    When a session began and ended is known, not when each turn was: turns have the time of the beginning.
    """
    if not trajectory.turns:
        return None
    instructions, first = _split_system(trajectory.turns[0].observation)
    seen = [first, *(turn.observation for turn in trajectory.turns[1:])]
    began = iso(trajectory.started_at)
    return {
        "trajectory_id": as_uuid(trajectory.id),
        "session_id": trajectory.id,
        "agent_id": trajectory.task.environment,
        "start_timestamp": began,
        "end_timestamp": iso(trajectory.finished_at),
        "turns": [
            {
                "turn_id": place + 1,
                "timestamp": began,
                "observation": _observation(messages),
                "action": _action(turn),
                "result": _result(trajectory, place),
            }
            for place, (turn, messages) in enumerate(zip(trajectory.turns, seen, strict=True))
        ],
        "task_context": {"task_id": trajectory.task.key, "instructions": instructions, "domain": "general"},
        "metadata": {
            "model": trajectory.task.version,
            "total_tokens": sum(len(turn.tokens) for turn in trajectory.turns if turn.tokens is not None),
            "threads": len(trajectory.sequences),
        },
    }


def request_event(job: str, asked: Data, *, at: float) -> dict[str, Any]:
    """`agent.rl.training.request.v1` from `training.requested`, whose data are its fields without id and time."""
    event = _without_none(asked) | {"training_job_id": as_uuid(job), "timestamp": iso(at)}
    config = event.get("training_config", {})
    if config.get("algorithm") in ALGORITHMS:
        named = {"algorithm": ALGORITHMS[config["algorithm"]], "variant": config["algorithm"]}
        event["training_config"] = config | named
    return event


def status_event(job: str, moved: Data, *, at: float) -> dict[str, Any]:
    """`agent.rl.training.status.v1` from `training.moved`, whose data are its fields without id and time."""
    status = STATUSES.get(moved.get("status", ""), moved.get("status"))
    return _without_none(moved) | {"status": status, "training_job_id": as_uuid(job), "timestamp": iso(at)}


def deployment_event(deployment: Data, *, policy: Data, endpoint_url: str, release: Data, verdict: Data | None) -> Data:
    """`agent.rl.model.deployed.v1` from a deployment, its policy version, its release, and a verdict of the gate."""
    strategy = release.get("strategy")
    return {
        "deployment_id": as_uuid(deployment["id"]),
        "training_job_id": as_uuid(policy["job"]),
        "timestamp": iso(deployment["created_at"]),
        "model_info": _without_none(
            {
                "model_id": policy["id"],
                "base_model": policy["base_model"],
                "checkpoint_path": policy["url"],
                "training_date": None if policy["created_at"] is None else iso(policy["created_at"]),
            }
        ),
        "deployment_config": {
            "serving_platform": "vllm",  # whose dialect all engines here speak
            "endpoint": endpoint_url,
            "model_name": deployment["endpoint"],
            "rollout_strategy": strategy if strategy in ("canary", "blue_green") else "immediate",
            "traffic_percentage": round(100 * deployment["share"], 6),
        },
        "validation_results": _validation(verdict),
        "metadata": _without_none(
            {
                "deployed_by": release.get("who") or "loomrl",
                "approval_status": _approval(verdict),
                "previous_model": release.get("baseline"),
            }
        ),
    }


def is_told(deployment: Data) -> bool:
    """True for a deployment that other systems are told of: a version that answers callers."""
    return deployment["stage"] in ("canary", "production") and deployment["share"] > 0


def iso(seconds: float) -> str:
    """A time as the contracts write it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _split_system(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The instructions of the system, and the messages after them."""
    if len(messages) > 1 and messages[0].role == "system":
        return messages[0].text, messages[1:]
    return "", messages


def _observation(messages: Sequence[Message]) -> dict[str, Any]:
    if not messages:
        return {"type": "system_message", "content": ""}
    content: Any = messages[0].text
    if len(messages) > 1 or messages[0].role == "assistant":
        content = {"messages": [{"role": message.role, "content": message.text} for message in messages]}
    return {"type": TYPES.get(messages[-1].role, "system_message"), "content": content}


def _action(turn: Turn) -> dict[str, Any]:
    reader = CallReader()
    reader.add(turn.action)
    reader.end()
    if not reader.calls:
        return {"type": "response", "raw_response": turn.action}
    call = reader.calls[0]
    return {
        "type": "tool_call",
        "tool_name": call.name,
        "tool_args": json.loads(call.arguments),
        "raw_response": turn.action,
    }


def _result(trajectory: Trajectory, place: int) -> dict[str, Any]:
    following = trajectory.turns[place + 1].observation if place + 1 < len(trajectory.turns) else ()
    output = "\n".join(message.text for message in following if message.role == "tool")
    if not following and trajectory.end is End.FAILED:
        assert trajectory.failure is not None
        return {"success": False, "error": trajectory.failure.message}
    return {"success": True} | ({"output": output} if output else {})


def _validation(verdict: Data | None) -> dict[str, Any]:
    """The gate's findings. Without a gate nothing was found to pass."""
    if verdict is None:
        return {
            "benchmark_passed": False,
            "safety_checks_passed": False,
            "performance_regression": False,
            "gate": "none",
        }
    checks = verdict["checks"]
    states = {check["name"]: check["state"] for check in checks}
    of = {part: [state for name, state in states.items() if name.startswith(part)] for part in ("benchmark", "safety")}
    scores = {
        check["name"].partition(" ")[2]: check["figures"]["success"]["mean"]
        for check in checks
        if check["name"].startswith("benchmark ") and "success" in check["figures"]
    }
    return {
        "benchmark_passed": _all_passed(of["benchmark"]),
        "safety_checks_passed": _all_passed(of["safety"]),
        "performance_regression": "failed" in (states.get("regression"), states.get("improvement")),
        "benchmark_scores": scores,
    }


def _all_passed(states: Sequence[str]) -> bool:
    return "passed" in states and not {"failed", "error"} & set(states)


def _approval(verdict: Data | None) -> str:
    if verdict is None or verdict["outcome"] in ("refused", "error"):
        return "emergency_override"
    return "manual_approved" if verdict["approved_by"] else "automated"


def _without_none(event: Data) -> dict[str, Any]:
    """Without properties that are null: the contracts want them absent."""
    return {name: _part(value) for name, value in event.items() if value is not None}


def _part(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _without_none(value)
    return [_part(one) for one in value] if isinstance(value, list | tuple) else value


def deployment_on_record(db: LoomDB, event: Event) -> dict[str, Any]:
    """The arguments of `deployed_event` for a `deployment.made`."""
    made = DEPLOYMENTS.require(db, event.subject)
    rows = read_release(db, made.id.partition("/")[0])
    content = rows[0].content if rows else {}
    return {
        "deployment": {"id": made.id, "endpoint": made.endpoint, "share": made.share, "created_at": made.created_at},
        "policy": _policy(db, made),
        "endpoint_url": _endpoint_url(db, made.endpoint),
        "release": {
            "strategy": content.get("plan", {}).get("strategy"),
            "who": rows[0].who if rows else "",
            "baseline": content.get("baseline"),
        },
        "verdict": _verdict(db, made.policy.partition(CONTENT)[0]),
    }


def _policy(db: LoomDB, made: Deployment) -> dict[str, Any]:
    """The deployed policy: a version on record, the newest one of a run that is followed, or a folder's content."""
    run = made.policy.rpartition("@")[0]
    followed = POLICIES.latest(db, run=run, limit=1) if run and CONTENT not in made.policy else []
    version = followed[0] if followed else POLICIES.find(db, made.policy)
    if version is None:
        url = made.policy.partition(CONTENT)[0]
        return {"id": made.policy, "job": made.policy, "url": url, "created_at": None, "base_model": "unknown"}
    training = TRAININGS.newest(db, run=version.run)
    return {
        "id": version.id,
        "job": version.run if training is None else training.id,
        "url": version.url,
        "created_at": version.created_at,
        "base_model": _base_model(db, version.run),
    }


def _endpoint_url(db: LoomDB, endpoint: str) -> str:
    """The address of an endpoint's front; a name where none is up."""
    return front_of(db, endpoint) or f"urn:loomrl:endpoint:{endpoint or 'unknown'}"


def _base_model(db: LoomDB, run: str) -> str:
    """The weights that a run began with."""
    try:
        experiment = load_experiment(RUNS.require(db, run))
    except LoomError:  # recorded by an earlier version, and not readable any more
        return "unknown"
    if not isinstance(experiment, Experiment) or not isinstance(experiment.algorithm, LanguageAlgorithm):
        return "none"
    return experiment.algorithm.model.path or "built"


def _verdict(db: LoomDB, policy: str) -> dict[str, Any] | None:
    """The gate's latest verdict about a policy."""
    found = VERDICTS.latest(db, policy=policy, limit=1)
    if not found:
        return None
    checks = found[0].report.get("checks", ())
    return {"checks": checks, "outcome": found[0].outcome.value, "approved_by": found[0].approved_by}
