"""Events of agents without what must not be stored."""

from collections.abc import Mapping
from typing import Any, cast

from loomrl.bus.contract import TrajectoryEvent
from loomrl.safety.redaction import Redaction, Redactor

PARTS = frozenset(("turns", "observation", "context", "action", "result", "task_context", "metadata"))
PARTS |= {"thought_process", "available_tools"}
"""Objects and lists of the contract, in which names promise nothing."""
TEXTS = frozenset(("session_id", "agent_id", "task_id", "instructions", "model", "content", "tool_name"))
TEXTS |= {"raw_response", "output", "error"}
SAID = frozenset(("content", "raw_response", "output"))
"""Texts in the order of the conversation."""
FORMS = frozenset(("type", "domain", "subordinate_profile"))
"""Texts of a closed form."""


def has_opted_out(event: Mapping[str, Any]) -> bool:
    """True if an agent wants no record of a trajectory: `"metadata": {"opt_out": true, …}`."""
    return event["metadata"].get("opt_out") is True


def cleaned(event: TrajectoryEvent, redactor: Redactor) -> tuple[TrajectoryEvent, tuple[str, ...]]:
    """A trajectory without findings in any of its texts, and the kinds that were found."""
    redaction = Redaction(redactor)

    def work(redaction: Redaction) -> TrajectoryEvent:
        return cast(TrajectoryEvent, {name: _part(name, value, redaction) for name, value in event.items()})

    return redaction.whole(work), redaction.kinds


def redact_text(text: str, redactor: Redactor) -> str:
    """Any text, which may be JSON, without findings."""
    return Redaction(redactor).whole(lambda redaction: redaction.json(text))


def _part(name: str, value: Any, redaction: Redaction) -> Any:
    if isinstance(value, str) and name in SAID:
        return redaction.said(value)
    if isinstance(value, str) and (name in TEXTS or name in PARTS):
        return redaction.text(value)
    if name in FORMS or isinstance(value, bool | int | float) or value is None:
        return value
    if name in PARTS and isinstance(value, dict):
        return {key: _part(key, one, redaction) for key, one in value.items()}
    if name in PARTS and isinstance(value, list):
        return [_part(name, one, redaction) for one in value]
    if isinstance(value, str | dict | list):
        return redaction.value(value, name="" if name in TEXTS else name)
    return value  # an id or a time
