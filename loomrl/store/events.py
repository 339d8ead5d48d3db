"""The event log in commit order. Append-only, enforced by the database itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, func, insert, select

from loomrl.store.db import LoomDB
from loomrl.store.rows import from_json, to_json
from loomrl.store.tables import events


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event: `kind` is a dotted verb (`run.started`), `subject` the id of its object."""

    kind: str
    subject: str
    data: Mapping[str, Any] = field(default_factory=dict)
    created_at: float


def append_events(db: LoomDB, new: Sequence[Event]) -> list[int]:
    """Store events, all or none, and return their positions."""
    with db.write() as connection:
        return [record(connection, event) for event in new]


def append_once(db: LoomDB, event: Event) -> bool:
    """Store an event unless there is one of its kind about its subject."""
    same = select(events.c.position).where(events.c.kind == event.kind, events.c.subject == event.subject).limit(1)
    with db.write() as connection:
        if connection.execute(same).first() is not None:
            return False
        record(connection, event)
    return True


def record(connection: Connection, event: Event) -> int:
    """Store an event in the transaction of its subject, so that neither exists without the other."""
    data = to_json(event.data, what=f"event {event.kind!r}")
    row = {"kind": event.kind, "subject": event.subject, "data": data, "created_at": event.created_at}
    position: int = connection.execute(insert(events).values(**row).returning(events.c.position)).scalar_one()
    return position


def record_all(connection: Connection, new: Sequence[Event]) -> None:
    """Store events in the transaction of their subjects, in this order and in one statement."""
    if new:
        rows = [
            {
                "kind": event.kind,
                "subject": event.subject,
                "data": to_json(event.data, what=f"event {event.kind!r}"),
                "created_at": event.created_at,
            }
            for event in new
        ]
        connection.execute(insert(events), rows)


def read_events(
    db: LoomDB, *, after: int = 0, limit: int = 1000, kind: str | None = None, subject: str | None = None
) -> list[tuple[int, Event]]:
    """The next events past a position, oldest first. Continue reading from the last one's position."""
    query = select(events).where(events.c.position > after).order_by(events.c.position).limit(limit)
    if kind is not None:
        query = query.where(events.c.kind == kind)
    if subject is not None:
        query = query.where(events.c.subject == subject)
    with db.read() as connection:
        return [(row.position, event_of(row)) for row in connection.execute(query)]


def recent_events(
    db: LoomDB, *, before: int | None = None, limit: int = 50, kind: str | None = None, subject: str | None = None
) -> list[tuple[int, Event]]:
    """The next events older than a position, newest first. A kind such as `run` stands for all that begin with it."""
    query = select(events).order_by(events.c.position.desc()).limit(limit)
    if before is not None:
        query = query.where(events.c.position < before)
    if kind is not None:
        query = query.where(events.c.kind == kind if "." in kind else events.c.kind.between(f"{kind}.", f"{kind}/"))
    if subject is not None:
        query = query.where(events.c.subject == subject)
    with db.read() as connection:
        return [(row.position, event_of(row)) for row in connection.execute(query)]


def kinds_of_events(db: LoomDB) -> list[str]:
    """The kinds on record, found one by one along their index."""
    found: list[str] = []
    with db.read() as connection:
        after = connection.scalar(select(func.min(events.c.kind)))
        while after is not None and len(found) < 200:
            found.append(after)
            after = connection.scalar(select(func.min(events.c.kind)).where(events.c.kind > after))
    return found


def last_event(db: LoomDB, *, kind: str | None = None, subject: str | None = None) -> int:
    """The newest position, of a kind and about a subject; 0 without any."""
    query = select(func.max(events.c.position))
    if kind is not None:
        query = query.where(events.c.kind == kind)
    if subject is not None:
        query = query.where(events.c.subject == subject)
    with db.read() as connection:
        return int(connection.scalar(query) or 0)


def event_of(row: Any) -> Event:
    """The event in a row."""
    return Event(kind=row.kind, subject=row.subject, data=from_json(row.data), created_at=row.created_at)
