"""Looking into a hub's LoomDB without being a hub: single trajectories by position or id, and their groups."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from loomrl.errors import CorruptPayload
from loomrl.hub.codec import decode
from loomrl.store.db import LoomDB
from loomrl.store.hub_tables import groups, trajectories
from loomrl.types import Trajectory


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored trajectory, with its place in the hub."""

    place: int
    created_at: float
    trajectory: Trajectory


@dataclass(frozen=True, slots=True)
class Sibling:
    """Another attempt of a group."""

    place: int
    id: str
    success: float
    ending: str


def read_stored(db: LoomDB, *, after: int, limit: int) -> tuple[int, list[Stored]]:
    """The next trajectories past a place, and the place they reach to; one with a damaged payload is left out."""
    columns = (trajectories.c.position, trajectories.c.created_at, trajectories.c.payload)
    query = select(*columns).where(trajectories.c.position > after).order_by(trajectories.c.position).limit(limit)
    with db.read() as connection:
        rows = list(connection.execute(query))
    return (rows[-1].position if rows else after), [found for row in rows if (found := _stored(row)) is not None]


def find_stored(db: LoomDB, id: str) -> int | None:
    """The place of the trajectory of this id, if the hub has it."""
    with db.read() as connection:
        place: int | None = connection.scalar(select(trajectories.c.position).where(trajectories.c.id == id))
    return place


def stored_at(db: LoomDB, places: Sequence[int]) -> dict[int, Stored]:
    """The trajectories at these places; those that were deleted, or are damaged, are left out."""
    columns = (trajectories.c.position, trajectories.c.created_at, trajectories.c.payload)
    with db.read() as connection:
        rows = list(connection.execute(select(*columns).where(trajectories.c.position.in_(places))))
    return {row.position: found for row in rows if (found := _stored(row)) is not None}


def places_left(db: LoomDB, places: Sequence[int]) -> set[int]:
    """Those of these places that still have a trajectory."""
    with db.read() as connection:
        return set(connection.scalars(select(trajectories.c.position).where(trajectories.c.position.in_(places))))


def places_with(db: LoomDB, places: Sequence[int], text: str) -> set[int]:
    """Those of these places whose payload has this text in it, letter by letter, anywhere."""
    inside = _position_in(db)(trajectories.c.payload, text.encode()) > 0
    with db.read() as connection:
        found = connection.scalars(
            select(trajectories.c.position).where(trajectories.c.position.in_(places), inside)
        )
        return set(found)


def siblings_of(db: LoomDB, place: int, *, limit: int = 64) -> list[Sibling]:
    """All attempts of the group that the trajectory at a place is of, itself too, in the order of their ids."""
    with db.read() as connection:
        group = connection.scalar(select(trajectories.c.group_position).where(trajectories.c.position == place))
        return [] if group is None else _members(connection, group, limit)


def group_of(db: LoomDB, place: int) -> tuple[str, str]:
    """State and cause of the group of a trajectory; empty if it is gone."""
    query = select(groups.c.state, groups.c.cause).join(
        trajectories, trajectories.c.group_position == groups.c.position
    )
    with db.read() as connection:
        row = connection.execute(query.where(trajectories.c.position == place)).one_or_none()
    return ("", "") if row is None else (row.state, row.cause)


def last_place(db: LoomDB) -> int:
    """The newest place; 0 in an empty hub."""
    with db.read() as connection:
        return int(connection.scalar(select(func.max(trajectories.c.position))) or 0)


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
