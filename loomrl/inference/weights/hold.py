"""The hold of an engine: completions from new weights are released once the weights are admitted."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from loomrl.errors import PolicyError


@dataclass(slots=True, eq=False)
class Ticket:
    """An open request, and the message with which it fails, if it must."""

    refusal: str | None = None


class Hold:
    """Keeps the completions of open requests back while the engine's weights are in doubt.

    It may be closed, released and refused from another thread than the event loops that wait here.
    """

    def __init__(self) -> None:
        self.closed = False
        self.refusal: str | None = None
        """The message with which new requests fail, if any."""
        self._open: set[Ticket] = set()
        self._waiting: set[asyncio.Future[None]] = set()

    @contextmanager
    def ticket(self) -> Iterator[Ticket]:
        """Keep a request open until the block ends; a PolicyError if new ones are refused."""
        if self.refusal is not None:
            raise PolicyError(self.refusal)
        ticket = Ticket()
        self._open.add(ticket)
        try:
            yield ticket
        finally:
            self._open.discard(ticket)

    async def wait(self, ticket: Ticket) -> None:
        """Return once completions are released; a PolicyError if they were refused while the request was open."""
        while self.closed and ticket.refusal is None:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.add(turn)
            try:
                await turn
            finally:
                self._waiting.discard(turn)
        if ticket.refusal is not None:
            raise PolicyError(ticket.refusal)

    def release(self) -> None:
        """Let held completions go, and all later ones."""
        self.closed = False
        self._wake()

    def refuse(self, message: str) -> None:
        """Fail all open requests, and new ones while `refusal` stands."""
        self.closed = True
        self.refusal = message
        for ticket in self._open:
            ticket.refusal = message
        self._wake()

    def _wake(self) -> None:
        for turn in tuple(self._waiting):
            if not turn.get_loop().is_closed():
                turn.get_loop().call_soon_threadsafe(_come, turn)


def _come(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
