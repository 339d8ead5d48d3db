"""The bus in LoomDB: nothing else has to run, and nothing is lost at a restart."""

import threading
import time
import uuid
from collections.abc import Callable, Sequence

from typing_extensions import override

from loomrl.bus.bus import HOLD_S, STREAMS, Bus, Consumer, Delivery, Message, StreamStats, Subscription, stream_of
from loomrl.errors import BusError, TooLarge, unknown
from loomrl.store import LoomDB
from loomrl.store.bus_messages import (
    Given,
    StoredMessage,
    Taker,
    begin_group,
    count_messages,
    is_something_for,
    keep_messages,
    prune_messages,
    read_messages,
    remove_messages,
    settle_messages,
    take_messages,
)

LOOK_S = 0.05
"""Time between two looks for messages of other processes."""
TOGETHER = 1000
"""Messages in one transaction."""
PRUNE_EVERY = 1000
"""Messages between two prunings of their stream."""
MAX_BYTES = 1 << 20
"""Longest message, as on NATS."""
DAY_S = 86_400.0


class StoredBus(Bus):
    """The bus in one LoomDB. Closing it closes the database."""

    def __init__(self, db: LoomDB, *, clock: Callable[[], float] = time.time) -> None:
        self.place = db.location
        self._db = db
        self._clock = clock
        self._came = threading.Condition()
        self._published: dict[str, int] = {}

    @override
    def publish(self, messages: Sequence[Message]) -> list[bool]:
        now = self._clock()
        rows = [_row_of(message, now) for message in messages]
        if not rows:
            return []
        is_new: list[bool] = []
        for first in range(0, len(rows), TOGETHER):
            is_new += keep_messages(self._db, rows[first : first + TOGETHER])
        for row in rows:
            self._published[row.stream] = self._published.get(row.stream, 0) + 1
        for stream in STREAMS:
            if self._published.get(stream.name, 0) >= (PRUNE_EVERY if stream.days >= 1 else 1):
                self._published[stream.name] = 0
                prune_messages(self._db, stream.name, most=stream.most, before=now - stream.days * DAY_S)
        with self._came:
            self._came.notify_all()
        return is_new

    @override
    def subscribe(self, subject: str, *, group: str, hold_s: float = HOLD_S) -> Subscription:
        stream_of(subject)
        taker = Taker(group=group, subject=subject, hold_s=hold_s)
        begin_group(self._db, taker)
        return _StoredSubscription(self._db, taker, self._came, self._clock)

    @override
    def browse(self, stream: str, *, after: int = 0, most: int = 100) -> list[Delivery]:
        _check_stream(stream)
        return [_delivery(given) for given in read_messages(self._db, stream, after=after, limit=most)]

    @override
    def remove(self, stream: str, *positions: int) -> None:
        _check_stream(stream)
        remove_messages(self._db, stream, positions)

    @override
    def stats(self) -> list[StreamStats]:
        streams, groups = count_messages(self._db)
        consumers: dict[str, list[Consumer]] = {}
        for group in groups:
            consumer = Consumer(name=group.group, waiting=group.waiting, unacked=group.held)
            consumers.setdefault(stream_of(group.subject).name, []).append(consumer)
        return [
            StreamStats(
                name=one.stream,
                messages=one.messages,
                bytes=one.bytes,
                last=one.last,
                consumers=tuple(consumers.get(one.stream, ())),
            )
            for one in streams
        ]

    @override
    def close(self) -> None:
        self._db.close()


class _StoredSubscription(Subscription):
    def __init__(self, db: LoomDB, taker: Taker, came: threading.Condition, clock: Callable[[], float]) -> None:
        self._db = db
        self._taker = taker
        self._came = came
        self._clock = clock

    @override
    def fetch(self, most: int, *, wait_s: float) -> list[Delivery]:
        deadline = time.monotonic() + wait_s
        while not is_something_for(self._db, self._taker, now=self._clock()):
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            with self._came:
                self._came.wait(min(left, LOOK_S))
        return [_delivery(given) for given in take_messages(self._db, self._taker, most, now=self._clock())]

    @override
    def ack(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            settle_messages(self._db, self._taker, [delivery.position for delivery in deliveries])

    @override
    def close(self) -> None:
        """Unacknowledged messages go to others when their time is up."""


def _row_of(message: Message, now: float) -> StoredMessage:
    if len(message.payload) > MAX_BYTES:
        raise TooLarge(
            f"{message.subject} {message.id!r}: {len(message.payload)} bytes, and a message has at most {MAX_BYTES}.",
            id=message.id,
        )
    return StoredMessage(
        stream=stream_of(message.subject).name,
        subject=message.subject,
        id=message.id or uuid.uuid4().hex,
        headers=message.headers,
        payload=message.payload,
        created_at=now,
    )


def _delivery(given: Given) -> Delivery:
    message = given.message
    return Delivery(
        subject=message.subject,
        id=message.id,
        payload=message.payload,
        headers=message.headers,
        position=given.position,
        tries=given.tries,
    )


def _check_stream(name: str) -> None:
    known = [stream.name for stream in STREAMS]
    if name not in known:
        raise BusError(unknown("stream", name, known))
