"""All that the console reads: LoomDB, the hubs beside it, and the index of their trajectories."""

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loomrl.errors import LoomError
from loomrl.hub.open import run_hubs
from loomrl.hub.query import Stored, Tried, count_attempts, find_stored, read_stored, read_stored_at
from loomrl.store import LoomDB, beside, open_store
from loomrl.store.db import neighbours
from loomrl.store.view.trajectory_index import Indexed, extend_index, find_indexed, read_index_cursor
from loomrl.types import Trajectory

log = logging.getLogger(__name__)
INDEX = "console"
"""Suffix of the LoomDB that holds the index."""
BATCH = 500
PACE_S = 0.25
OVER_S = 60.0
"""Until a hub whose run has ended is looked at again: there may be a thousand of them."""
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


class Indexer:
    """Reads what is new in every hub until it is closed. Several consoles may do so at once."""

    def __init__(self, hubs: RecordSource, *, changed: Callable[[int], None] = lambda _: None) -> None:
        self._hubs = hubs
        self._changed = changed
        self._ending = threading.Event()
        self._again: dict[str, float] = {}
        self._thread = threading.Thread(target=self._work, name="console-index", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Finish the present batch, then end."""
        self._ending.set()
        self._thread.join()

    def round(self) -> int:
        """One batch of each hub; how many trajectories were new."""
        now = time.monotonic()
        due = (name for name in self._hubs.hubs() if self._again.get(name, now) <= now)
        return sum(self._advance(name) for name in due if not self._ending.is_set())

    def _advance(self, name: str) -> int:
        db = self._hubs.hub(name)
        if db is None:
            return 0
        after = read_index_cursor(self._hubs.index, name)
        up_to, stored = read_stored(db, after=after, limit=BATCH)
        if up_to != after or name not in self._hubs.tried:
            self._hubs.tried[name] = count_attempts(db)
        if up_to == after:
            if self._hubs.is_over(name):
                self._again[name] = time.monotonic() + OVER_S
                db.close()  # close its files: the next reader opens them again
            return 0
        extend_index(self._hubs.index, name, index_rows(name, stored), after=after, up_to=up_to)
        return len(stored)

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                new = self.round()
            except LoomError as error:  # the database may be away for a while
                log.warning("The index of trajectories waits: %s", error)
                new = 0
            if new:
                self._changed(new)
            self._ending.wait(0.0 if new >= BATCH else PACE_S)


def index_rows(hub: str, stored: Sequence[Stored]) -> list[Indexed]:
    """The rows of the index for trajectories of a hub."""
    return [
        Indexed(
            hub=hub,
            place=each.place,
            id=t.id,
            run=t.run,
            environment=t.task.environment,
            family=t.task.family,
            level=t.task.level,
            source=t.source.value,
            ending=t.end.value,
            reward=t.reward.total,
            success=t.reward.success,
            length=length_of(t),
            version=t.first_version,
            created_at=each.created_at,
        )
        for each in stored
        for t in (each.trajectory,)
    ]


def length_of(trajectory: Trajectory) -> int:
    """Tokens, or steps; the characters of one that has neither."""
    if trajectory.steps is not None:
        return len(trajectory.steps)
    turns = [turn for sequence in trajectory.sequences for turn in sequence]
    tokens = sum(len(turn.tokens) for turn in turns if turn.tokens is not None)
    if tokens:
        return tokens
    return sum(len(turn.action) + sum(len(message.content) for message in turn.observation) for turn in turns)
