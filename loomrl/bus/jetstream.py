"""The bus on NATS JetStream. The connection lives in a thread with an event loop; callers are any threads."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, RetentionPolicy, StorageType, StreamConfig
from typing_extensions import override

from loomrl.bus.bus import (
    HOLD_S,
    STREAMS,
    Bus,
    Consumer,
    Delivery,
    Message,
    Stream,
    StreamStats,
    Subscription,
    stream_of,
)
from loomrl.bus.link import ACK_S, ID, BrokerLink, NotThere, Pulling, open_link, place_of
from loomrl.errors import BusAway, BusError

T = TypeVar("T")
CONNECT_S = 3.0
PULL_BYTES = 32 << 20
"""Most bytes of one fetch."""
MOST_UNACKED = 10_000
DAY_S = 86_400.0
REMOVED_AT_ONCE = 64
"""Deletions that the broker is asked for side by side."""
AT_ONCE: dict[str, int | bool] = {"no_wait": True, "max_bytes": PULL_BYTES}
DUPLICATES_S = 120.0
"""The broker forgets ids after this; consumers have to remember them."""


class JetStreamBus(Bus):
    """The bus of a broker. Streams that are missing are made; those that are there stay as they are."""

    def __init__(self, url: str, *, connect_s: float = CONNECT_S) -> None:
        self.place = place_of(url)
        self._url = url
        self._connect_s = connect_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bus", daemon=True)
        self._thread.start()
        self._linking: asyncio.Lock | None = None
        self._link: BrokerLink | None = None
        self._answers: dict[str, Callable[[bytes], bytes]] = {}

    @override
    def publish(self, messages: Sequence[Message]) -> list[bool]:
        streams = {stream_of(message.subject).name: stream_of(message.subject) for message in messages}

        async def publish() -> list[bool]:
            link = await self._connect()
            try:
                return await link.publish(messages)
            except NotThere:
                for stream in streams.values():
                    await _make_stream(link, stream)
                return await link.publish(messages)

        return self._do(publish()) if messages else []

    @override
    def make_streams(self) -> None:
        async def make() -> None:
            link = await self._connect()
            for stream in STREAMS:
                await _make_stream(link, stream)

        self._do(make())

    @override
    def subscribe(self, subject: str, *, group: str, hold_s: float = HOLD_S) -> Subscription:
        stream = stream_of(subject)
        name = f"{group}-{subject}".replace(".", "_")
        config = ConsumerConfig(
            durable_name=name,
            filter_subject=None if stream.subjects == (subject,) else subject,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=hold_s,
            max_ack_pending=MOST_UNACKED,
        )
        return _JetStreamSubscription(self, stream, config)

    @override
    def browse(self, stream: str, *, after: int = 0, most: int = 100) -> list[Delivery]:
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=60.0,
        )

        return self._do(self._browse(stream, config, most))

    @override
    def remove(self, stream: str, *positions: int) -> None:
        async def remove() -> None:
            link = await self._connect()
            for first in range(0, len(positions), REMOVED_AT_ONCE):
                some = positions[first : first + REMOVED_AT_ONCE]
                await asyncio.gather(*(_remove(link, stream, position) for position in some))

        self._do(remove())

    @override
    def answer(self, subject: str, reply: Callable[[bytes], bytes]) -> bool:
        async def answer() -> None:
            link = await self._connect()
            if self._answers.setdefault(subject, reply) is reply:
                await link.answer(subject, reply)

        self._do(answer())
        return True

    @override
    def stats(self) -> list[StreamStats]:
        return self._do(self._stats())

    @override
    def close(self) -> None:
        if self._thread.is_alive():
            self._do(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _close(self) -> None:
        if self._link is not None:
            await self._link.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _connect(self) -> BrokerLink:
        """The connection, made now if there is none."""
        self._linking = self._linking or asyncio.Lock()
        async with self._linking:
            if self._link is None or self._link.is_closed:
                self._link = await open_link(self._url, self._connect_s)
                for subject, reply in self._answers.items():
                    await self._link.answer(subject, reply)
            return self._link

    async def _browse(self, stream: str, config: ConsumerConfig, most: int) -> list[Delivery]:
        link = await self._connect()
        try:
            making = link.jetstream.add_consumer(stream, config)
            made = await link.ask(making, *_about("CONSUMER.CREATE", stream))
        except NotThere:
            return []
        pulling = await link.pulling(stream, made.name)
        try:
            return [_delivery(message) for message in await link.pull(pulling, {"batch": most, **AT_ONCE}, ACK_S)]
        finally:
            await pulling.end()
            ending = link.jetstream.delete_consumer(stream, made.name)
            await link.ask(ending, *_about("CONSUMER.DELETE", stream, made.name))

    async def _stats(self) -> list[StreamStats]:
        link = await self._connect()
        found = []
        for stream in STREAMS:
            try:
                info = await link.ask(link.jetstream.stream_info(stream.name), *_about("STREAM.INFO", stream.name))
            except NotThere:
                continue
            state = info.state
            consumers: tuple[Consumer, ...] = ()
            if state.consumer_count:
                listed = await link.ask(
                    link.jetstream.consumers_info(stream.name), *_about("CONSUMER.LIST", stream.name)
                )
                consumers = tuple(
                    Consumer(name=one.name, waiting=one.num_pending or 0, unacked=one.num_ack_pending or 0)
                    for one in listed
                )
            stats = StreamStats(
                name=stream.name,
                messages=state.messages,
                bytes=state.bytes,
                last=state.last_seq,
                consumers=consumers,
            )
            found.append(stats)
        return found

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of something in the loop."""
        if not self._thread.is_alive() or self._loop.is_closed():
            work.close()
            raise BusError("This bus is closed. Open it again: open_bus(url).")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _JetStreamSubscription(Subscription):
    """A durable consumer that is pulled from. Made, with its stream, when it is first asked."""

    def __init__(self, bus: JetStreamBus, stream: Stream, config: ConsumerConfig) -> None:
        self._bus = bus
        self._stream = stream
        self._config = config
        self._pulling: Pulling | None = None
        self._bus._do(self._ready())

    @override
    def fetch(self, most: int, *, wait_s: float) -> list[Delivery]:
        return self._bus._do(self._fetch(most, wait_s))

    @override
    def ack(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            self._bus._do(self._ack([delivery.receipt for delivery in deliveries]))

    @override
    def close(self) -> None:
        if self._pulling is not None:
            self._bus._do(self._pulling.end())
            self._pulling = None

    async def _fetch(self, most: int, wait_s: float) -> list[Delivery]:
        pulling = await self._ready()
        link = pulling.link
        try:
            found = await link.pull(pulling, {"batch": most, **AT_ONCE}, ACK_S)
            if not found and wait_s > 0:
                first: dict[str, int | bool] = {"batch": 1, "expires": int(wait_s * 1e9), "max_bytes": PULL_BYTES}
                found = await link.pull(pulling, first, wait_s + ACK_S)
                if found and most > 1:
                    found += await link.pull(pulling, {"batch": most - 1, **AT_ONCE}, ACK_S)
        except NotThere:  # it was deleted on the broker
            self._pulling = None
            raise BusAway(f"{self._stream.name}: its consumer was deleted; it is made again.") from None
        return [_delivery(message) for message in found]

    async def _ack(self, receipts: Sequence[str]) -> None:
        link = await self._bus._connect()
        await link.tell(receipts)

    async def _ready(self) -> Pulling:
        link = await self._bus._connect()
        if self._pulling is None or self._pulling.link is not link:
            await _make_stream(link, self._stream)
            await _make_consumer(link, self._stream, self._config)
            self._pulling = await link.pulling(self._stream.name, self._config.durable_name or "")
        return self._pulling


async def _remove(link: BrokerLink, stream: str, position: int) -> None:
    """Delete a message; the broker overwrites it in its file."""
    try:
        await link.ask(link.jetstream.delete_msg(stream, position), *_about("STREAM.MSG.DELETE", stream))
    except BusError as error:
        if "no message found" not in str(error):
            raise


async def _make_stream(link: BrokerLink, stream: Stream) -> None:
    """Make a stream unless there is one."""
    try:
        await link.ask(link.jetstream.stream_info(stream.name), *_about("STREAM.INFO", stream.name))
    except NotThere:
        config = StreamConfig(
            name=stream.name,
            subjects=list(stream.subjects),
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            max_age=stream.days * DAY_S,
            max_msgs=stream.most,
            duplicate_window=DUPLICATES_S,
        )
        await link.ask(link.jetstream.add_stream(config), *_about("STREAM.CREATE", stream.name))


async def _make_consumer(link: BrokerLink, stream: Stream, config: ConsumerConfig) -> None:
    """Make a durable consumer unless there is one."""
    name = config.durable_name or ""
    try:
        await link.ask(link.jetstream.consumer_info(stream.name, name), *_about("CONSUMER.INFO", stream.name, name))
    except NotThere:
        await link.ask(link.jetstream.add_consumer(stream.name, config), *_names(stream.name, name))


def _about(what: str, *names: str) -> tuple[str, ...]:
    return (".".join(["$JS.API", what, *names]),)


def _names(stream: str, consumer: str) -> tuple[str, ...]:
    """The subjects that may make a consumer, by the versions of the protocol."""
    return (f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{consumer}", f"$JS.API.CONSUMER.CREATE.{stream}.{consumer}")


def _delivery(message: Any) -> Delivery:
    headers = dict(message.headers or {})
    meta = message.metadata
    return Delivery(
        subject=message.subject,
        id=headers.pop(ID, ""),
        payload=message.data,
        headers=headers,
        position=meta.sequence.stream,
        tries=meta.num_delivered or 1,
        receipt=message.reply,
    )
