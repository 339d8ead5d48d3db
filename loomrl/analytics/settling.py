"""What LoomDB has deleted goes here, too: found by comparing counts, and where they differ, ids.

All that is here was in LoomDB when it was loaded, once each. So where counts are equal nothing was deleted, and where a
person was forgotten, a trajectory's time was up, or somebody deleted by hand, they differ.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TypeVar

from loomrl.analytics.schema import TRAJECTORIES
from loomrl.analytics.source import Hubs, HubSource
from loomrl.analytics.warehouse import Warehouse
from loomrl.store import LoomDB
from loomrl.store.endpoints import endpoint_names
from loomrl.store.log import count_rows, positions_in
from loomrl.store.observations import first_observation, units_in

FORGOTTEN = "forgotten"
"""What the store remembers: the last event of a deletion of a person that reached it."""
AT_ONCE = 50_000
"""Ids in one deletion."""
Key = TypeVar("Key", int, str)


def settle(db: LoomDB, hubs: Hubs, warehouse: Warehouse, *, units: bool) -> tuple[Counter[str], Counter[str]]:
    """Load what is only in archives, and delete what is nowhere: rows of each table. `units`: look at those, too."""
    loaded = Counter[str]()
    deleted = Counter[str]()
    for hub in hubs.look():
        more, less = _settle_hub(hub, warehouse)
        loaded["trajectories"] += more
        deleted["trajectories"] += less
    for log in ("rewards", "feedback"):
        deleted[log] += _settle_log(db, log, warehouse)
    for endpoint in endpoint_names(db):
        deleted["exposures"] += _settle_exposures(db, endpoint, warehouse, units=units)
    return +loaded, +deleted


def _settle_hub(hub: HubSource, warehouse: Warehouse) -> tuple[int, int]:
    where = f"hub = '{hub.name}'"
    counts = f"SELECT count(), uniqExact(key), max(position) FROM trajectories WHERE {where}"
    rows, unique, cursor = warehouse.rows(counts)[0]
    if rows == unique == hub.count(cursor):
        return 0, 0
    theirs = hub.ids(cursor)
    ours = {id for (id,) in warehouse.rows(f"SELECT DISTINCT id FROM trajectories WHERE {where}")}
    _delete(warehouse, "trajectories", where, "id", sorted(ours - theirs))
    loaded = 0
    for page in hub.archived(theirs - ours):
        warehouse.insert(TRAJECTORIES, page.columns)
        loaded += page.count
    _make_unique(warehouse, "trajectories", rows != unique)
    return loaded, len(ours - theirs)


def _settle_log(db: LoomDB, log: str, warehouse: Warehouse) -> int:
    rows, unique, cursor = warehouse.rows(f"SELECT count(), uniqExact(position), max(position) FROM {log}")[0]
    if rows == unique == count_rows(db, log, upto=cursor):
        return 0
    ours = {position for (position,) in warehouse.rows(f"SELECT DISTINCT position FROM {log}")}
    gone = ours - positions_in(db, log, upto=cursor)
    _delete(warehouse, log, "1", "position", sorted(gone))
    _make_unique(warehouse, log, rows != unique)
    return len(gone)


def _settle_exposures(db: LoomDB, endpoint: str, warehouse: Warehouse, *, units: bool) -> int:
    """Old rows leave LoomDB from the oldest on; of a person, observations leave rows that stay."""
    where = f"endpoint = '{endpoint}'"
    before = _count(warehouse, where)
    if not before:
        return 0
    (oldest, newest) = warehouse.rows(f"SELECT min(position), max(position) FROM exposures WHERE {where}")[0]
    first = first_observation(db, endpoint)
    first = newest + 1 if first is None else first
    if first > oldest:
        warehouse.do(f"ALTER TABLE exposures DELETE WHERE {where} AND position < {first}")
    if units:
        ours = {unit for (unit,) in warehouse.rows(f"SELECT DISTINCT unit FROM exposures WHERE {where}")}
        _delete(warehouse, "exposures", where, "unit", sorted(ours - units_in(db, endpoint)))
    return before - _count(warehouse, where)


def _count(warehouse: Warehouse, where: str) -> int:
    return int(warehouse.rows(f"SELECT count() FROM exposures WHERE {where}")[0][0])


def _delete(warehouse: Warehouse, table: str, where: str, column: str, gone: Sequence[Key]) -> None:
    """Delete rows, from disk, too: parts are written anew without them."""
    for some in _slices(gone):
        warehouse.do(f"ALTER TABLE {table} DELETE WHERE {where} AND {column} IN %(gone)s", gone=some)


def _make_unique(warehouse: Warehouse, table: str, is_needed: bool) -> None:
    """Merge rows that a feeder loaded again which had been stopped while another one went on."""
    if is_needed:
        warehouse.do(f"OPTIMIZE TABLE {table} FINAL")


def _slices(ids: Sequence[Key]) -> Iterator[Collection[Key]]:
    for start in range(0, len(ids), AT_ONCE):
        yield ids[start : start + AT_ONCE]
