"""A served policy, as the gateway sees it: in this process, or in a replica behind a channel."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from loomrl.serving.call import Conversation, Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture among known ids: the PNG file, and the index of its first token."""

    png: bytes
    start: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Continuation(Conversation):
    """A conversation as a policy continues it: the ids of its known part, and the messages after it.

    Known ids end with a sampled answer. Without any, the messages are the whole conversation.
    """

    known_T: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    pictures: tuple[Picture, ...] = ()
    """Those among the known ids."""
    traceparent: str = ""
    """Parent of the engine's span; empty if nothing is traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The description of a policy, known before the first call."""

    kind: str
    """`language` or `control`."""
    version: str
    """The policy version's id at the start; a folder's name if it has none."""
    number: int
    context: int = 0
    """Tokens of a conversation; 0 for control."""
    sees: bool = False
    """Pictures are understood."""
    objectives: int = 0
    """Number of objectives of a control policy that takes a preference."""
    weighs: tuple[str, ...] = ()
    """Names of the objectives of a language policy that reads a preference."""
    spaces: Mapping[str, Any] = field(default_factory=dict)
    """A control policy's `observation` and `action` spaces, as JSON (`loomrl.control.space_json`)."""
    state: int = 0
    """Numbers in the state of a control policy with a memory."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActRequest:
    """Observations for a control policy: a batch, flat as the environment gives it (`loomrl.serving.routes.act`)."""

    observations: Any
    """An array with the batch first, or for spaces of parts a mapping or list of such."""
    preferences: NDArray[np.float32] | None = None
    """Weights of objectives, one row for each observation."""
    earned: NDArray[np.float32] | None = None
    states: NDArray[np.float32] | None = None
    """For a policy with a memory: of the step before, one row for each observation. None where episodes begin."""
    explore: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActResult:
    """Actions, batch first, the number of the version that chose them, and their log-probabilities if it explored."""

    actions: Any
    version: int
    logprobs: NDArray[np.float32] | None = None
    states: NDArray[np.float32] | None = None
    """States of a policy with a memory, for the next call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActAsk:
    """A request to act. `is_one`: a single observation, answered with a single action."""

    model: str
    act: ActRequest
    is_one: bool
    kind: str
    """The content type, in which it is answered too."""
    store: bool = True
    """False keeps the call off the record."""
    user: str = ""
    """The person behind the call, by the caller's name for them."""


class ServedPolicy(Protocol):
    """Answers any number of calls concurrently. Closing the iterator, or cancelling, ends the sampling."""

    @property
    def about(self) -> About:
        """The policy's description."""

    def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """The events of all choices; a Refusal (INVALID, TOO_LONG) before the first one if it cannot be answered."""

    async def act(self, act: ActRequest) -> ActResult:
        """The actions for a batch; a Refusal if the observations are not of the space."""
