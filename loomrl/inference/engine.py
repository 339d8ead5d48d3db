"""What an engine is: token ids in; token ids, their log-probabilities and the version that drew each of them out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from loomrl.inference.weights.sealed import Sealed

if TYPE_CHECKING:
    from loomrl.config import Sampling


class Finish(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Sight:
    """A picture in a prompt: the PNG file, and where the tokens that stand for it begin."""

    picture: bytes
    start: int


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What to continue. Equal requests to equal weights are answered alike, whatever else is in the engine."""

    prompt_T: NDArray[np.int32]
    sampling: "Sampling"
    stop: frozenset[int]
    """Token ids that end the completion; the one that did is its last token."""
    seed: int
    sights: tuple[Sight, ...] = ()
    """The pictures in the prompt, in order."""


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """The sampled tokens.

    `logprobs_T` are of the whole distribution at the sampling's temperature (at 1, where that is 0), before top-p
    takes its share: what a learner recomputes with one log-softmax.
    """

    ids_T: NDArray[np.int32]
    logprobs_T: NDArray[np.float32]
    versions_T: NDArray[np.int32]
    finish: Finish


class Engine(Protocol):
    """Answers any number of requests at a time. A task that is cancelled takes its request with it."""

    @property
    def version(self) -> int:
        """The policy version that samples now."""

    async def generate(self, request: Request) -> Completion:
        """The completion of one request; a PolicyError where the prompt leaves no room in the context."""

    async def load(self, sealed: Sealed) -> None:
        """Sample with these weights from the next token on, in open requests too; nothing cached outlives them.

        A PolicyError, and all the old weights stay, where they are not what was sealed or do not fit.
        """

    async def close(self) -> None:
        """Let go of the memory. Open requests fail."""
