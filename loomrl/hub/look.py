"""Looking into a hub's LoomDB without being a hub: single trajectories by position or id, and their groups."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, case, func, select

from loomrl.errors import CorruptPayload
from loomrl.hub.codec import decode
from loomrl.store.db import LoomDB
from loomrl.store.hub_tables import hub_counters, trajectories
from loomrl.types import Trajectory

PAGE_BYTES = 1 << 25
"""A page ends early once it holds this much."""
_COLUMNS = (trajectories.c.position, trajectories.c.created_at, trajectories.c.payload)


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored trajectory, with its place in the hub."""

    place: int
    created_at: float
    trajectory: Trajectory


class Tried(NamedTuple):
    """What came of the attempts in an environment."""

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
            if (stored := _stored(row)) is not None:
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


def stored_at(db: LoomDB, places: Sequence[int]) -> dict[int, Stored]:
    """The trajectories at these places; those that were deleted, or are damaged, are left out."""
    with db.read() as connection:
        rows = list(connection.execute(select(*_COLUMNS).where(trajectories.c.position.in_(places))))
    return {row.position: found for row in rows if (found := _stored(row)) is not None}


def glimpses(db: LoomDB, places: Sequence[int], *, most_bytes: int) -> dict[int, Trajectory | None]:
    """Those of these places that still have a trajectory, with it if it is not longer than that."""
    small = case((func.length(trajectories.c.payload) <= most_bytes, trajectories.c.payload))
    query = select(trajectories.c.position, trajectories.c.created_at, small.label("payload"))
    with db.read() as connection:
        rows = list(connection.execute(query.where(trajectories.c.position.in_(places))))
    found = {row.position: None if row.payload is None else _stored(row) for row in rows}
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


def _stored(row: Any) -> Stored | None:
    try:
        return Stored(row.position, row.created_at, decode(row.payload, origin=f"cursor {row.position}"))
    except CorruptPayload:
        return None


def _position_in(db: LoomDB) -> Callable[[Any, bytes], ColumnElement[int]]:
    """The function of the database that finds bytes in bytes."""
    return func.instr if db.is_sqlite else func.pg_catalog.position


def tried_by_environment(db: LoomDB) -> dict[str, Tried]:
    """Of each environment what the hub took in."""
    counters = select(
        hub_counters.c.environment, hub_counters.c.trajectories, hub_counters.c.failures, hub_counters.c.success_sum
    )
    with db.read() as connection:
        return {name: Tried(*figures) for name, *figures in connection.execute(counters)}
