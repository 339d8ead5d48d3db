"""The gateway's end of the channel: a policy that is somewhere else."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

from typing_extensions import override

from loomrl.serving.call import Event
from loomrl.serving.channel.batches import Together
from loomrl.serving.channel.frame import HELLO_S, FrameKind, FrameProtocol, end_when_silent
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation
from loomrl.serving.refusal import Refusal, RefusalCause


class _Linked(FrameProtocol):
    """The gateway's end of a connection: a queue for every open call."""

    def __init__(self) -> None:
        super().__init__()
        self.met: asyncio.Future[About] = asyncio.get_running_loop().create_future()
        self.about: About | None = None
        self.queues: dict[int, asyncio.Queue[Any]] = {}
        self.acts: dict[int, asyncio.Future[ActResult]] = {}
        self.lost = asyncio.Event()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        gone = Refusal(RefusalCause.UNAVAILABLE, "The policy's replica is gone.", retry_after_s=1.0)
        if not self.met.done():
            self.met.set_exception(gone)
            self.met.exception()  # or asyncio complains if no caller waits
        for queue in self.queues.values():
            queue.put_nowait(gone)
        for future in self.acts.values():
            if not future.done():
                future.set_exception(gone)

    @override
    def on_frame(self, kind: FrameKind, number: int, value: Any) -> None:
        if kind is FrameKind.ABOUT:
            self.about = value
            if not self.met.done():
                self.met.set_result(value)
            return
        if kind is FrameKind.REFUSED:
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


class ChannelLink:
    """A policy behind a channel. Lost connections fail their calls; `is_lost` tells when to drop the link."""

    def __init__(self, address: str, linked: _Linked) -> None:
        self.address = address
        self._linked = linked
        self._numbers = itertools.count(1)
        self._together = Together(self._act)

    @staticmethod
    async def open(address: str, *, token: str) -> "ChannelLink":
        """Connect; a Refusal UNAVAILABLE if the replica does not answer in time, or has another token."""
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(HELLO_S):
                transport, linked = await loop.create_connection(_Linked, host, int(port))
                end_when_silent(transport)
                linked.send(FrameKind.HELLO, 0, token)
                await linked.met
                return ChannelLink(address, linked)
        except (OSError, TimeoutError) as error:
            raise Refusal(RefusalCause.UNAVAILABLE, f"The replica at {address} does not answer: {error}.") from None

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
        number = next(self._numbers)
        queue = asyncio.Queue[Any]()
        self._check()
        self._linked.queues[number] = queue
        is_over = False
        try:
            self._linked.send(FrameKind.ANSWER, number, continuation)
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
                self._linked.send(FrameKind.CANCEL, number)

    async def act(self, act: ActRequest) -> ActResult:
        """The actions for a batch."""
        return await self._together.act(act)

    async def _act(self, act: ActRequest) -> ActResult:
        number = next(self._numbers)
        self._check()
        future: asyncio.Future[ActResult] = asyncio.get_running_loop().create_future()
        self._linked.acts[number] = future
        try:
            self._linked.send(FrameKind.ACT, number, act)
            return await future
        finally:
            del self._linked.acts[number]

    def _check(self) -> None:
        if self._linked.lost.is_set():
            raise Refusal(RefusalCause.UNAVAILABLE, "The policy's replica is gone.", retry_after_s=1.0)

    async def close(self) -> None:
        """Close the connection."""
        self._linked.flush()
        if self._linked.transport is not None:
            self._linked.transport.close()
        await self._linked.lost.wait()
