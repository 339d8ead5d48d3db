"""Trajectories of other people's agents: from the event, and nothing else, to a trajectory without tokens."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from loomrl.bus.contract import Observation, TrajectoryEvent, TurnEvent
from loomrl.serving.wording import write_use
from loomrl.types import End, Message, Reward, Source, Task, Trajectory, Turn

EXTRA = "foreign"
"""Key in `Trajectory.extra` of what a trajectory has no field for."""
ROLES = {"user_message": "user", "tool_result": "tool", "subordinate_response": "tool", "system_message": "system"}
RESULTS = ("tool_result", "subordinate_response")
CALLS = ("tool_call", "subordinate_call", "memory_update")


def trajectory_from(event: TrajectoryEvent) -> Trajectory:
    """The trajectory in an event; its environment is the agent, its family the domain."""
    id = str(event["trajectory_id"])
    task = event["task_context"]
    turns = event["turns"]
    return Trajectory(
        id=id,
        task=Task(
            environment=event["agent_id"] or "-",
            version=event["metadata"]["model"],
            family=task.get("domain", "general"),
            level=1,
            seed=0,
            parameters={"task_id": task["task_id"]},
        ),
        turns=tuple(_turn(event, place) for place in range(len(turns))),
        end=End.TERMINATED,
        reward=Reward(),
        group=id,
        source=Source.FOREIGN,
        started_at=event["start_timestamp"].timestamp(),
        finished_at=event["end_timestamp"].timestamp(),
        extra={EXTRA: _rest(event)},
    )


def _turn(event: TrajectoryEvent, place: int) -> Turn:
    turn = event["turns"][place]
    seen = tuple(_read_observation(turn["observation"]))
    if place > 0:
        return Turn((*_unseen_result(event["turns"][place - 1], turn["observation"]), *seen), _write_action(turn))
    instructions = event["task_context"]["instructions"]
    is_said = instructions in ("", *(message.content for message in seen))
    return Turn(seen if is_said else (Message("system", instructions), *seen), _write_action(turn))


def _read_observation(observation: Observation) -> Iterator[Message]:
    """An observation as messages. `{"messages": […]}` are several."""
    content = observation["content"]
    role = ROLES[observation["type"]]
    if isinstance(content, str):
        yield Message(role, content)
        return
    several = content.get("messages")
    if set(content) == {"messages"} and isinstance(several, list) and several and all(map(_is_message, several)):
        yield from (Message(one["role"], one["content"]) for one in several)
        return
    yield Message(role, _text(content))


def _is_message(one: Any) -> bool:
    if not isinstance(one, dict) or set(one) != {"role", "content"} or not isinstance(one["content"], str):
        return False
    return one["role"] in ("system", "user", "assistant", "tool")


def _unseen_result(before: TurnEvent, observation: Observation) -> Iterator[Message]:
    """The result of a call that the next observation does not show."""
    if before["action"]["type"] in CALLS and observation["type"] not in RESULTS and (text := _output(before)):
        yield Message("tool", text)


def _output(turn: TurnEvent) -> str:
    result = turn["result"]
    output = result.get("output")
    if output is None:
        return result.get("error") or ""
    return output if isinstance(output, str) else _text(output)


def _write_action(turn: TurnEvent) -> str:
    """An action as a policy writes it: the raw response, and a call that is not in it."""
    action = turn["action"]
    raw = action.get("raw_response", "")
    if action["type"] not in CALLS:
        return raw or _output(turn)
    if raw and action.get("tool_name", raw) in raw:
        return raw
    arguments = msgspec.json.decode(msgspec.json.encode(action.get("tool_args", {}), order="sorted"))
    return "\n".join([*([raw] if raw else []), write_use(action.get("tool_name") or action["type"], arguments)])


def _text(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _rest(event: TrajectoryEvent) -> dict[str, Any]:
    """Everything else, as JSON."""
    task = {name: value for name, value in event["task_context"].items() if name != "instructions"}
    turns = [_rest_of(turn) for turn in event["turns"]]
    if event["turns"][-1]["action"]["type"] in CALLS:
        turns[-1]["output"] = _output(event["turns"][-1])
    return {
        "session": event["session_id"],
        "agent": event["agent_id"],
        "profile": event.get("subordinate_profile"),
        "task": task,
        "metadata": dict(event["metadata"]),
        "turns": turns,
    }


def _rest_of(turn: TurnEvent) -> dict[str, Any]:
    result = turn["result"]
    rest: dict[str, Any] = {
        "number": turn["turn_id"],
        "at": turn["timestamp"].timestamp(),
        "observation": turn["observation"]["type"],
        "action": turn["action"]["type"],
        "success": result["success"],
    }
    optional = {
        "tool": turn["action"].get("tool_name"),
        "thoughts": turn.get("thought_process"),
        "context": turn["observation"].get("context"),
        "error": result.get("error"),
        "ms": result.get("execution_time_ms"),
    }
    return rest | {name: value for name, value in optional.items() if value}
