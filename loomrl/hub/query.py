"""Reading what is stored: the groups of a lease, and any selection by cursor."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, case, func, select

from loomrl.errors import CorruptPayload
from loomrl.hub.codec import decode
from loomrl.hub.hub import Ready, Selection
from loomrl.store.db import LoomDB
from loomrl.store.hub_tables import groups, hub_counters, trajectories
from loomrl.types import Group, Trajectory

PAGE_BYTES = 1 << 25
"""A page ends early once it holds this much."""

_BOUNDED = (("level", "level"), ("success", "success"), ("version", "first_version"), ("stored", "created_at"))
"""Bounds of a selection, and the column that each is of."""
_PAYLOAD = (trajectories.c.id, trajectories.c.position, trajectories.c.payload)


def read_groups(connection: Connection, positions: Sequence[int]) -> tuple[list[Group], list[str]]:
    """The groups at these positions, in this order, and the ids of those with a damaged payload."""
    heads = {
        row.position: row
        for row in connection.execute(
            select(groups.c.position, groups.c.id, groups.c.cause).where(groups.c.position.in_(positions))
        )
    }
    query = select(trajectories.c.group_position, *_PAYLOAD).where(
        trajectories.c.group_position.in_(positions), trajectories.c.late.is_(False)
    )
    members: dict[int, list[Any]] = {position: [] for position in positions}
    for row in connection.execute(query.order_by(trajectories.c.position)):
        members[row.group_position].append(row)
    whole = []
    damaged = []
    for position in positions:
        try:
            attempts = tuple(_decode(row) for row in members[position])
        except CorruptPayload:
            damaged.append(heads[position].id)
        else:
            whole.append(Group(heads[position].id, attempts, heads[position].cause))
    return whole, damaged


def read_ready(connection: Connection, environments: Sequence[str], limit: int) -> list[Ready]:
    """The oldest ready groups of these environments; one by one, as only so an index knows their order."""
    found: list[Any] = []
    for environment in environments:
        waiting = (groups.c.state == "ready") & (groups.c.environment == environment)
        found += connection.execute(select(groups).where(waiting).order_by(groups.c.position).limit(limit))
    found.sort(key=lambda row: row.position)
    return [Ready(row.id, row.environment, row.size, row.opened_at) for row in found[:limit]]


def read_page(connection: Connection, after: int, limit: int, selection: Selection) -> list[tuple[int, Trajectory]]:
    """The next trajectories of a selection, at most `limit` or about `PAGE_BYTES`."""
    page: list[tuple[int, Trajectory]] = []
    size = 0
    for row in _stream(connection, _query(after, limit, selection)):
        page.append((row.position, _decode(row)))
        size += len(row.payload)
        if size >= PAGE_BYTES:
            break
    return page


def _stream(connection: Connection, query: Select[Any]) -> Iterator[Any]:
    with connection.execution_options(yield_per=16).execute(query) as rows:
        yield from rows


def _decode(row: Any) -> Trajectory:
    return decode(row.payload, origin=f"trajectory {row.id!r} at cursor {row.position}")


def _query(after: int, limit: int, selection: Selection) -> Select[Any]:
    query = select(*_PAYLOAD).where(trajectories.c.position > after, *_conditions(selection))
    if selection.acked is not None:
        trained = (groups.c.state == "acked") & trajectories.c.late.is_(False)
        query = query.join(groups, groups.c.position == trajectories.c.group_position)
        query = query.where(trained if selection.acked else ~trained)
    return query.order_by(trajectories.c.position).limit(limit)


def _conditions(selection: Selection) -> Iterator[ColumnElement[bool]]:
    for name in ("environment", "family", "source", "run"):
        wanted = getattr(selection, name)
        if wanted is not None:
            yield trajectories.c[name] == str(wanted)
    if selection.ids is not None:
        yield trajectories.c.id.in_(selection.ids)
    for name, column in _BOUNDED:
        low, high = getattr(selection, name)
        if low is not None:
            yield trajectories.c[column] >= low
        if high is not None:
            yield trajectories.c[column] <= high


_COLUMNS = (trajectories.c.position, trajectories.c.created_at, trajectories.c.payload)


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored trajectory, with its place in the hub."""

    place: int
    created_at: float
    trajectory: Trajectory


class Tried(NamedTuple):
    """The outcome of the attempts in an environment."""

    attempts: int = 0
    failed: int = 0
    success: float = 0.0
    """The sum over those that did not fail."""

    @property
    def mean(self) -> float:
        """Mean success of those that did not fail."""
        return self.success / max(self.attempts - self.failed, 1)

    def more(self, other: "Tried") -> "Tried":
        """Both together."""
        return Tried(self.attempts + other.attempts, self.failed + other.failed, self.success + other.success)


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another attempt of a group."""

    place: int
    id: str
    success: float
    ending: str


def read_stored(db: LoomDB, *, after: int, limit: int) -> tuple[int, list[Stored]]:
    """The next trajectories past a place, and the place they reach to; one with a damaged payload is left out."""
    query = select(*_COLUMNS).where(trajectories.c.position > after).order_by(trajectories.c.position).limit(limit)
    found: list[Stored] = []
    size = 0
    with db.read() as connection, connection.execution_options(yield_per=16).execute(query) as rows:
        for row in rows:
            after = row.position
            if (stored := _parse_stored(row)) is not None:
                found.append(stored)
            size += len(row.payload)
            if size >= PAGE_BYTES:
                break
    return after, found


def find_stored(db: LoomDB, id: str) -> int | None:
    """The place of the trajectory of this id, if the hub has it."""
    with db.read() as connection:
        place: int | None = connection.scalar(select(trajectories.c.position).where(trajectories.c.id == id))
    return place


def read_stored_at(db: LoomDB, places: Sequence[int]) -> dict[int, Stored]:
    """The trajectories at these places; those that were deleted, or are damaged, are left out."""
    with db.read() as connection:
        rows = list(connection.execute(select(*_COLUMNS).where(trajectories.c.position.in_(places))))
    return {row.position: found for row in rows if (found := _parse_stored(row)) is not None}


def glimpses(db: LoomDB, places: Sequence[int], *, most_bytes: int) -> dict[int, Trajectory | None]:
    """Those of these places that still have a trajectory, with it if it is not longer than that."""
    small = case((func.length(trajectories.c.payload) <= most_bytes, trajectories.c.payload))
    query = select(trajectories.c.position, trajectories.c.created_at, small.label("payload"))
    with db.read() as connection:
        rows = list(connection.execute(query.where(trajectories.c.position.in_(places))))
    found = {row.position: None if row.payload is None else _parse_stored(row) for row in rows}
    return {place: None if stored is None else stored.trajectory for place, stored in found.items()}


def places_with(db: LoomDB, places: Sequence[int], text: str) -> set[int]:
    """Those of these places whose payload has this text in it, letter by letter, anywhere."""
    inside = _position_in(db)(trajectories.c.payload, text.encode()) > 0
    with db.read() as connection:
        found = connection.scalars(select(trajectories.c.position).where(trajectories.c.position.in_(places), inside))
        return set(found)


def siblings_of(db: LoomDB, place: int, *, limit: int = 64) -> list[Sibling]:
    """All attempts of the group that the trajectory at a place is of, itself too, in the order of their ids."""
    with db.read() as connection:
        group = connection.scalar(select(trajectories.c.group_position).where(trajectories.c.position == place))
        return [] if group is None else _members(connection, group, limit)


def _members(connection: Connection, group: int, limit: int) -> list[Sibling]:
    columns = (trajectories.c.position, trajectories.c.id, trajectories.c.success, trajectories.c.ending)
    query = select(*columns).where(trajectories.c.group_position == group).order_by(trajectories.c.id).limit(limit)
    return [Sibling(row.position, row.id, row.success, row.ending) for row in connection.execute(query)]


def _parse_stored(row: Any) -> Stored | None:
    try:
        return Stored(row.position, row.created_at, decode(row.payload, origin=f"cursor {row.position}"))
    except CorruptPayload:
        return None


def _position_in(db: LoomDB) -> Callable[[Any, bytes], ColumnElement[int]]:
    """The function of the database that finds bytes in bytes."""
    return func.instr if db.is_sqlite else func.pg_catalog.position


def count_attempts(db: LoomDB) -> dict[str, Tried]:
    """Environment → the attempts that the hub took in."""
    counters = select(
        hub_counters.c.environment, hub_counters.c.trajectories, hub_counters.c.failures, hub_counters.c.success_sum
    )
    with db.read() as connection:
        return {name: Tried(*figures) for name, *figures in connection.execute(counters)}
