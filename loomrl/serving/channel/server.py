"""A policy that listens on a socket; gateways reach it by a `ChannelLink`."""

import asyncio
import hmac
from typing import Any

from typing_extensions import override

from loomrl.observability.trace import NOTHING, Span, begin, ending
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.call import TokensDrawn
from loomrl.serving.channel.frame import EVENTS, HELLO_S, FrameKind, FrameProtocol, RefusedFrame
from loomrl.serving.policy import ActRequest, Continuation, ServedPolicy
from loomrl.serving.refusal import Refusal, RefusalCause

log = redacted_logger(__name__)


class _Served(FrameProtocol):
    """A gateway's connection to a served policy."""

    def __init__(self, server: "ChannelServer") -> None:
        super().__init__()
        self._server = server
        self._policy = server.policy
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._known = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connections.add(self)
        asyncio.get_running_loop().call_later(HELLO_S, self._end_stranger)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.left.set()
        for task in list(self._calls.values()):
            task.cancel()

    @override
    def on_frame(self, kind: FrameKind, number: int, value: Any) -> None:
        if not self._known:
            self._meet(kind, value)
        elif kind is FrameKind.CANCEL:
            if (task := self._calls.get(number)) is not None:
                task.cancel()
        else:
            work = self._answer(number, value) if kind is FrameKind.ANSWER else self._act(number, value)
            task = asyncio.create_task(work)
            self._calls[number] = task
            self._server.tasks.add(task)
            task.add_done_callback(lambda done: self._over(number, done))

    def _meet(self, kind: FrameKind, token: Any) -> None:
        self._known = kind is FrameKind.HELLO and hmac.compare_digest(str(token).encode(), self._server.token.encode())
        self.announce()
        self._end_stranger()

    def announce(self) -> None:
        """Send the policy's description."""
        if self._known:
            self.send(FrameKind.ABOUT, 0, self._policy.about)

    def _end_stranger(self) -> None:
        if not self._known and self.transport is not None:
            self.transport.abort()

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        self._calls.pop(number, None)
        self._server.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A call failed.", exc_info=error)
            refused = RefusedFrame(RefusalCause.UNAVAILABLE, f"The policy failed: {type(error).__name__}: {error}")
            self.send(FrameKind.REFUSED, number, refused)

    async def _answer(self, number: int, continuation: Continuation) -> None:
        try:
            with ending(_span(continuation, self._policy)) as span:
                tokens = 0
                async for event in self._policy.answer(continuation):
                    self.send(EVENTS[type(event)], number, event)
                    tokens += len(event.ids_T) if isinstance(event, TokensDrawn) else 0
                span.set(gen_ai__usage__output_tokens=tokens)
        except Refusal as refusal:
            self._refuse(number, refusal)
            return
        self.send(FrameKind.OVER, number)

    async def _act(self, number: int, act: ActRequest) -> None:
        try:
            self.send(FrameKind.ACTED, number, await self._policy.act(act))
        except Refusal as refusal:
            self._refuse(number, refusal)

    def _refuse(self, number: int, refusal: Refusal) -> None:
        refused = RefusedFrame(refusal.cause, str(refusal), refusal.where, refusal.retry_after_s)
        self.send(FrameKind.REFUSED, number, refused)


class ChannelServer:
    """Serves a policy to gateways. Connections without the token are closed."""

    def __init__(self, policy: ServedPolicy, *, token: str) -> None:
        self.policy = policy
        self.token = token
        self.tasks: set[asyncio.Task[None]] = set()
        """Calls in progress."""
        self.connections: set[_Served] = set()
        self.left = asyncio.Event()
        """A connection has gone."""
        self._server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; the address as `host:port`."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Served(self), host, port)
        return f"{host}:{self._server.sockets[0].getsockname()[1]}"

    def announce(self) -> None:
        """Send the gateways the policy's new description."""
        for connection in self.connections:
            connection.announce()

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Take no more connections; calls that are not done within `grace_s` are ended."""
        if self._server is not None:
            self._server.close()
        if self.tasks and grace_s:
            await asyncio.wait(self.tasks, timeout=grace_s)
        for task in list(self.tasks):
            task.cancel()
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()
        while self.connections:
            self.left.clear()
            await self.left.wait()


def _span(continuation: Continuation, policy: ServedPolicy) -> Span:
    """The engine's part of a call that is traced."""
    if not continuation.traceparent:
        return NOTHING
    drawing = continuation.drawing
    version = policy.about.version
    return begin(
        "engine",
        below=continuation.traceparent,
        gen_ai__response__model=version,
        gen_ai__request__max_tokens=drawing.max_tokens,
        gen_ai__request__temperature=drawing.temperature,
    )
