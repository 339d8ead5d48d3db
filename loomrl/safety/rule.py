"""Rules about answers and actions that must not leave. Pure functions of the answer, or of the action."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A tool call in an answer. `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The part of a request that rules may compare an answer with."""

    system: str = ""
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name → JSON schema of its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """An answer so far."""

    text: str
    since: int = 0
    """Text before this place was found harmless or has left; it is context."""
    is_whole: bool = True
    """False: more may follow."""
    uses: tuple[Use, ...] = ()
    """Tool calls of a whole answer."""
    asked: Asked = Asked()


@dataclass(frozen=True, slots=True)
class Found:
    """The place from which a text must not leave. `what` names the form and never quotes the text."""

    start: int
    what: str
    is_sure: bool = True
    """False: more text decides; until then everything from `start` is held back."""
    has_failed: bool = False
    """The rule itself failed: the answer is stopped, and its arm is not blamed."""


class TextRule(Protocol):
    """A rule about answers. It finds the first place, at or after `saying.since`; it is sure about a whole answer."""

    def find(self, saying: Saying) -> Found | None:
        """The first finding."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deed:
    """One action of a control policy."""

    action: NDArray[Any]
    """Flat numbers, or one whole number."""
    observation: NDArray[Any] | None = None
    """Flat; None if it has named parts."""
    before: NDArray[Any] | None = None
    """The action before it, in the same session."""


@dataclass(frozen=True, slots=True, eq=False)
class Wrong:
    """A forbidden action; `instead` is the nearest allowed one, if the rule knows it."""

    what: str
    instead: NDArray[Any] | None = None
    has_failed: bool = False
    """The rule itself failed: the action is stopped, and its arm is not blamed."""


class ActionRule(Protocol):
    """A rule about actions."""

    def judge(self, deed: Deed) -> Wrong | None:
        """None if the action is allowed."""


def flat(value: Any) -> NDArray[Any]:
    """One action or observation as a row of numbers."""
    return np.asarray(value).reshape(-1)
