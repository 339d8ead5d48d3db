"""uvicorn's server with limits: clients that keep it waiting cannot keep others out."""

import asyncio
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from loomrl.http.limits import Connection, Limits, close_overdue, evict
from loomrl.process import exit_on_sigterm

log = logging.getLogger(__name__)
BACKLOG = 2048
"""Connections that the system queues."""
SWEEP_S = 0.5
NO_ROOM_S = 0.02
GRACE_S = 3
"""Time for requests in progress when the server ends."""


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
