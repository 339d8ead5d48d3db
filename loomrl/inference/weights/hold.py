"""The hold of an engine: completions from new weights are released once the weights are admitted."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from loomrl.errors import PolicyError
from loomrl.inference.engine import Completion, Engine, Pieces, Request
from loomrl.inference.weights.sealed import Sealed


@dataclass(slots=True, eq=False)
class _Ticket:
    """An open request, and the reason for rejecting its answer, if any."""

    cause: str | None = None


class Hold:
    """An engine that keeps sampling while its weights are unverified, but holds the completions.

    It is open with the engine's first weights. `load` closes it until `admit` or `reject`, which may be called from
    another thread than the event loops that wait here.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held = False
        self._rejected: str | None = None
        self._open: set[_Ticket] = set()
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def version(self) -> int:
        """The policy version that samples now, admitted or not."""
        return self._engine.version

    async def generate(self, request: Request) -> Completion:
        """The completion, once the weights are admitted; a PolicyError if they are rejected instead."""
        with self._ticket() as ticket:
            completion = await self._engine.generate(request)
            await self._pass(ticket)
        return completion

    async def stream(self, request: Request) -> Pieces:
        """The completion in pieces, each once the weights are admitted; a PolicyError if they are rejected instead."""
        with self._ticket() as ticket:
            async with aclosing(self._engine.stream(request)) as pieces:
                async for piece in pieces:
                    await self._pass(ticket)
                    yield piece

    async def probe(self, requests: Sequence[Request]) -> list[Completion]:
        """The completions of these requests, admitted or not."""
        return list(await asyncio.gather(*map(self._engine.generate, requests)))

    async def load(self, sealed: Sealed) -> None:
        """Sample with these weights, and hold the completions."""
        self._held = True
        await self._engine.load(sealed)
        self._rejected = None

    def admit(self, version: int) -> None:
        """Release held completions, and all later ones."""
        if self._rejected is not None or self._engine.version != version:
            raise PolicyError(
                f"version {version} is not what the engine has: version {self._engine.version}"
                f"{', rejected' if self._rejected is not None else ''}. Load it first."
            )
        self._held = False
        self._wake()

    def reject(self, cause: str) -> None:
        """Fail all open requests, and refuse others until other weights have been loaded."""
        self._held = True
        self._rejected = cause
        for ticket in self._open:
            ticket.cause = cause
        self._wake()

    async def close(self) -> None:
        """Release the engine's memory."""
        await self._engine.close()

    @contextmanager
    def _ticket(self) -> Iterator[_Ticket]:
        if self._rejected is not None:
            raise _refusal(self._rejected)
        ticket = _Ticket()
        self._open.add(ticket)
        try:
            yield ticket
        finally:
            self._open.discard(ticket)

    async def _pass(self, ticket: _Ticket) -> None:
        """Return once the weights are admitted; a PolicyError if they were rejected while the request was open."""
        while self._held and ticket.cause is None:
            await self._turn()
        if ticket.cause is not None:
            raise _refusal(ticket.cause)

    async def _turn(self) -> None:
        """Wait for the next decision."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.add(turn)
        try:
            await turn
        finally:
            self._waiting.discard(turn)

    def _wake(self) -> None:
        for turn in tuple(self._waiting):
            if not turn.get_loop().is_closed():
                turn.get_loop().call_soon_threadsafe(_come, turn)


def _come(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def _refusal(cause: str) -> PolicyError:
    return PolicyError(f"no completion: the engine's weights were rejected ({cause})")
