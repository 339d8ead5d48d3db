"""The feeder: what is new in LoomDB becomes rows. The cursor of a table is the highest position in it.

So nothing can come between rows and cursor: a page is one insert, which is there whole or not at all, and whoever was
killed goes on from what is there. What LoomDB has deleted, `settle` finds by counting.
"""

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from loomrl.analytics.schema import EXPOSURES, FEEDBACK, REWARDS, TRAJECTORIES
from loomrl.analytics.settling import FORGOTTEN, settle
from loomrl.analytics.source import ERASURE, Hubs, HubSource, Page, exposure_page, feedback_page, reward_page
from loomrl.analytics.warehouse import Warehouse
from loomrl.store import LoomDB
from loomrl.store.endpoints import endpoint_names
from loomrl.store.events import EVENTS
from loomrl.store.log import count_rows

PAGE = 50_000
"""Rows in an insert."""
OBSERVED = 1_000
"""Rows of observations in a page; each holds many."""


class Tell(Protocol):
    """Is told of progress."""

    def __call__(self, done: int, note: str = "") -> None:
        """So many rows are loaded."""


@dataclass(frozen=True, slots=True)
class Fed:
    """The rows that were loaded and deleted, by table."""

    loaded: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All that were loaded."""
        return sum(self.loaded.values())


def nobody(done: int, note: str = "") -> None:
    """Nobody is told."""


def _nothing() -> None:
    """Was inserted before the first page."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cyclic collector, which looks through a page's rows again and again: they have no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Feeder:
    """Feeds one store from one LoomDB. One at a time: whoever opens the store sees to that."""

    def __init__(self, db: LoomDB, hubs: Hubs, warehouse: Warehouse, *, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._hubs = hubs
        self._warehouse = warehouse
        self._clock = clock

    def feed(self, *, check: bool = True, tell: Tell = nobody) -> Fed:
        """Load all that is new. With `check`, or if a person was forgotten, delete what LoomDB has no more."""
        loaded = Counter[str]()

        def count(page: Page, what: str) -> bool:
            if page.count:
                loaded[what] += page.count
                tell(loaded.total() - loaded["exposures"], what)
            return page.count > 0

        with _uncollected():
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

    def _round(self, count: Callable[[Page, str], bool]) -> bool:
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

    def _drain(self, hub: HubSource, count: Callable[[Page, str], bool]) -> bool:
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

    def _versions(self, rewards: Page, endpoints: Mapping[str, str]) -> list[str]:
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
