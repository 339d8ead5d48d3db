"""The index of trajectories: filtered pages over every hub of a LoomDB, newest first.

A page looks at windows of the index until it is full or its time is up; then it says how far it came, and goes on
from there. So no filter, however rare its matches, makes a page slow.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from loomrl.store.db import LoomDB
from loomrl.store.log import Row, columns_of
from loomrl.store.view.tables import index_cursors, trajectory_index

WINDOW = 50_000
"""Positions that one query looks at."""
BUDGET_S = 0.12
MOST_AT_ONCE = 1000
"""Rows that are looked into for what the index cannot tell."""
EQUAL = ("hub", "run", "environment", "family", "source", "ending")
RANGES = ("level", "reward", "success", "length", "version", "created_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """A trajectory by what people filter it by."""

    hub: str
    place: int
    id: str
    run: str
    environment: str
    family: str
    level: int
    source: str
    ending: str
    reward: float
    success: float
    length: int
    version: int
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryFilter:
    """The trajectories to list: exact values of columns, and bounds, which are inclusive."""

    equal: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        """For a query."""
        for name in EQUAL:
            if name in self.equal:
                yield trajectory_index.c[name] == self.equal[name]
        for name in RANGES:
            low, high = self.bounds.get(name, (None, None))
            if low is not None:
                yield trajectory_index.c[name] >= low
            if high is not None:
                yield trajectory_index.c[name] <= high


class Page(NamedTuple):
    """Rows with their positions, newest first. `next` continues; None at the end. `looked` tells how many positions
    were looked at.
    """

    rows: list[tuple[int, Indexed]]
    next: int | None
    looked: int


Keep = Callable[[list[tuple[int, Indexed]]], list[tuple[int, Indexed]]]
"""Those of a batch to keep, by what the index itself cannot tell."""


def page_of(db: LoomDB, wanted: TrajectoryFilter, *, before: int | None, limit: int, keep: Keep | None = None) -> Page:
    """The next rows older than a position, or than everything."""
    deadline = time.monotonic() + BUDGET_S
    rows: list[tuple[int, Indexed]] = []
    top = count_indexed(db) + 1 if before is None else before
    at = top
    batch = limit if keep is None else MOST_AT_ONCE
    while at > 1 and len(rows) < limit and (at == top or time.monotonic() < deadline):
        with db.read() as connection:
            found = _window(connection, wanted, at, batch)
        at = found[-1][0] if len(found) == batch else max(1, at - WINDOW)
        rows += found if keep is None else keep(found)
    if len(rows) > limit:
        rows = rows[:limit]
        at = rows[-1][0]
    return Page(rows, at if at > 1 else None, top - at)


def _window(connection: Connection, wanted: TrajectoryFilter, before: int, limit: int) -> list[tuple[int, Indexed]]:
    within = (trajectory_index.c.position < before) & (trajectory_index.c.position >= before - WINDOW)
    query = select(trajectory_index).where(within, *wanted.conditions())
    query = query.order_by(trajectory_index.c.position.desc()).limit(limit)
    return [(row["position"], _parse_row(row)) for row in connection.execute(query).mappings()]


def find_indexed(db: LoomDB, id: str) -> Indexed | None:
    """The trajectory of this id, if it is in the index."""
    query = select(trajectory_index).where(trajectory_index.c.id == id).order_by(trajectory_index.c.position).limit(1)
    with db.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _parse_row(row)


def find_indexed_at(db: LoomDB, hub: str, places: Sequence[int]) -> list[Indexed]:
    """The trajectories at these places of a hub, as far as they are in the index."""
    query = select(trajectory_index).where(trajectory_index.c.hub == hub, trajectory_index.c.place.in_(places))
    with db.read() as connection:
        return [_parse_row(row) for row in connection.execute(query).mappings()]


def read_index_cursor(db: LoomDB, hub: str) -> int:
    """The position up to which a hub is in the index."""
    with db.read() as connection:
        return _cursor(connection, hub) or 0


def extend_index(db: LoomDB, hub: str, rows: Sequence[Indexed], *, after: int, up_to: int) -> bool:
    """Add what a hub has between two positions; False if another process has been faster."""
    with db.write() as connection:
        now = _cursor(connection, hub)
        if (now or 0) != after:
            return False
        if rows:
            connection.execute(insert(trajectory_index), [columns_of(row) for row in rows])
        if now is None:
            connection.execute(insert(index_cursors).values(hub=hub, place=up_to))
        else:
            connection.execute(update(index_cursors).where(index_cursors.c.hub == hub).values(place=up_to))
    return True


def drop_indexed(db: LoomDB, hub: str, places: Sequence[int]) -> None:
    """Forget trajectories that their hub has deleted."""
    with db.write() as connection:
        connection.execute(
            delete(trajectory_index).where(trajectory_index.c.hub == hub, trajectory_index.c.place.in_(places))
        )


def choices(db: LoomDB, column: str, *, most: int = 50) -> list[str]:
    """The values of an indexed column, found one by one along its index; at most so many."""
    found: list[str] = []
    with db.read() as connection:
        after: str | None = None
        while len(found) < most:
            query = select(func.min(trajectory_index.c[column]))
            if after is not None:
                query = query.where(trajectory_index.c[column] > after)
            after = connection.scalar(query)
            if after is None:
                break
            found.append(after)
    return found


def count_indexed(db: LoomDB) -> int:
    """About how many trajectories are in the index: the newest position."""
    with db.read() as connection:
        return int(connection.scalar(select(func.max(trajectory_index.c.position))) or 0)


def _cursor(connection: Connection, hub: str) -> int | None:
    found: int | None = connection.scalar(select(index_cursors.c.place).where(index_cursors.c.hub == hub))
    return found


def _parse_row(row: Row) -> Indexed:
    columns: dict[str, Any] = dict(row)
    del columns["position"]
    return Indexed(**columns)
