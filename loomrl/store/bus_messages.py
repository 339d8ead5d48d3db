"""The bus in LoomDB: messages by stream, and what each group of consumers was given and has not acknowledged.

A group's `next` is the position up to which it was given everything; `held` rows are given and open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Float,
    Index,
    Integer,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from loomrl.store.db import LoomDB
from loomrl.store.log import Log, Position, metadata

MOST_BYTES = 32 << 20
"""Most bytes in one delivery; a single message is delivered at any size."""
PAGE = 500
"""Ids in one query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A message on record."""

    stream: str
    subject: str
    id: str
    headers: Mapping[str, str]
    payload: bytes
    created_at: float


MESSAGES = Log(
    "bus_messages",
    StoredMessage,
    Index("bus_messages_by_stream", "stream", "position"),
    Index("bus_messages_by_subject", "subject", "position"),
    key=("id", "stream"),
)
bus_groups = Table(
    "bus_groups",
    metadata,
    Column("name", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("next", Position, nullable=False),
)
"""Groups of consumers, and the position up to which each was given everything."""

bus_held = Table(
    "bus_held",
    metadata,
    Column("name", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("position", Position, primary_key=True, autoincrement=False),
    Column("until", Float, nullable=False),
    Column("tries", Integer, nullable=False),
)
"""Messages that a group was given and has not acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A message with its position, and how often its group was given it."""

    position: int
    message: StoredMessage
    tries: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """A group of consumers of a subject, and the seconds that it holds what it was given."""

    group: str
    subject: str
    hold_s: float


def keep_messages(db: LoomDB, new: Sequence[StoredMessage]) -> list[bool]:
    """Store messages in one transaction, each once; True for each that is new."""
    with db.write() as connection:
        known = _find_known(connection, new)
        fresh: list[StoredMessage] = []
        is_new = []
        for message in new:
            key = (message.stream, message.id)
            is_new.append(key not in known)
            if key not in known:
                known.add(key)
                fresh.append(message)
        MESSAGES.insert(connection, fresh)
    return is_new


def prune_messages(db: LoomDB, stream: str, *, most: int, before: float) -> int:
    """Delete what is older than `before`, and the oldest of more than `most`; how many."""
    newest = select(MESSAGES.c.position).where(MESSAGES.c.stream == stream)
    beyond = newest.order_by(MESSAGES.c.position.desc()).offset(most).limit(1).scalar_subquery()
    over = or_(MESSAGES.c.position <= beyond, MESSAGES.c.created_at < before)
    with db.write() as connection:
        gone = connection.execute(delete(MESSAGES.table).where(MESSAGES.c.stream == stream, over)).rowcount
        if gone:
            is_there = select(MESSAGES.c.position).where(MESSAGES.c.position == bus_held.c.position).exists()
            connection.execute(delete(bus_held).where(~is_there))
    return gone


def begin_group(db: LoomDB, taker: Taker) -> None:
    """Have a group begin with the oldest message, unless it has begun already."""
    with db.write() as connection:
        if connection.execute(select(bus_groups.c.next).where(_is(taker))).first() is None:
            connection.execute(insert(bus_groups).values(name=taker.group, subject=taker.subject, next=0))


def is_something_for(db: LoomDB, taker: Taker, *, now: float) -> bool:
    """True if there is something to take. It takes no lock."""
    with db.read() as connection:
        due = select(bus_held.c.position).where(_of(taker), _is_due(taker, now)).limit(1)
        return connection.execute(due).first() is not None or bool(_find_unseen(connection, taker, 1))


def take_messages(db: LoomDB, taker: Taker, most: int, *, now: float) -> list[Given]:
    """Hand the next messages to a group: those whose holder is overdue, then new ones."""
    with db.write() as connection:
        due = select(bus_held.c.position, bus_held.c.tries).where(_of(taker), _is_due(taker, now))
        again = {row.position: row.tries + 1 for row in connection.execute(due.order_by("position").limit(most))}
        new = _find_unseen(connection, taker, most - len(again))
        until = now + taker.hold_s
        if again:
            rows = [{"at": at, "times": times, "hold_until": until} for at, times in again.items()]
            connection.execute(_HOLD_AGAIN, [row | {"of": taker.group, "about": taker.subject} for row in rows])
        if new:
            mine = {"name": taker.group, "subject": taker.subject, "until": until, "tries": 1}
            connection.execute(insert(bus_held), [mine | {"position": position} for position in new])
            connection.execute(update(bus_groups).where(_is(taker)).values(next=new[-1]))
        tries = again | dict.fromkeys(new, 1)
        query = MESSAGES.select().where(MESSAGES.c.position.in_(tries)).order_by(MESSAGES.c.position)
        found = MESSAGES.numbered(connection, query)
        return [Given(position=position, message=message, tries=tries[position]) for position, message in found]


def settle_messages(db: LoomDB, taker: Taker, positions: Sequence[int]) -> None:
    """Mark messages as done with by a group."""
    with db.write() as connection:
        connection.execute(_SETTLE, [{"at": at, "of": taker.group, "about": taker.subject} for at in positions])


def read_messages(db: LoomDB, stream: str, *, after: int, limit: int) -> list[Given]:
    """The next messages of a stream past a position."""
    found = MESSAGES.read(db, after=after, limit=limit, stream=stream)
    return [Given(position=position, message=message) for position, message in found]


def remove_by_id(connection: Connection, ids: Sequence[str]) -> int:
    """Delete messages by their ids, from any stream; how many."""
    where = MESSAGES.c.id.in_(ids)
    positions = list(connection.scalars(select(MESSAGES.c.position).where(where)))
    connection.execute(delete(bus_held).where(bus_held.c.position.in_(positions)))
    connection.execute(delete(MESSAGES.table).where(MESSAGES.c.position.in_(positions)))
    return len(positions)


def remove_messages(db: LoomDB, stream: str, positions: Sequence[int]) -> None:
    """Delete messages."""
    with db.write() as connection:
        is_it = (MESSAGES.c.stream == stream) & MESSAGES.c.position.in_(positions)
        connection.execute(delete(MESSAGES.table).where(is_it))
        connection.execute(delete(bus_held).where(bus_held.c.position.in_(positions)))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCount:
    """The messages of a stream."""

    stream: str
    messages: int
    bytes: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCount:
    """The messages of a group: not given yet, and given but open."""

    group: str
    subject: str
    waiting: int
    held: int


def count_messages(db: LoomDB) -> tuple[list[StreamCount], list[GroupCount]]:
    """The content of all streams, and the state of all groups."""
    size = func.coalesce(func.sum(func.length(MESSAGES.c.payload)), 0)
    last = func.max(MESSAGES.c.position)
    counts = (func.count().label("messages"), size.label("bytes"), last.label("last"))
    by_stream = select(MESSAGES.c.stream, *counts).group_by(MESSAGES.c.stream)
    with db.read() as connection:
        streams = [
            StreamCount(stream=r[0], messages=r[1], bytes=r[2], last=r[3]) for r in connection.execute(by_stream)
        ]
        groups = []
        for row in connection.execute(select(bus_groups).order_by("name", "subject")).all():
            new = (MESSAGES.c.subject == row.subject) & (MESSAGES.c.position > row.next)
            given = (bus_held.c.name == row.name) & (bus_held.c.subject == row.subject)
            waiting = connection.scalar(select(func.count()).select_from(MESSAGES.table).where(new)) or 0
            held = connection.scalar(select(func.count()).select_from(bus_held).where(given)) or 0
            groups.append(GroupCount(group=row.name, subject=row.subject, waiting=waiting, held=held))
    return streams, groups


def _find_known(connection: Connection, new: Sequence[StoredMessage]) -> set[tuple[str, str]]:
    """The stream and id of those that are stored already."""
    ids = sorted({message.id for message in new})
    known = set()
    for first in range(0, len(ids), PAGE):
        for row in connection.execute(_KNOWN, {"ids": ids[first : first + PAGE]}):
            known.add((row.stream, row.id))
    return known


def _find_unseen(connection: Connection, taker: Taker, most: int) -> list[int]:
    """Positions of the next messages that the group was not given yet."""
    seen = select(bus_groups.c.next).where(_is(taker)).scalar_subquery()
    size = func.length(MESSAGES.c.payload)
    query = select(MESSAGES.c.position, size).where(MESSAGES.c.subject == taker.subject)
    query = query.where(MESSAGES.c.position > func.coalesce(seen, 0)).order_by(MESSAGES.c.position)
    found: list[int] = []
    total = 0
    for position, length in connection.execute(query.limit(most)) if most > 0 else ():
        total += length
        if found and total > MOST_BYTES:
            break
        found.append(position)
    return found


def _is(taker: Taker) -> ColumnElement[bool]:
    return (bus_groups.c.name == taker.group) & (bus_groups.c.subject == taker.subject)


def _of(taker: Taker) -> ColumnElement[bool]:
    return (bus_held.c.name == taker.group) & (bus_held.c.subject == taker.subject)


def _is_due(taker: Taker, now: float) -> ColumnElement[bool]:
    """Overdue; or held for longer than anybody may, after the clock went back."""
    return or_(bus_held.c.until <= now, bus_held.c.until > now + 2 * taker.hold_s)


_KNOWN = select(MESSAGES.c.stream, MESSAGES.c.id).where(MESSAGES.c.id.in_(bindparam("ids", expanding=True)))
_MINE = (
    bus_held.c.name == bindparam("of"),
    bus_held.c.subject == bindparam("about"),
    bus_held.c.position == bindparam("at"),
)
_HOLD_AGAIN = update(bus_held).where(*_MINE).values(until=bindparam("hold_until"), tries=bindparam("times"))
_SETTLE = delete(bus_held).where(*_MINE)
