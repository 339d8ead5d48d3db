"""Feeding a place, by one process at a time: of a folder by a lock of this machine, of a server by a lease in LoomDB.

Between two rounds a folder is free for others.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path

from loomrl.analytics.engine import ChdbEngine
from loomrl.analytics.feeder import Fed, Feeder, Tell, ignore_progress
from loomrl.analytics.place import StoreLocation, sole
from loomrl.analytics.source import HubReader, newest
from loomrl.analytics.warehouse import WAIT_S, open_warehouse
from loomrl.bus.agent import origin_of
from loomrl.errors import AnalyticsError
from loomrl.process import Closing
from loomrl.store import LoomDB, open_store
from loomrl.store.notes import find_note, put_note

LEASE_S = 60.0
Renew = Callable[[], None]
Report = Callable[[int], AbstractContextManager[Tell]]
"""Whom to tell of so many rows that are waiting."""


def _no_report(_waiting: int) -> AbstractContextManager[Tell]:
    return nullcontext(ignore_progress)


class Feeding(Closing):
    """The feeder of a place from a LoomDB; AnalyticsError if there is one already.

    One that goes on for days has an engine for folders.
    """

    def __init__(self, store_url: str, place: StoreLocation, *, engine: ChdbEngine | None = None) -> None:
        self._place = place
        self._engine = engine
        self._loaded: Mapping[str, int] = {}
        self._stack = ExitStack()
        with ExitStack() as stack:
            self._db = stack.enter_context(open_store(store_url))
            self._renew = stack.enter_context(sole_feeder(self._db, place))
            self._hubs = HubReader(self._db, store_url)
            stack.callback(self._hubs.close)
            self._stack = stack.pop_all()

    def round(self, *, anew: bool = False, check: bool = True, report: Report = _no_report) -> Fed:
        """Load what is new; `anew`: all there is, into new tables. `check`: delete what LoomDB has no more.

        Where nothing is new and nothing is checked, the place is not opened.
        """
        self._renew()
        found = newest(self._db, self._hubs)
        if found == self._loaded and not check and not anew:
            return Fed()
        fed = self._load(anew=anew, check=check, report=report)
        self._loaded = found
        return fed

    def _load(self, *, anew: bool, check: bool, report: Report) -> Fed:
        origin = origin_of(self._db)
        with open_warehouse(self._place, origin=origin, wait_s=WAIT_S, anew=anew, engine=self._engine) as warehouse:
            feeder = Feeder(self._db, self._hubs, warehouse)
            with report(feeder.waiting()) as tell:

                def advance(done: int, note: str = "") -> None:
                    self._renew()
                    tell(done, note)

                return feeder.feed(check=check, tell=advance)

    def close(self) -> None:
        """Let another one feed it."""
        self._stack.close()


@contextmanager
def sole_feeder(db: LoomDB, place: StoreLocation) -> Iterator[Renew]:
    """Sole right to feed the place; AnalyticsError if another process has it. Call what it yields while working."""
    if place.folder is not None:
        said = f"{place.name} is fed by process {{}} already: one feeder is enough."
        with sole(place.folder / "feeder", wait_s=0.0, said=said):
            yield _nothing
        return
    lease = _Lease(db, place)
    lease.renew()
    try:
        yield lease.renew
    finally:
        lease.end()


class _Lease:
    def __init__(self, db: LoomDB, place: StoreLocation) -> None:
        self._db = db
        self._place = place
        self._key = f"analytics/{place.name}"
        self._me = f"{socket.gethostname()}:{os.getpid()}"
        self._until = 0.0

    def renew(self) -> None:
        """Take it, or hold it for another term."""
        now = time.time()
        if self._until - now > LEASE_S / 2:
            return
        with self._db.write() as connection:
            held = json.loads(find_note(connection, self._key) or "{}")
            who = held.get("who", self._me)
            if who != self._me and held["until"] > now and not _is_dead(who):
                raise AnalyticsError(
                    f"{self._place.name} is fed by {who} already, or was until a moment ago: one feeder is enough. "
                    f"If it is dead, another one may start in {held['until'] - now:.0f} s."
                )
            self._until = now + LEASE_S
            put_note(connection, self._key, json.dumps({"who": self._me, "until": self._until}))

    def end(self) -> None:
        """Give it back."""
        with self._db.write() as connection:
            if json.loads(find_note(connection, self._key) or "{}").get("who") == self._me:
                put_note(connection, self._key, "{}")


def _is_dead(who: str) -> bool:
    """True of a process of this machine that is no more."""
    host, _, pid = who.rpartition(":")
    return host == socket.gethostname() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists()


def _nothing() -> None:
    """A lock needs no renewal."""
