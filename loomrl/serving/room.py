"""Admission: so many calls at once, a bounded queue behind them, and turns by key."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loomrl.serving.refusal import Refusal, RefusalCause

RETRY_S = 1.0


class Room:
    """Admits `slots` calls at a time, and lets `queue` more wait. Keys take turns, so that no key starves others."""

    def __init__(self, *, slots: int, queue: int) -> None:
        self._free = slots
        self._slots = slots
        self.queue = queue
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._count = 0

    @property
    def busy(self) -> int:
        """Calls that are admitted."""
        return self._slots - self._free

    @property
    def waiting(self) -> int:
        """Calls that wait."""
        return self._count

    @asynccontextmanager
    async def enter(self, key: str, *, deadline: float) -> AsyncIterator[None]:
        """A place until the block ends; a Refusal if the queue is full or the deadline (of the loop) passes."""
        if self._free and not self._count:
            self._free -= 1
        else:
            await self._wait(key, deadline)
        try:
            yield
        finally:
            self._free += 1
            self._admit()

    async def _wait(self, key: str, deadline: float) -> None:
        if self._count >= self.queue:
            message = f"{self._slots} calls are being answered and {self._count} wait: try again."
            raise Refusal(RefusalCause.FULL, message, retry_after_s=RETRY_S)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        self._count += 1
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except BaseException as error:
            self._withdraw(key, turn)
            if isinstance(error, TimeoutError):
                raise Refusal(
                    RefusalCause.TIMEOUT, "The gateway is busy: the call waited until its deadline.", retry_after_s=1
                ) from None
            raise

    def _withdraw(self, key: str, turn: asyncio.Future[None]) -> None:
        if turn.done() and not turn.cancelled():  # admitted in the same moment
            self._free += 1
            self._admit()
        elif (line := self._waiting.get(key)) is not None and turn in line:
            line.remove(turn)
            self._count -= 1
            if not line:
                del self._waiting[key]

    def _admit(self) -> None:
        while self._free and self._waiting:
            key = next(iter(self._waiting))
            line = self._waiting.pop(key)
            turn = line.popleft()
            if line:
                self._waiting[key] = line  # behind the others
            self._count -= 1
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
