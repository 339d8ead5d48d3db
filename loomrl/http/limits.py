"""Limits for clients that keep a server waiting, and for their number. The longest waiting connections are closed
first.
"""

import asyncio
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as Protocol

EVICTED_AT_ONCE = 1 / 8
"""Share of a crowd closed at once when a server needs room: choosing them takes a pass over all connections."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for a client that a server waits for."""

    patience_s: float = 10.0
    """Seconds for a request's headers, the next part of its body, the reading of an answer, and the next request."""
    least_rate: int = 4096
    """Minimum bytes per second of a body or an answer, after `patience_s`."""
    total_s: float = 600.0
    """Maximum seconds for a request to arrive, or an answer to be read, at any rate."""
    connections: int = 4096
    """Maximum number; lower if the process may have fewer open files."""

    def room(self) -> int:
        """The number of connections with room. A quarter of the process's descriptors stays free for files and
        databases.
        """
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return max(8, min(self.connections, 3 * soft // 4 - sum(1 for _ in Path("/dev/fd").iterdir())))


class Connection(Protocol):
    """A connection that records since when its client keeps the server waiting."""

    def __init__(self, limits: Limits, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._limits = limits
        self._unsent = 0
        self.since = self.began = self.loop.time()
        """Start of the wait for the client: reduced for bytes it moved, and in total."""
        self._answered = False

    @property
    def crowd(self) -> tuple[str, bool]:
        """The connection's crowd for eviction: its address, and whether it has had an answer."""
        return self.client[0] if self.client else "", self._answered

    @property
    def is_waiting(self) -> bool:
        """True if it is the client's turn: to send a request, continue a body, or read."""
        if self.transport.get_write_buffer_size() or self.cycle is None or self.cycle.response_complete:
            return True
        return self.cycle.more_body and not self.flow.read_paused

    def is_overdue(self, now: float) -> bool:
        """True if the client's time is up. Must be called often: time in which the server worked is not counted."""
        unsent = self.transport.get_write_buffer_size()
        self._moved(self._unsent - unsent)
        self._unsent = unsent
        if not self.is_waiting:
            self._begin()
        return now - self.since > self._limits.patience_s or now - self.began > self._limits.total_s

    @override
    def data_received(self, data: bytes) -> None:
        self._moved(len(data))
        super().data_received(data)

    @override
    def pause_writing(self) -> None:
        self._begin()
        super().pause_writing()

    @override
    def on_response_complete(self) -> None:
        self._begin()
        self._answered = True
        super().on_response_complete()

    def _begin(self) -> None:
        self.since = self.began = self.loop.time()

    def _moved(self, count: int) -> None:
        self.since = min(self.loop.time(), self.since + max(0, count) / self._limits.least_rate)


def close_overdue(connections: Iterable[Connection], *, late_s: float) -> None:
    """Close connections whose client's time is up. `late_s`, when the server itself did not listen, does not count."""
    now = asyncio.get_running_loop().time()
    for connection in list(connections):
        connection.since += late_s
        if connection.is_overdue(now):
            connection.transport.abort()


def evict(connections: Iterable[Connection]) -> bool:
    """Close the longest waiting connections of the largest crowd. False if none waits for its client.

    So a flood of one kind displaces only its own kind: neither active connections nor newcomers.
    """
    crowds: dict[tuple[str, bool], list[Connection]] = {}
    for connection in connections:
        if connection.is_waiting:
            crowds.setdefault(connection.crowd, []).append(connection)
    if not crowds:
        return False
    largest = max(crowds.values(), key=lambda crowd: len(crowd))
    going = sorted(largest, key=lambda connection: connection.since)[: 1 + int(EVICTED_AT_ONCE * len(largest))]
    for connection in going:
        connection.transport.abort()
    return True
