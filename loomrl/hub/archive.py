"""Reading what is stored: the groups of a lease, and any selection by cursor."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select

from loomrl.errors import CorruptPayload
from loomrl.hub.codec import decode
from loomrl.hub.hub import Ready, Selection
from loomrl.store.hub_tables import groups, trajectories
from loomrl.types import Group, Trajectory

PAGE_BYTES = 1 << 26
"""A page ends early once it holds this much."""

_BOUNDED = (("level", "level"), ("success", "success"), ("version", "first_version"), ("stored", "created_at"))
"""Bounds of a selection, and the column that each is of."""
_COLUMNS = (trajectories.c.id, trajectories.c.position, trajectories.c.payload)


def read_groups(connection: Connection, positions: Sequence[int]) -> tuple[list[Group], list[str]]:
    """The groups at these positions, in this order, and the ids of those with a damaged payload."""
    heads = {
        row.position: row
        for row in connection.execute(
            select(groups.c.position, groups.c.id, groups.c.cause).where(groups.c.position.in_(positions))
        )
    }
    query = select(trajectories.c.group_position, *_COLUMNS).where(
        trajectories.c.group_position.in_(positions), trajectories.c.late.is_(False)
    )
    members: dict[int, list[Any]] = {position: [] for position in positions}
    for row in connection.execute(query.order_by(trajectories.c.position)):
        members[row.group_position].append(row)
    whole = []
    damaged = []
    for position in positions:
        try:
            attempts = tuple(_restored(row) for row in members[position])
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
        page.append((row.position, _restored(row)))
        size += len(row.payload)
        if size >= PAGE_BYTES:
            break
    return page


def _stream(connection: Connection, query: Select[Any]) -> Iterator[Any]:
    with connection.execution_options(yield_per=16).execute(query) as rows:
        yield from rows


def _restored(row: Any) -> Trajectory:
    return decode(row.payload, origin=f"trajectory {row.id!r} at cursor {row.position}")


def _query(after: int, limit: int, selection: Selection) -> Select[Any]:
    query = select(*_COLUMNS).where(trajectories.c.position > after, *_conditions(selection))
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
