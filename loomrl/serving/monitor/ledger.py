"""The monitor's hits on their way to LoomDB: counted first, so that many hits cannot flood it."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from loomrl.errors import StoreError
from loomrl.serving.repeat import after_commits, again, cancel_task
from loomrl.store.db import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.observations import Observation, append_observations
from loomrl.store.sessions import Quarantine, read_quarantine, record_quarantine

FLUSH_S = 2.0
"""Time between two rows of counts; a trip is written at once."""
LOOK_S = 0.25
"""Time between two looks at what others quarantined or freed."""
KIND = "monitor.hit"
EXAMPLES = 5
"""Sessions that a row names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorHit:
    """A hit, without a word of the text."""

    endpoint: str
    arm: str
    version: str
    rule: str
    what: str
    then: str
    """The intervention, or `failed` where the rule itself did."""


@dataclass(slots=True)
class CountedHits:
    """How often a hit was counted, when last, and some of the sessions it was in."""

    count: int = 0
    sessions: list[str] = field(default_factory=list)
    at: float = 0.0


class HitLedger:
    """Counts of hits and the sessions in quarantine, of one gateway. `start` it, and `close` it."""

    def __init__(self, db: LoomDB, *, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._clock = clock
        self._counts: dict[MonitorHit, CountedHits] = {}
        self._held: set[tuple[str, str]] = set()
        self._after = 0
        self._trips: list[tuple[str, Observation]] = []
        self._has_tripped = asyncio.Event()
        self._writes = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self.total: Counter[str] = Counter()
        """Rule → hits since the start."""

    async def start(self) -> None:
        """Read the quarantine, follow it, and begin to write counts."""
        await self._follow()
        self._tasks = [asyncio.create_task(again(after_commits(self._db, self._follow), LOOK_S))]
        self._tasks.append(asyncio.create_task(again(self._flush_when_due, 0.0)))

    async def close(self) -> None:
        """Write the rest."""
        for task in self._tasks:
            await cancel_task(task)
        with suppress(StoreError):
            await self.flush()

    def count(self, hit: MonitorHit, session: str) -> None:
        """Count a hit."""
        self.total[hit.rule] += 1
        counted = self._counts.setdefault(hit, CountedHits())
        counted.count += 1
        if len(counted.sessions) < EXAMPLES and session not in counted.sessions:
            counted.sessions.append(session)

    def trip(self, endpoint: str, observation: Observation) -> None:
        """Tell the endpoint's release about a hit that rolls it back."""
        self._trips.append((endpoint, observation))
        self._has_tripped.set()

    def is_held(self, endpoint: str, session: str) -> bool:
        """True if the session is in quarantine."""
        return (endpoint, session) in self._held

    async def hold(self, endpoint: str, session: str, rule: str) -> None:
        """Take a session into quarantine: here at once, elsewhere as soon as it is on record."""
        if self.is_held(endpoint, session):
            return
        self._held.add((endpoint, session))
        change = Quarantine(endpoint=endpoint, session=session, held=True, rule=rule, at=self._clock())
        await asyncio.to_thread(record_quarantine, self._db, change)

    async def flush(self) -> None:
        """Write the counts, one event for each kind of hit."""
        async with self._writes:
            await self._write_trips()
            await self._write_counts()

    async def _write_trips(self) -> None:
        self._has_tripped.clear()
        while self._trips:
            endpoint, observation = self._trips[0]
            await asyncio.to_thread(append_observations, self._db, endpoint, "monitor", [observation], self._clock())
            del self._trips[0]

    async def _write_counts(self) -> None:
        now = self._clock()
        counts = self._counts
        self._counts = {}
        if not counts:
            return
        rows = [
            Event(kind=KIND, subject=hit.endpoint, data=_data(hit, counted), created_at=now)
            for hit, counted in counts.items()
        ]
        try:
            await asyncio.to_thread(EVENTS.append, self._db, rows)
        except StoreError:
            for hit, counted in counts.items():  # with the next ones
                later = self._counts.setdefault(hit, CountedHits())
                later.count += counted.count
                later.sessions = [*counted.sessions, *later.sessions][:EXAMPLES]
            raise

    async def _follow(self) -> None:
        changes = await asyncio.to_thread(read_quarantine, self._db, after=self._after)
        for position, change in changes:
            self._after = position
            place = (change.endpoint, change.session)
            self._held.add(place) if change.held else self._held.discard(place)

    async def _flush_when_due(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._has_tripped.wait()
        await self.flush()


def hits_on_record(db: LoomDB, *, endpoint: str = "") -> dict[MonitorHit, CountedHits]:
    """All hits that gateways counted, of one endpoint or of all, the most frequent first."""
    found: dict[MonitorHit, CountedHits] = {}
    after = 0
    while page := EVENTS.read(db, after=after, kind=KIND, subject=endpoint or None):
        after = page[-1][0]
        for _, event in page:
            named = {name: event.data[name] for name in ("arm", "version", "rule", "what", "then")}
            counted = found.setdefault(MonitorHit(endpoint=event.subject, **named), CountedHits())
            counted.count += event.data["count"]
            counted.sessions = event.data.get("sessions") or counted.sessions
            counted.at = event.created_at
    return dict(sorted(found.items(), key=lambda each: -each[1].count))


def _data(hit: MonitorHit, counted: CountedHits) -> dict[str, object]:
    named = {"arm": hit.arm, "version": hit.version, "rule": hit.rule, "what": hit.what, "then": hit.then}
    return {**named, "count": counted.count, "sessions": counted.sessions}
