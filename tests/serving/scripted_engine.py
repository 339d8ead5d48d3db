"""An engine of a script; apart from the policies of one, which processes import that are to start quickly."""

import asyncio
import random
from collections.abc import Iterable

import numpy as np

from loomrl.errors import PolicyError
from loomrl.inference.chat import ChatTemplate
from loomrl.inference.engine import Completion, CompletionPiece, FinishReason, Pieces, Request
from loomrl.inference.weights.sealed import Sealed


class ScriptedEngine:
    """Answers each request with the next text, its ids cut into pieces at random. The texts may be without end."""

    def __init__(self, chat: ChatTemplate, answers: Iterable[str], *, seed: int = 0) -> None:
        self.version = 7
        self.asked: list[Request] = []
        self.closed = 0
        """Streams that ended, of themselves or not."""
        self._scripts = map(chat.encode, answers)
        self._rng = random.Random(seed)

    async def generate(self, request: Request) -> Completion:
        """Not needed here."""
        raise NotImplementedError

    async def stream(self, request: Request) -> Pieces:
        """The next text, up to the request's length, then the end of the turn."""
        self.asked.append(request)
        ids = next(self._scripts)[: request.sampling.max_tokens]
        at = 0
        try:
            while at < len(ids):
                end = min(len(ids), at + self._rng.choice([1, 1, 2, 5]))
                part = ids[at:end]
                finish = (
                    None if end < len(ids) else FinishReason.STOP if part[-1] in request.stop else FinishReason.LENGTH
                )
                at = end
                await asyncio.sleep(0)
                yield CompletionPiece(
                    part, np.full(len(part), -0.5, np.float32), np.full(len(part), 7, np.int32), finish
                )
        finally:
            self.closed += 1

    async def load(self, sealed: Sealed) -> None:
        """Its version becomes another."""
        self.version = sealed.version

    async def close(self) -> None:
        """Fail from now on."""
        raise PolicyError("the engine is closed")
