"""Trainings that a coordinator follows: a log of rows for each; the one with the highest number holds.

A row and its events are one transaction, and only whoever has seen the newest row may write the next: any number of
coordinators may run, and any may die at any instant. An endpoint has one training at a time that has begun.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select

from loomrl.errors import IdTaken, StoreError, did_you_mean, there_are
from loomrl.store.db import LoomDB
from loomrl.store.events import Event, record_all
from loomrl.store.rows import Row, from_json, to_json
from loomrl.store.tables import trainings

QUEUED = "queued"
"""The state of a training that has not begun."""
ENDS = ("done", "back", "refused", "failed", "cancelled")
"""States in which a training is over."""
MOST_QUEUED = 100
MOST_OVER = 100
"""Of an endpoint."""


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


Beside = Callable[[Connection], object]
"""What else is written in the transaction of a row."""


def ask(db: LoomDB, first: TrainingRow, told: Sequence[Event], *, seen: int | None = None) -> bool:
    """Store the first row of a training, which is queued; False if the endpoint's log has grown past `seen`.

    The same training again is no error; its id with other content is IdTaken.
    """
    with db.write() as connection:
        if seen is not None and _last(connection, first.endpoint) != seen:
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
        newest = connection.scalar(select(func.max(trainings.c.number)).where(trainings.c.id == row.id))
        if newest != row.number - 1:
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


def show_training(db: LoomDB, id: str) -> TrainingRow:
    """The newest row of a training; a StoreError names the nearest id."""
    return show_log(db, id)[-1]


def show_log(db: LoomDB, id: str) -> list[TrainingRow]:
    """The rows of a training, oldest first; a StoreError names the nearest id."""
    with db.read() as connection:
        query = select(trainings).where(trainings.c.id == id).order_by(trainings.c.number)
        found = [_row_of(row) for row in connection.execute(query).mappings()]
        if not found:
            known = sorted(connection.scalars(select(trainings.c.id).distinct()))
            raise StoreError(f"there is no training {id!r:.100}. {there_are(known)}{did_you_mean(id[:100], known)}")
    return found


def find_training(db: LoomDB, *, run: str) -> TrainingRow | None:
    """The newest row about a run; None if no coordinator began it."""
    query = select(trainings).where(trainings.c.run == run).order_by(trainings.c.position.desc()).limit(1)
    with db.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _row_of(row)


def list_trainings(
    db: LoomDB,
    *,
    endpoint: str | None = None,
    states: Collection[str] | None = None,
    since: float | None = None,
    limit: int = 50,
) -> list[TrainingRow]:
    """The newest row of each training, latest moved first; `since` it moved last."""
    query = _newest_rows(endpoint).order_by(trainings.c.position.desc()).limit(limit)
    if states is not None:
        query = query.where(trainings.c.state.in_(states))
    if since is not None:
        query = query.where(trainings.c.created_at >= since)
    with db.read() as connection:
        return [_row_of(row) for row in connection.execute(query).mappings()]


def read_trainings(db: LoomDB, endpoint: str) -> tuple[int, list[TrainingRow]]:
    """The position of the endpoint's newest row, and the newest row of each of its trainings, oldest first.

    Of those that are over, only the latest.
    """
    with db.read() as connection:
        return _last(connection, endpoint), _newest(connection, endpoint)


def _has_begun(row: TrainingRow) -> bool:
    """It holds its endpoint: begun, and not over."""
    return row.state != QUEUED and row.state not in ENDS


def _last(connection: Connection, endpoint: str) -> int:
    query = select(func.max(trainings.c.position)).where(trainings.c.endpoint == endpoint)
    return int(connection.scalar(query) or 0)


def _newest_rows(endpoint: str | None) -> Select[Any]:
    last = select(func.max(trainings.c.position)).group_by(trainings.c.id)
    if endpoint is not None:
        last = last.where(trainings.c.endpoint == endpoint)
    return select(trainings).where(trainings.c.position.in_(last))


def _newest(connection: Connection, endpoint: str) -> list[TrainingRow]:
    """All trainings that are not over, and the latest that are."""
    rows = _newest_rows(endpoint).order_by(trainings.c.position.desc())
    is_over = trainings.c.state.in_(ENDS)
    found = [
        *connection.execute(rows.where(~is_over)).mappings(),
        *connection.execute(rows.where(is_over).limit(MOST_OVER)).mappings(),
    ]
    return [_row_of(row) for row in sorted(found, key=lambda row: int(row["position"]))]


def _ask(connection: Connection, first: TrainingRow, told: Sequence[Event]) -> bool:
    stored = connection.execute(select(trainings).where(trainings.c.id == first.id, trainings.c.number == 1))
    before = stored.mappings().one_or_none()
    if before is not None:
        if _row_of(before).content.get("request") == first.content.get("request"):
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
    columns = {
        "id": row.id,
        "number": row.number,
        "endpoint": row.endpoint,
        "state": row.state,
        "run": row.run,
        "content": to_json(dict(row.content), what=f"training {row.id!r}"),
        "created_at": row.created_at,
    }
    connection.execute(insert(trainings).values(**columns))
    record_all(connection, told)


def _row_of(row: Row) -> TrainingRow:
    columns = {name: value for name, value in row.items() if name != "position"}
    return TrainingRow(**columns | {"content": from_json(row["content"])})
