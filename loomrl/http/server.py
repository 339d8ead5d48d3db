"""uvicorn's server with limits: clients that keep it waiting cannot keep others out."""

import asyncio
import logging
import re
import resource
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from loomrl.process import exit_on_sigterm

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as Protocol
else:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as Protocol

OFFER = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
"""An offer of another protocol, such as `h2c`, after which httptools would read no body. It is ignored."""
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
        self._credit(self._unsent - unsent)
        self._unsent = unsent
        if not self.is_waiting:
            self._begin()
        return now - self.since > self._limits.patience_s or now - self.began > self._limits.total_s

    @override
    def data_received(self, data: bytes) -> None:
        self._credit(len(data))
        if self.cycle is None or self.cycle.response_complete:  # a head, which may end in this data
            head, end, body = data.partition(b"\r\n\r\n")
            data = OFFER.sub(b"", head) + end + body
        super().data_received(data)

    @override
    def pause_writing(self) -> None:
        self._begin()
        super().pause_writing()

    # httptools calls it, h11 does not and needs none of this
    def on_headers_complete(self) -> None:
        """Begin the request; uvicorn would send a stream to HTTP/1.0 in chunks, which that does not know."""
        super().on_headers_complete()  # type: ignore[misc]
        if self.scope["http_version"] == "1.0":
            self.cycle.send = _until_closed(self.cycle)  # type: ignore[assignment, method-assign]

    @override
    def on_response_complete(self) -> None:
        self._begin()
        self._answered = True
        super().on_response_complete()

    def _begin(self) -> None:
        self.since = self.began = self.loop.time()

    def _credit(self, count: int) -> None:
        self.since = min(self.loop.time(), self.since + max(0, count) / self._limits.least_rate)


def _until_closed(cycle: Any) -> Callable[[Any], Coroutine[Any, Any, None]]:
    """A response's `send` that ends a body of unknown length with the connection."""
    send = cycle.send
    is_endless = False

    async def send_plain(message: Any) -> None:
        nonlocal is_endless
        if message["type"] == "http.response.start":
            is_endless = all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
            cycle.chunked_encoding = False if is_endless else None
        elif is_endless:
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    return send_plain


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


log = logging.getLogger(__name__)
BACKLOG = 2048
"""Connections that the system queues."""
SWEEP_S = 0.5
NO_ROOM_S = 0.02
GRACE_S = 3
"""Time for requests in progress when the server ends."""


# HAProxy cannot take this over: a hub is served inside a training and a console on a laptop, where nothing but Python
# is installed, and gateways do without a front there, too. The limits below keep what a front would promise (time for
# headers, bodies and answers, a least rate, a number of connections, TLS). `Admission` bounds the memory of a body
# also when it is unpacked, which no front does.
class Server(uvicorn.Server):
    """Serves an application on bound sockets. `ending` is called first when it ends, for answers that go on and on."""

    def __init__(
        self,
        app: ASGIApp,
        listeners: Sequence[socket.socket],
        *,
        limits: Limits | None = None,
        ending: Callable[[], None] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._ending = ending
        self._tls = tls
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=max(1, round(self._limits.patience_s)),
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(config)
        self._listeners = listeners
        self._accepting: list[asyncio.Task[None]] = []
        self._greeting: set[asyncio.Task[None]] = set()
        """Clients that shake hands for TLS."""
        self._room = self._limits.room()
        self._swept = 0.0

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # uvicorn's own would accept without counting
        self._swept = asyncio.get_running_loop().time()
        for listener in self._listeners:
            listener.listen(BACKLOG)
            listener.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listener)))

    @override
    async def on_tick(self, counter: int) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._swept >= SWEEP_S:
            close_overdue(self._connections, late_s=max(0.0, now - self._swept - 2 * SWEEP_S))
            self._swept = now
        return await super().on_tick(counter)

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._ending is not None:
            self._ending()
        ended = [*self._accepting, *self._greeting]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        for listener in self._listeners:
            listener.close()
        await asyncio.sleep(NO_ROOM_S)  # who was just let in is known by then, and seen off with the others
        await super().shutdown()

    @property
    def _connections(self) -> set[Connection]:
        return self.server_state.connections  # type: ignore[return-value]

    async def _accept(self, listener: socket.socket) -> None:
        """Accept clients, one per turn of the loop, up to the limit."""
        loop = asyncio.get_running_loop()
        while True:
            if len(self._connections) + len(self._greeting) >= self._room:
                await asyncio.sleep(0 if evict(self._connections) else NO_ROOM_S)  # closed in the loop's next turn
                continue
            try:
                client, _ = await loop.sock_accept(listener)
                if self._tls is not None:
                    task = asyncio.create_task(self._greet(client))
                    self._greeting.add(task)
                    task.add_done_callback(self._greeting.discard)
                    continue
                await asyncio.shield(loop.connect_accepted_socket(self._connection, client))
            except OSError as error:
                log.warning("A connection could not be accepted: %s", error)
                evict(self._connections)
                await asyncio.sleep(NO_ROOM_S)

    async def _greet(self, client: socket.socket) -> None:
        """Shake hands for TLS, while others are accepted."""
        loop = asyncio.get_running_loop()
        patience_s = self._limits.patience_s
        try:
            await loop.connect_accepted_socket(
                self._connection, client, ssl=self._tls, ssl_handshake_timeout=patience_s
            )
        except OSError as error:  # a port scan, plain HTTP, a client that does not trust us
            log.debug("A connection did not come to TLS: %s", error)

    def _connection(self) -> Connection:
        return Connection(
            self._limits, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


def serve(
    app: ASGIApp,
    listeners: Sequence[socket.socket],
    *,
    limits: Limits | None = None,
    ending: Callable[[], None] | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until interrupted or terminated. Ends by an exception, so that `with` blocks release their resources."""
    on_main = threading.current_thread() is threading.main_thread()
    if on_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        exit_on_sigterm()
    Server(app, listeners, limits=limits, ending=ending, tls=tls).run()


class Embedded(Server):
    """A server on the running event loop, beside what else is done there. Signals are not its business."""

    def __init__(
        self,
        app: ASGIApp,
        listeners: Sequence[socket.socket],
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(app, listeners, limits=limits, tls=tls)
        self._serving: asyncio.Task[None] | None = None

    @override
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()

    async def start(self) -> None:
        """Serve from now on."""
        self._serving = asyncio.create_task(self.serve())
        while not self.started:
            if self._serving.done():
                await self._serving
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        """Take no more requests, and end those in progress."""
        self.should_exit = True
        if self._serving is not None:
            await self._serving
