"""A policy on a socket: the replica's server, and the gateways' link to it.

A frame is its length, its kind, the number of the call, and MessagePack. Any number of calls share a connection.
"""

import asyncio
import hmac
import itertools
import logging
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

import msgspec
import numpy as np
from typing_extensions import override

from loomrl.serving.answer import Closed, Drawn, Event, Opened
from loomrl.serving.batches import Together
from loomrl.serving.policy import About, Act, Acted, Continuation, ServedPolicy
from loomrl.serving.refusal import Cause, Refusal

log = logging.getLogger(__name__)
HEAD = struct.Struct("<IBI")
MAX_FRAME = 256 << 20
HELLO_S = 10.0
"""Time for the first frames of a connection."""
_ARRAY = 1


class Kind(IntEnum):
    """The kind of a frame."""

    HELLO = 0
    ABOUT = 1
    ANSWER = 2
    ACT = 3
    CANCEL = 4
    OPENED = 5
    DRAWN = 6
    CLOSED = 7
    OVER = 8
    ACTED = 9
    REFUSED = 10


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal as a frame."""

    cause: Cause
    message: str
    where: str = ""
    retry_after_s: float | None = None


def _convert(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        head = struct.pack(f"<2sB{value.ndim}I", value.dtype.str[1:].encode(), value.ndim, *value.shape)
        return msgspec.msgpack.Ext(_ARRAY, head + value.tobytes())
    raise TypeError(f"{type(value).__name__} cannot be sent")


def _restore(code: int, data: memoryview) -> Any:
    if code != _ARRAY:
        raise ValueError(f"extension {code} is unknown")
    kind, axes = struct.unpack_from("<2sB", data)
    shape = struct.unpack_from(f"<{axes}I", data, 3)
    return np.frombuffer(data, np.dtype(f"<{kind.decode()}"), offset=3 + 4 * axes).reshape(shape).copy()


def _checked(kind: Any, value: Any) -> Any:
    dtype = kind.__args__[1].__args__[0]
    if not isinstance(value, np.ndarray) or value.dtype != dtype:
        raise ValueError(f"an array of {np.dtype(dtype)} is needed")
    return value


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_convert)
_DECODERS = {
    kind: msgspec.msgpack.Decoder(form, ext_hook=_restore, dec_hook=_checked)
    for kind, form in {
        Kind.HELLO: str,
        Kind.ABOUT: About,
        Kind.ANSWER: Continuation,
        Kind.ACT: Act,
        Kind.CANCEL: None,
        Kind.OPENED: Opened,
        Kind.DRAWN: Drawn,
        Kind.CLOSED: Closed,
        Kind.OVER: None,
        Kind.ACTED: Acted,
        Kind.REFUSED: Refused,
    }.items()
}
_EVENTS: dict[type, Kind] = {Opened: Kind.OPENED, Drawn: Kind.DRAWN, Closed: Kind.CLOSED}


class _Frames(asyncio.Protocol):
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.transport: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one without saying so
        self.transport.set_write_buffer_limits(high=8 << 20)

    @override
    def data_received(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= HEAD.size:
                length, kind, number = HEAD.unpack_from(self._buffer, start)
                if length > MAX_FRAME:
                    raise ValueError(f"a frame of {length} bytes")
                end = start + HEAD.size + length
                if len(self._buffer) < end:
                    break
                body = bytes(memoryview(self._buffer)[start + HEAD.size : end])
                start = end
                self.received(Kind(kind), number, _DECODERS[Kind(kind)].decode(body))
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("A connection of the channel was closed: %s", error)
            if self.transport is not None:
                self.transport.abort()
            return
        del self._buffer[:start]

    def send(self, kind: Kind, number: int, value: Any = None) -> None:
        """Write one frame; does nothing on a lost connection."""
        if self.transport is None or self.transport.is_closing():
            return
        body = _ENCODER.encode(value)
        self.transport.write(HEAD.pack(len(body), kind, number) + body)

    def received(self, kind: Kind, number: int, value: Any) -> None:
        """Take a frame."""
        raise NotImplementedError


# -- the replica ----------------------------------------------------------------------------------------------------


class _Served(_Frames):
    """A gateway's connection to a served policy."""

    def __init__(self, server: "ChannelServer") -> None:
        super().__init__()
        self._server, self._policy = server, server.policy
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
    def received(self, kind: Kind, number: int, value: Any) -> None:
        if not self._known:
            self._meet(kind, value)
        elif kind is Kind.CANCEL:
            if (task := self._calls.get(number)) is not None:
                task.cancel()
        else:
            work = self._answer(number, value) if kind is Kind.ANSWER else self._act(number, value)
            task = asyncio.create_task(work)
            self._calls[number] = task
            self._server.tasks.add(task)
            task.add_done_callback(lambda done: self._over(number, done))

    def _meet(self, kind: Kind, token: Any) -> None:
        self._known = kind is Kind.HELLO and hmac.compare_digest(str(token).encode(), self._server.token.encode())
        self.announce()
        self._end_stranger()

    def announce(self) -> None:
        """Send the policy's description."""
        if self._known:
            self.send(Kind.ABOUT, 0, self._policy.about)

    def _end_stranger(self) -> None:
        if not self._known and self.transport is not None:
            self.transport.abort()

    def _over(self, number: int, task: asyncio.Task[None]) -> None:
        self._calls.pop(number, None)
        self._server.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("A call failed.", exc_info=error)
            refused = Refused(Cause.UNAVAILABLE, f"The policy failed: {type(error).__name__}: {error}")
            self.send(Kind.REFUSED, number, refused)

    async def _answer(self, number: int, continuation: Continuation) -> None:
        try:
            async for event in self._policy.answer(continuation):
                self.send(_EVENTS[type(event)], number, event)
        except Refusal as refusal:
            self._refuse(number, refusal)
            return
        self.send(Kind.OVER, number)

    async def _act(self, number: int, act: Act) -> None:
        try:
            self.send(Kind.ACTED, number, await self._policy.act(act))
        except Refusal as refusal:
            self._refuse(number, refusal)

    def _refuse(self, number: int, refusal: Refusal) -> None:
        refused = Refused(refusal.cause, str(refusal), refusal.where, refusal.retry_after_s)
        self.send(Kind.REFUSED, number, refused)


class ChannelServer:
    """Serves a policy to gateways. Connections without the token are closed."""

    def __init__(self, policy: ServedPolicy, *, token: str) -> None:
        self.policy, self.token = policy, token
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


# -- the gateway ----------------------------------------------------------------------------------------------------


class _Linked(_Frames):
    """The gateway's end of a connection: a queue for every open call."""

    def __init__(self) -> None:
        super().__init__()
        self.met: asyncio.Future[About] = asyncio.get_running_loop().create_future()
        self.about: About | None = None
        self.queues: dict[int, asyncio.Queue[Any]] = {}
        self.acts: dict[int, asyncio.Future[Acted]] = {}
        self.lost = asyncio.Event()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        gone = Refusal(Cause.UNAVAILABLE, "The policy's replica is gone.", retry_after_s=1.0)
        if not self.met.done():
            self.met.set_exception(gone)
            self.met.exception()  # nobody may be waiting any more
        for queue in self.queues.values():
            queue.put_nowait(gone)
        for future in self.acts.values():
            if not future.done():
                future.set_exception(gone)

    @override
    def received(self, kind: Kind, number: int, value: Any) -> None:
        if kind is Kind.ABOUT:
            self.about = value
            if not self.met.done():
                self.met.set_result(value)
            return
        if kind is Kind.REFUSED:
            value = Refusal(value.cause, value.message, where=value.where, retry_after_s=value.retry_after_s)
        if (future := self.acts.get(number)) is not None:
            if future.done():
                return
            if isinstance(value, Refusal):
                future.set_exception(value)
            else:
                future.set_result(value)
        elif (queue := self.queues.get(number)) is not None:
            queue.put_nowait(value)


class Link:
    """A policy behind a channel. Lost connections fail their calls; `is_lost` tells when to drop the link."""

    def __init__(self, address: str, linked: _Linked) -> None:
        self.address, self._linked = address, linked
        self._numbers = itertools.count(1)
        self._together = Together(self._act)

    @staticmethod
    async def open(address: str, *, token: str) -> "Link":
        """Connect; a Refusal UNAVAILABLE if nobody answers in time, or knows another token."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(HELLO_S):
                _, linked = await loop.create_connection(_Linked, host, int(port))
                linked.send(Kind.HELLO, 0, token)
                await linked.met
                return Link(address, linked)
        except (OSError, TimeoutError) as error:
            raise Refusal(Cause.UNAVAILABLE, f"The replica at {address} does not answer: {error}.") from None

    @property
    def about(self) -> About:
        """The policy's description, as of now."""
        assert self._linked.about is not None, "a link is open once it is met"
        return self._linked.about

    @property
    def is_lost(self) -> bool:
        """The connection is gone for good."""
        return self._linked.lost.is_set()

    @property
    def busy(self) -> int:
        """Calls in progress."""
        return len(self._linked.queues) + len(self._linked.acts)

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """The events of a call."""
        number, queue = next(self._numbers), asyncio.Queue[Any]()
        self._check()
        self._linked.queues[number] = queue
        is_over = False
        try:
            self._linked.send(Kind.ANSWER, number, continuation)
            while not is_over:
                event = await queue.get()
                is_over = event is None or isinstance(event, Refusal)
                if isinstance(event, Refusal):
                    raise event
                if event is not None:
                    yield event
        finally:
            del self._linked.queues[number]
            if not is_over:
                self._linked.send(Kind.CANCEL, number)

    async def act(self, act: Act) -> Acted:
        """The actions for a batch."""
        return await self._together.act(act)

    async def _act(self, act: Act) -> Acted:
        number = next(self._numbers)
        self._check()
        future: asyncio.Future[Acted] = asyncio.get_running_loop().create_future()
        self._linked.acts[number] = future
        try:
            self._linked.send(Kind.ACT, number, act)
            return await future
        finally:
            del self._linked.acts[number]

    def _check(self) -> None:
        if self._linked.lost.is_set():
            raise Refusal(Cause.UNAVAILABLE, "The policy's replica is gone.", retry_after_s=1.0)

    async def close(self) -> None:
        """Close the connection."""
        if self._linked.transport is not None:
            self._linked.transport.close()
        await self._linked.lost.wait()
