"""Later judgements of trajectories: stored once, never edited, read from a cursor."""

from collections.abc import Sequence

from sqlalchemy import Connection, Select, func, select

from loomrl.errors import StoreError, unknown
from loomrl.store.db import LoomDB
from loomrl.store.events import Event, record
from loomrl.store.rows import Row, columns_of, from_json, insert_once, to_json
from loomrl.store.tables import feedback
from loomrl.types import Feedback

SOURCES = ("human", "caller", "implicit")
SAID = ("thumb", "stars", "correction", "choice", "abandoned", "comment", "outcome")
"""Kinds that somebody gives."""
DERIVED = ("asked_again", "corrected", "left")
"""Kinds that are derived from a session."""
KINDS = (*SAID, *DERIVED)


def append_feedback(db: LoomDB, new: Sequence[Feedback]) -> int:
    """Store feedback, all or none, and return how many were new; each is an event `feedback.given`.

    The same id with other content is an `IdTaken`; another time is no other content, and the first one holds.
    """
    for one in new:
        _check(one)
    with db.write() as connection:
        return sum(_store(connection, one) for one in new)


def read_feedback(
    db: LoomDB, *, after: int = 0, limit: int = 1000, trajectory: str | None = None
) -> list[tuple[int, Feedback]]:
    """The next feedback past a position, oldest first. Continue reading from the last one's position."""
    query = select(feedback).where(feedback.c.position > after).order_by(feedback.c.position).limit(limit)
    if trajectory is not None:
        query = query.where(feedback.c.trajectory == trajectory)
    return _read(db, query)


def feedback_of(db: LoomDB, trajectories: Sequence[str]) -> list[Feedback]:
    """All feedback of these trajectories, oldest first."""
    query = select(feedback).where(feedback.c.trajectory.in_(trajectories)).order_by(feedback.c.position)
    return [one for _, one in _read(db, query)]


def recent_feedback(
    db: LoomDB, *, before: int | None = None, limit: int, trajectory: str | None = None
) -> list[tuple[int, Feedback]]:
    """The next feedback older than a position, newest first."""
    query = select(feedback).order_by(feedback.c.position.desc()).limit(limit)
    if trajectory is not None:
        query = query.where(feedback.c.trajectory == trajectory)
    return _read(db, query if before is None else query.where(feedback.c.position < before))


def last_feedback(db: LoomDB) -> int:
    """The newest position; 0 without any."""
    with db.read() as connection:
        return int(connection.scalar(select(func.max(feedback.c.position))) or 0)


def _read(db: LoomDB, query: Select[tuple[object, ...]]) -> list[tuple[int, Feedback]]:
    with db.read() as connection:
        return [_feedback_of(row) for row in connection.execute(query).mappings()]


def _feedback_of(row: Row) -> tuple[int, Feedback]:
    columns = dict(row) | {"data": from_json(row["data"])}
    return columns.pop("position"), Feedback(**columns)


def _store(connection: Connection, one: Feedback) -> bool:
    row = columns_of(one) | {"data": to_json(dict(one.data), what=f"feedback {one.id!r}: data")}
    if not insert_once(connection, feedback, row, changing=("created_at",)):
        return False
    told = {"id": one.id, "call": one.call, "source": one.source, "kind": one.kind, "value": one.value}
    record(connection, Event(kind="feedback.given", subject=one.trajectory, data=told, created_at=one.created_at))
    return True


def _check(one: Feedback) -> None:
    if not 0 <= one.value <= 1:
        raise StoreError(f"feedback {one.id!r}: value={one.value} must be within 0..1.")
    if one.source not in SOURCES:
        raise StoreError(f"feedback {one.id!r}: " + unknown("source", one.source, SOURCES))
    if one.kind not in KINDS:
        raise StoreError(f"feedback {one.id!r}: " + unknown("kind", one.kind, KINDS))
