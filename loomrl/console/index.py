"""Keeps the index of trajectories up with the hubs: a thread that reads each hub by cursor."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from loomrl.errors import LoomError
from loomrl.hub.query import Stored, Tried, count_attempts, read_stored
from loomrl.store import LoomDB
from loomrl.store.view.trajectory_index import Indexed, extend_index, read_index_cursor
from loomrl.types import Trajectory

log = logging.getLogger(__name__)
NAME = "console"
"""Suffix of the LoomDB that holds the index."""
BATCH = 500
PACE_S = 0.25
OVER_S = 60.0
"""Until a hub whose run has ended is looked at again: there may be a thousand of them."""


class HubStore(Protocol):
    """Where hubs are found."""

    index: LoomDB
    tried: dict[str, dict[str, Tried]]
    """By hub, of each environment what the hub took in: as of the last batch."""

    def hubs(self) -> list[str]:
        """Their names."""

    def hub(self, name: str) -> LoomDB | None:
        """A hub's LoomDB."""

    def is_over(self, name: str) -> bool:
        """True of a hub whose run has ended."""


class Indexer:
    """Reads what is new in every hub until it is closed. Several consoles may do so at once."""

    def __init__(self, hubs: HubStore, *, changed: Callable[[int], None] = lambda _: None) -> None:
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
