"""The feeder: what is new in LoomDB becomes rows. The cursor of a table is the highest position in it.

Rows and cursor cannot disagree: a page is one insert, which is there whole or not at all, and a feeder
that was killed goes on from what is there. What LoomDB has deleted, `settle` finds by counting.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from loomrl.analytics.schema import EXPOSURES, FEEDBACK, REWARDS, TRAJECTORIES
from loomrl.analytics.source import ERASURE, HubReader, HubSource, RowPage, exposure_page, feedback_page, reward_page
from loomrl.analytics.warehouse import Warehouse
from loomrl.store import LoomDB
from loomrl.store.endpoints import endpoint_names
from loomrl.store.events import EVENTS
from loomrl.store.log import count_rows, positions_in
from loomrl.store.observations import first_observation, units_in

FORGOTTEN = "forgotten"
"""Note in the store: the last deletion of a person that reached it."""
AT_ONCE = 50_000
"""Ids in one deletion."""
Key = TypeVar("Key", int, str)


def settle(db: LoomDB, hubs: HubReader, warehouse: Warehouse, *, units: bool) -> tuple[Counter[str], Counter[str]]:
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


PAGE = 50_000
"""Rows in an insert."""
OBSERVED = 1_000
"""Rows of observations in a page; each holds many."""


class Tell(Protocol):
    """Is told of progress."""

    def __call__(self, done: int, note: str = "") -> None:
        """Report the number of loaded rows."""


@dataclass(frozen=True, slots=True)
class Fed:
    """The rows that were loaded and deleted, by table."""

    loaded: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All that were loaded."""
        return sum(self.loaded.values())


def ignore_progress(done: int, note: str = "") -> None:
    """Report nothing."""


def _nothing() -> None:
    """Was inserted before the first page."""


@contextmanager
def _without_gc() -> Iterator[None]:
    """Without the cyclic collector, which looks through a page's rows again and again: they have no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Feeder:
    """Feeds one store from one LoomDB. The caller makes sure that there is only one."""

    def __init__(
        self, db: LoomDB, hubs: HubReader, warehouse: Warehouse, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._db = db
        self._hubs = hubs
        self._warehouse = warehouse
        self._clock = clock

    def feed(self, *, check: bool = True, tell: Tell = ignore_progress) -> Fed:
        """Load all that is new. With `check`, or if a person was forgotten, delete what LoomDB has no more."""
        loaded = Counter[str]()

        def count(page: RowPage, what: str) -> bool:
            if page.count:
                loaded[what] += page.count
                tell(loaded.total() - loaded["exposures"], what)
            return page.count > 0

        with _without_gc():
            while self._round(count):
                pass
        forgotten = self._forgotten()
        deleted: Counter[str] = Counter()
        if check or forgotten is not None:
            more, deleted = settle(self._db, self._hubs, self._warehouse, units=forgotten is not None)
            loaded += more
        about = {"fed_at": repr(self._clock())} | ({} if forgotten is None else {FORGOTTEN: str(forgotten)})
        if loaded or deleted or check or forgotten is not None:
            self._warehouse.remember(about)
        return Fed(dict(+loaded), dict(+deleted))

    def waiting(self) -> int:
        """The rows that are to be loaded, without observations, of which LoomDB keeps many in a row."""
        logs = sum(count_rows(self._db, log, after=self._cursor(log)) for log in ("rewards", "feedback"))
        return logs + sum(hub.waiting(self._hub_cursor(hub)) for hub in self._hubs.look())

    def _round(self, count: Callable[[RowPage, str], bool]) -> bool:
        """The next page of everything; False: there was nothing.

        What judges trajectories is read before them and loaded after them, so that it finds those that it judges.
        """
        rewards, endpoints = reward_page(self._db, self._cursor("rewards"), PAGE)
        feedback = feedback_page(self._db, self._cursor("feedback"), PAGE)
        anything = [self._drain(hub, count) for hub in self._hubs.look()]
        if rewards.count:
            rewards.columns[REWARDS.names.index("version")] = self._versions(rewards, endpoints)
        self._warehouse.insert(REWARDS, rewards.columns)
        anything.append(count(rewards, "rewards"))
        self._warehouse.insert(FEEDBACK, feedback.columns)
        anything.append(count(feedback, "feedback"))
        for endpoint in endpoint_names(self._db):
            after = self._cursor("exposures", f"endpoint = '{endpoint}'")
            page = exposure_page(self._db, endpoint, after, OBSERVED)
            self._warehouse.insert(EXPOSURES, page.columns)
            anything.append(count(page, "exposures"))
        return any(anything)

    def _drain(self, hub: HubSource, count: Callable[[RowPage, str], bool]) -> bool:
        """Load what is new in a hub: a page is read while the one before it is inserted."""
        after = self._hub_cursor(hub)
        is_new = False
        with ThreadPoolExecutor(1, thread_name_prefix="insert") as pool:
            inserted = pool.submit(_nothing)
            while (page := hub.read(after, PAGE)).cursor > after:
                inserted.result()
                inserted = pool.submit(self._warehouse.insert, TRAJECTORIES, page.columns)
                is_new |= count(page, "trajectories")
                after = page.cursor
            inserted.result()
        return is_new

    def _hub_cursor(self, hub: HubSource) -> int:
        return self._cursor("trajectories", f"hub = '{hub.name}'")

    def _cursor(self, table: str, of: str = "1") -> int:
        return int(self._warehouse.rows(f"SELECT max(position) FROM {table} WHERE {of}")[0][0])

    def _versions(self, rewards: RowPage, endpoints: Mapping[str, str]) -> list[str]:
        """The version that each reward's trajectory began with; empty where that is not here any more."""
        names = set(endpoints.values())
        hubs = [*names, *(f"endpoint-{name}" for name in names)]
        sql = "SELECT id, version FROM trajectories WHERE hub IN %(hubs)s AND id IN %(ids)s"
        versions = {str(id): str(name) for id, name in self._warehouse.rows(sql, hubs=hubs, ids=list(endpoints))}
        return [versions.get(id, "") for id in rewards.columns[REWARDS.names.index("trajectory")]]

    def _forgotten(self) -> int | None:
        """The newest deletion of a person that has not reached us; None: there is none."""
        after = int(self._warehouse.about().get(FORGOTTEN, 0))
        newest = None
        while page := EVENTS.read(self._db, after=after, kind=ERASURE):
            newest = after = page[-1][0]
        return newest
