"""All that the console reads: LoomDB, the hubs beside it, and the index of their trajectories."""

import re
import threading
import time
from dataclasses import dataclass, field

from loomrl.console.index import NAME as INDEX
from loomrl.hub.open import run_hubs
from loomrl.hub.query import Tried, find_stored, read_stored_at
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.db import neighbours
from loomrl.store.view.trajectory_index import find_indexed
from loomrl.types import Trajectory

_HUB = re.compile(r"\d+|(endpoint|agent)-.+")
"""Names of the LoomDBs that are hubs beside those of runs: shards, endpoints', those of foreign agents, and their
shards.
"""
LOOK_S = 2.0
"""Time between two looks for hubs that are new."""


@dataclass(frozen=True, slots=True)
class FoundTrajectory:
    """A trajectory, and where it is."""

    hub: str
    place: int
    created_at: float
    trajectory: Trajectory


@dataclass(slots=True)
class RecordSource:
    """One LoomDB by URL with everything around it. Safe to share between threads; close it."""

    url: str
    db: LoomDB
    index: LoomDB
    tried: dict[str, dict[str, Tried]] = field(default_factory=dict)
    _hubs: dict[str, LoomDB] = field(default_factory=dict)
    _looked: float = -1e9
    _names: list[str] = field(default_factory=list)
    _over: frozenset[str] = frozenset()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hubs(self) -> list[str]:
        """The names of all hubs; that of LoomDB itself is empty."""
        now = time.monotonic()
        if now - self._looked > LOOK_S:
            beside_us = neighbours(self.url)
            of_runs = run_hubs(self.db, beside_us)
            self._names = ["", *(name for name in beside_us if _HUB.fullmatch(name) or name in of_runs)]
            self._over = frozenset(name for name, is_going in of_runs.items() if not is_going)
            self._looked = now
        return self._names

    def is_over(self, name: str) -> bool:
        """True of a hub whose run has ended: it has nothing new any more, unless the run is resumed."""
        return name in self._over

    def hub(self, name: str) -> LoomDB | None:
        """The LoomDB of a hub; None if there is none of this name."""
        if name == "":
            return self.db
        if name not in self.hubs():
            return None
        with self._lock:
            if name not in self._hubs:
                self._hubs[name] = open_store(beside(self.url, name))
            return self._hubs[name]

    def tried_by_environment(self) -> dict[str, Tried]:
        """Indexed attempts and mean success of each environment, over all hubs."""
        whole: dict[str, Tried] = {}
        for hub in self.hubs():
            for name, more in self.tried.get(hub, {}).items():
                whole[name] = whole.get(name, Tried()).more(more)
        return whole

    def find(self, id: str) -> FoundTrajectory | None:
        """The trajectory of this id, in whichever hub it is."""
        known = find_indexed(self.index, id)
        first = [] if known is None else [known.hub]
        for name in dict.fromkeys([*first, *self.hubs()]):
            db = self.hub(name)
            place = None if db is None else find_stored(db, id)
            if place is not None:
                return self.at(name, place)
        return None

    def at(self, hub: str, place: int) -> FoundTrajectory | None:
        """The trajectory at a place of a hub."""
        db = self.hub(hub)
        found = {} if db is None else read_stored_at(db, [place])
        if place not in found:
            return None
        return FoundTrajectory(hub, place, found[place].created_at, found[place].trajectory)

    def close(self) -> None:
        """Close every database."""
        for db in (*self._hubs.values(), self.index, self.db):
            db.close()


def open_source(url: str) -> RecordSource:
    """Everything around the LoomDB behind a URL; a StoreError if it cannot be opened."""
    return RecordSource(url, open_store(url), open_store(beside(url, INDEX)))
