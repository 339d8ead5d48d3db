"""Events of agents without what must not be stored."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from loomrl.bus.contract.trajectory import TrajectoryEvent
from loomrl.safety.placeholder import Names
from loomrl.safety.redaction import Redacted, Redaction, Redactor
from loomrl.safety.redaction.finding import Finding
from loomrl.safety.redaction.redactor import replaced

PARTS = frozenset(("turns", "observation", "context", "action", "result", "task_context", "metadata"))
PARTS |= {"thought_process", "available_tools"}
"""Objects and lists of the contract, in which names promise nothing."""
TEXTS = frozenset(("session_id", "agent_id", "task_id", "instructions", "model", "content", "tool_name"))
TEXTS |= {"raw_response", "output", "error"}
FORMS = frozenset(("type", "domain", "subordinate_profile"))
"""Texts of a closed form."""


LONGEST = 16_384
"""Characters of a text that is remembered."""
REMEMBERED = 2048
"""Texts, in memory alone."""


class Remembering:
    """A redactor that looks at a text once: agents repeat their instructions, and the names of their tools."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._known = lru_cache(REMEMBERED)(redactor.find)

    def find(self, text: str) -> Sequence[Finding]:
        """As of `Redactor`."""
        return self._known(text) if len(text) <= LONGEST else self._redactor.find(text)

    def redact(self, text: str, names: Names | None = None) -> Redacted:
        """As of `Redactor`."""
        return replaced(text, self.find(text), names)


def cleaned(event: TrajectoryEvent, redactor: Redactor) -> tuple[TrajectoryEvent, tuple[str, ...]]:
    """A trajectory without findings in any of its texts, and the kinds that were found."""
    redaction = Redaction(redactor)
    clean = cast(TrajectoryEvent, {name: _part(name, value, redaction) for name, value in event.items()})
    return clean, redaction.kinds


def cleaned_text(text: str, redactor: Redactor) -> str:
    """Any text, which may be JSON, without findings."""
    return Redaction(redactor).json(text)


def _part(name: str, value: Any, redaction: Redaction) -> Any:
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
