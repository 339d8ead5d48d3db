"""Events of an agent that is not ours."""

import json
import uuid
from typing import Any

from loomrl.bus.bus import Message
from loomrl.bus.event import TRAJECTORY


def foreign_event(id: str | None = None, *, agent: str = "zero", says: str = "Done.", **changes: Any) -> dict[str, Any]:
    """A trajectory: a question, a call, its result, an answer."""
    return {
        "trajectory_id": id or str(uuid.uuid4()),
        "session_id": "session 1",
        "agent_id": agent,
        "subordinate_profile": "developer",
        "start_timestamp": "2026-01-31T12:00:00Z",
        "end_timestamp": "2026-01-31T12:01:00Z",
        "turns": [
            {
                "turn_id": 1,
                "timestamp": "2026-01-31T12:00:01Z",
                "observation": {"type": "user_message", "content": "Which orders are late?"},
                "thought_process": ["The orders are in a table."],
                "action": {"type": "tool_call", "tool_name": "orders", "tool_args": {"late": True}},
                "result": {"success": True, "output": {"orders": [4711]}, "execution_time_ms": 12.5},
            },
            {
                "turn_id": 2,
                "timestamp": "2026-01-31T12:00:59Z",
                "observation": {"type": "tool_result", "content": {"orders": [4711]}},
                "action": {"type": "response", "raw_response": says},
                "result": {"success": True, "output": says},
            },
        ],
        "task_context": {"task_id": "t-1", "instructions": "Help the shop.", "domain": "data_analysis"},
        "metadata": {"model": "their-model", "temperature": 0.7, "total_tokens": 321},
        **changes,
    }


def message(event: dict[str, Any], **changes: Any) -> Message:
    """The event as its agent publishes it."""
    defaults = {"subject": TRAJECTORY.subject, "id": event["trajectory_id"], "payload": json.dumps(event).encode()}
    return Message(**{**defaults, **changes})
