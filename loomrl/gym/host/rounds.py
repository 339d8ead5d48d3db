"""Attempts whose environments take time ask for their next answers together, so that no batch depends on timing.

The requests that an engine answers in one batch decide the last bits of every log-probability, and so the weights. As
long as no environment waits for anything, all happens on one event loop, in one order. Once one has waited, for a
thread, a process or a server, every attempt is held where it would ask next, until all are; then they go on in a fixed
order.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Self


class _SeatState(Enum):
    """Where a seat's attempt is."""

    UNDER_WAY = auto()
    """Its policy answers, or its environment does."""
    HELD = auto()
    ASIDE = auto()
    """It waits for other attempts, which must not wait for it."""
    LEFT = auto()


class Rounds:
    """The attempts of a pool that share an engine."""

    def __init__(self) -> None:
        self.is_open = False
        """True once an environment has waited since the attempts last went on together."""
        self.under_way = 0
        """Seats for which the others have to wait."""
        self.held: dict[Seat, asyncio.Future[None]] = {}

    def seat(self) -> "Seat":
        """A place for one attempt after another. Take all of them before the first attempt begins."""
        return Seat(self)

    def check(self) -> None:
        """Let the held attempts go on once all are held."""
        if self.under_way:
            return
        self.is_open = False
        for seat, going in sorted(self.held.items(), key=lambda item: item[0].name):
            seat.move(_SeatState.UNDER_WAY)
            going.get_loop().call_soon(_go, going)  # later, or the last one to come would be the first to go on
        self.held = {}


class Seat:
    """One attempt after another; leave it with the context."""

    def __init__(self, rounds: Rounds) -> None:
        self.name = ""
        """Id of the attempt: the order in which attempts go on."""
        self._rounds = rounds
        self._place = _SeatState.UNDER_WAY
        self._asks = 0
        self._held_s = 0.0
        self._held_since: float | None = None
        self._queues: dict[object, Callable[[], float]] = {}
        rounds.under_way += 1

    async def turn(self) -> None:
        """Return once a policy may be asked."""
        if not self._rounds.is_open or self._place is not _SeatState.UNDER_WAY:
            return
        going: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rounds.held[self] = going
        self._held_since = time.monotonic()
        try:
            self.move(_SeatState.HELD)
            await going
        finally:
            if self._rounds.held.pop(self, None) is not None:  # cancelled
                self.move(_SeatState.UNDER_WAY)
            self._held_s += time.monotonic() - self._held_since
            self._held_since = None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A policy is asked: waiting for it is not a wait of the environment."""
        self._asks += 1
        try:
            yield
        finally:
            self._asks -= 1

    def waits(self) -> None:
        """The environment waits for something other than a policy."""
        if self._place is _SeatState.UNDER_WAY and not self._asks:
            self._rounds.is_open = True

    def step_aside(self) -> None:
        """Let the others go on without this attempt, until it comes `back`."""
        if self._place is _SeatState.UNDER_WAY:
            self.move(_SeatState.ASIDE)

    def back(self) -> None:
        """End `step_aside`, if it began."""
        if self._place is _SeatState.ASIDE:
            self.move(_SeatState.UNDER_WAY)
            self._rounds.is_open = True

    @contextmanager
    def queued(self, seconds: Callable[[], float]) -> Iterator[None]:
        """An engine has a request of its attempt: so far it has let it wait for `seconds`."""
        queue = object()
        self._queues[queue] = seconds
        try:
            yield
        finally:
            self._held_s += self._queues.pop(queue)()

    def seconds_held(self) -> float:
        """Seconds up to now in which its attempts have been held, or have waited for an engine's work for others."""
        since = self._held_since
        held_s = self._held_s + (0.0 if since is None else time.monotonic() - since)
        return held_s + sum(seconds() for seconds in self._queues.values())

    def move(self, place: _SeatState) -> None:
        """Be somewhere else, which may let the others go on."""
        was = self._place
        self._place = place
        self._rounds.under_way += (place is _SeatState.UNDER_WAY) - (was is _SeatState.UNDER_WAY)
        if place is not _SeatState.UNDER_WAY:
            self._rounds.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.move(_SeatState.LEFT)


def _go(going: asyncio.Future[None]) -> None:
    if not going.done():
        going.set_result(None)
