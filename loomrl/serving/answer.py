"""A policy's answer as it comes: the events that a replica sends to the gateway, and the gateway to a dialect.

The order for every choice is `Opened`, any number of `Drawn`, `Closed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from loomrl.serving.call import ToolCall

Finish = Literal["stop", "length", "tool_calls", "filtered"]
"""`filtered`: the monitor ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A token that could have been drawn. `token` is its text as bytes; `logprob` is natural."""

    id: int
    token: bytes
    logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A drawn token and the likeliest alternatives, in the answer of a caller who asked for log-probabilities."""

    drawn: Candidate
    top: tuple[Candidate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Opened:
    """The ids that are new in the prompt: everything since the known ids."""

    index: int = 0
    ids_T: NDArray[np.int32]
    sights: tuple[int, ...] = ()
    """The first token of each picture of the new messages, counted from the beginning of the conversation."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drawn:
    """Sampled tokens, and the text that is certain so far: less where a stop string or a call may begin."""

    index: int = 0
    ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    versions_T: NDArray[np.int32]
    text: str = ""
    tokens: tuple[Token, ...] = ()
    """Empty unless asked for."""


def joined(drawn: Sequence[Drawn]) -> Drawn:
    """Several of one choice as one."""
    if len(drawn) == 1:
        return drawn[0]
    return Drawn(
        index=drawn[0].index,
        ids_T=np.concatenate([each.ids_T for each in drawn]),
        logprobs_T=np.concatenate([each.logprobs_T for each in drawn]),
        versions_T=np.concatenate([each.versions_T for each in drawn]),
        text="".join(each.text for each in drawn),
        tokens=tuple(token for each in drawn for token in each.tokens),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The end of a choice: its whole text without calls and stop string, its calls, and the reason of its end."""

    index: int = 0
    text: str
    calls: tuple[ToolCall, ...] = ()
    finish: Finish
    stopped_by: str = ""
    """The stop string that ended it."""


Event = Opened | Drawn | Closed


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The origin of an answer, known before its first token."""

    id: str
    """The call's id, without a dialect's prefix."""
    created: float
    model: str
    """The endpoint's name."""
    version: str
    """The policy version's id."""
    arm: str
    session: str
    trajectory: str
    """Empty if nothing is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counts of tokens."""

    prompt: int
    """The whole conversation before the answer."""
    cached: int = 0
    """Of these, continued from an earlier call."""
    completion: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One whole answer."""

    closed: Closed
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A finished call."""

    heading: Heading
    choices: tuple[Choice, ...]
    usage: Usage


@dataclass(slots=True)
class Gathered:
    """The events of one choice, joined as they come."""

    opened: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    sights: tuple[int, ...] = ()
    drawn: list[Drawn] = field(default_factory=list)
    closed: Closed | None = None

    def add(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, Opened):
            self.opened = event.ids_T
            self.sights = event.sights
        elif isinstance(event, Drawn):
            self.drawn.append(event)
        else:
            self.closed = event

    @property
    def ids(self) -> NDArray[np.int32]:
        """All sampled ids."""
        return np.concatenate([np.zeros(0, np.int32), *(each.ids_T for each in self.drawn)])

    @property
    def logprobs(self) -> NDArray[np.float32]:
        """Their log-probabilities."""
        return np.concatenate([np.zeros(0, np.float32), *(each.logprobs_T for each in self.drawn)])

    @property
    def versions(self) -> NDArray[np.int32]:
        """The policy version of each."""
        return np.concatenate([np.zeros(0, np.int32), *(each.versions_T for each in self.drawn)])

    @property
    def tokens(self) -> tuple[Token, ...]:
        """All tokens, if asked for."""
        return tuple(token for each in self.drawn for token in each.tokens)

    def choice(self) -> Choice:
        """The whole answer, once closed."""
        assert self.closed is not None, "the choice is not closed yet"
        return Choice(closed=self.closed, tokens=self.tokens)
