"""A check's result: passed, failed, not applicable or without a result, and the evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class State(StrEnum):
    """A check without a result (error) is neither a failure of the policy nor a pass."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A piece of evidence: the task or prompt, the policy's answer, and the reason why it counts."""

    prompt: str
    answer: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

    name: str
    """`benchmark Math`, `safety.secrets`."""
    state: State
    reason: str
    """One line with the figures."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Estimates, bounds and counts, as JSON."""
    examples: Sequence[Example] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self) | {"state": self.state.value, "examples": [asdict(each) for each in self.examples]}
