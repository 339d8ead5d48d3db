"""Deletion of trajectories for good. No position is used again, so that no reader at a cursor misses anything."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, Table, bindparam, delete, func, insert, select, update

from loomrl.errors import HubError
from loomrl.hub import lending
from loomrl.hub.ledger import LeaseLedger, highest
from loomrl.hub.shard import MOST_AT_ONCE
from loomrl.store.hub_tables import groups, trajectories
from loomrl.store.notes import hub_notes

IDS: BindParameter[Any] = bindparam("ids", expanding=True)


def check_ids(ids: Sequence[str]) -> None:
    """HubError for more than one deletion takes."""
    if len(ids) > MOST_AT_ONCE:
        raise HubError(f"delete: {len(ids)} trajectories, at most {MOST_AT_ONCE} at once.")


def delete_trajectories(ledger: LeaseLedger, ids: Sequence[str]) -> list[str]:
    """Delete these trajectories, and the groups of which nothing is left or will come; the ids that were there."""
    found = ledger.connection.execute(_FOUND, {"ids": list(ids)}).all()
    if not found:
        return []
    _keep_highest(ledger, trajectories)
    ledger.connection.execute(_DELETE, {"ids": [row.id for row in found]})
    touched = sorted({row.group_position for row in found})
    lending.release_deleted(ledger, touched)
    others = set(ledger.connection.scalars(_OTHERS, {"ids": touched}))
    if left := [position for position in touched if position not in others]:
        _keep_highest(ledger, groups)
        ledger.connection.execute(_END, {"ids": left})
    return [row.id for row in found]


def _keep_highest(ledger: LeaseLedger, table: Table) -> None:
    """Remember the table's highest position, which may be about to go."""
    key = highest(table)
    now = ledger.connection.scalar(select(func.max(table.c.position)))
    earlier = ledger.connection.scalar(select(hub_notes.c.text).where(hub_notes.c.key == key))
    if earlier is None:
        ledger.connection.execute(insert(hub_notes).values(key=key, text=str(now)))
    elif now is not None and now > int(earlier):
        ledger.connection.execute(update(hub_notes).where(hub_notes.c.key == key).values(text=str(now)))


_FOUND = select(trajectories.c.id, trajectories.c.group_position).where(trajectories.c.id.in_(IDS))
_DELETE = delete(trajectories).where(trajectories.c.id.in_(IDS))
_OTHERS = select(trajectories.c.group_position).where(trajectories.c.group_position.in_(IDS))
_END = delete(groups).where(groups.c.position.in_(IDS), groups.c.arrived >= groups.c.size)
