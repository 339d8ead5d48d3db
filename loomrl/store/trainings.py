"""Trainings that a coordinator follows: a log of rows for each; the one with the highest number holds.

A row and its events are one transaction, and only a writer that has seen the newest row may write the next: any number
of coordinators may run, and any may die at any instant. An endpoint has one training at a time that has begun.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Index

from loomrl.errors import IdTaken, StoreError
from loomrl.store.db import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.log import Log, Source

QUEUED = "queued"
"""The state of a training that has not begun."""
ENDS = ("done", "back", "refused", "failed", "cancelled")
"""States in which a training is over."""
MOST_QUEUED = 100
MOST_OVER = 100
"""Trainings of an endpoint that are over and still read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One row of a training's log."""

    id: str
    """A UUID."""
    number: int
    """From 1."""
    endpoint: str
    state: str
    run: str
    """The run that it is; empty before it has begun."""
    content: Mapping[str, Any] = field(default_factory=dict)
    created_at: float


TRAININGS = Log(
    "trainings",
    TrainingRow,
    Index("trainings_by_endpoint", "endpoint", "position"),
    Index("trainings_by_run", "run"),
    key=("id", "number"),
)
Beside = Callable[[Connection], object]
"""Writes further rows in the transaction of a training's row."""


def ask(db: LoomDB, first: TrainingRow, told: Sequence[Event], *, seen: int | None = None) -> bool:
    """Store the first row of a training, which is queued; False if the endpoint's log has grown past `seen`.

    The same training again is no error; its id with other content is IdTaken.
    """
    with db.write() as connection:
        if seen is not None and TRAININGS.last(connection, endpoint=first.endpoint) != seen:
            return False
        return _ask(connection, first, told)


def advance(
    db: LoomDB,
    row: TrainingRow,
    told: Sequence[Event],
    *,
    then: tuple[TrainingRow, Sequence[Event]] | None = None,
    beside: Beside | None = None,
) -> bool:
    """Store the next row of a training, and the first one of the training that follows it.

    False, and nothing is stored, if the training has moved on, or would begin beside another one of its endpoint.
    """
    with db.write() as connection:
        newest = TRAININGS.newest(connection, id=row.id)
        if newest is None or newest.number != row.number - 1:
            return False
        others = {each.id for each in _newest(connection, row.endpoint) if _has_begun(each)} - {row.id}
        if others and _has_begun(row):
            return False
        _insert(connection, row, told)
        if then is not None:
            _ask(connection, *then)
        if beside is not None:
            beside(connection)
    return True


def show_log(db: LoomDB, id: str) -> list[TrainingRow]:
    """The rows of a training, oldest first; a StoreError names the nearest id."""
    TRAININGS.require(db, id)
    return TRAININGS.fetch(db, TRAININGS.select(id=id).order_by(TRAININGS.c.number))


def list_trainings(
    db: LoomDB,
    *,
    endpoint: str | None = None,
    states: Collection[str] | None = None,
    since: float | None = None,
    limit: int = 50,
) -> list[TrainingRow]:
    """The newest row of each training, latest moved first; `since` it moved last."""
    query = TRAININGS.newest_each("id", endpoint=endpoint).order_by(TRAININGS.c.position.desc()).limit(limit)
    if states is not None:
        query = query.where(TRAININGS.c.state.in_(states))
    if since is not None:
        query = query.where(TRAININGS.c.created_at >= since)
    return TRAININGS.fetch(db, query)


def read_trainings(db: LoomDB, endpoint: str) -> tuple[int, list[TrainingRow]]:
    """The position of the endpoint's newest row, and the newest row of each of its trainings, oldest first.

    Of those that are over, only the latest.
    """
    with db.read() as connection:
        return TRAININGS.last(connection, endpoint=endpoint), _newest(connection, endpoint)


def _has_begun(row: TrainingRow) -> bool:
    """It holds its endpoint: begun, and not over."""
    return row.state != QUEUED and row.state not in ENDS


def _newest(source: Source, endpoint: str) -> list[TrainingRow]:
    """All trainings that are not over, and the latest that are."""
    rows = TRAININGS.newest_each("id", endpoint=endpoint).order_by(TRAININGS.c.position.desc())
    is_over = TRAININGS.c.state.in_(ENDS)
    found = [
        *TRAININGS.numbered(source, rows.where(~is_over)),
        *TRAININGS.numbered(source, rows.where(is_over).limit(MOST_OVER)),
    ]
    return [row for _, row in sorted(found, key=itemgetter(0))]


def _ask(connection: Connection, first: TrainingRow, told: Sequence[Event]) -> bool:
    before = TRAININGS.first(connection, TRAININGS.select(id=first.id, number=1))
    if before is not None:
        if before.content.get("request") == first.content.get("request"):
            return True
        raise IdTaken(f"training {first.id!r} was asked for already, with other content. Take a new id.")
    waiting = sum(row.state == QUEUED for row in _newest(connection, first.endpoint))
    if waiting >= MOST_QUEUED:
        raise StoreError(
            f"endpoint {first.endpoint!r}: {waiting} trainings are queued, and no more are taken. Cancel some "
            "(`loomrl loop cancel`), or wait."
        )
    _insert(connection, first, told)
    return True


def _insert(connection: Connection, row: TrainingRow, told: Sequence[Event]) -> None:
    TRAININGS.append(connection, [row])
    EVENTS.insert(connection, told)
