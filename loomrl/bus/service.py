"""Outbox and sink of a LoomDB, side by side until they are told to stop. Nothing that the bus does ends them."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from loomrl.bus.bus import Bus
from loomrl.bus.outbox import Outbox
from loomrl.bus.sink import Sink, Taken, Terms
from loomrl.errors import BusAway, BusError, StoreError
from loomrl.observability.exposition import Registry
from loomrl.observability.family import PUBLISHED, TAKEN
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event

Say = Callable[[str], None]
LOOK_S = 0.25
"""Pause of the outbox where there was nothing to publish."""
PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
AWAY_S = 5.0
"""A bus that is away for longer is put on record."""
TELL_S = 10.0


class BusReporter:
    """Tells people and the record when one of the two cannot use the bus, and when it can again."""

    def __init__(self, db: LoomDB, name: str, say: Say, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._name = name
        self._say = say
        self._clock = clock
        self._since: float | None = None
        self._is_told = False
        self._said = ""

    def failed(self, error: BusError | StoreError) -> None:
        """Something could not be done; a new reason is said once."""
        self._since = self._since or self._clock()
        if str(error) != self._said:
            self._said = str(error)
            self._say(f"{self._name}: {type(error).__name__}: {error}")
        if not self._is_told and isinstance(error, BusError) and self._clock() - self._since > AWAY_S:
            kind = "bus.away" if isinstance(error, BusAway) else "bus.refused"
            self._is_told = self._record(kind, {"reason": str(error)})

    def worked(self) -> None:
        """Something was done."""
        if self._since is None:
            return
        seconds = round(self._clock() - self._since, 3)
        if self._is_told:
            self._record("bus.back", {"seconds": seconds})
        self._say(f"{self._name}: it works again, after {seconds:.1f} s")
        self._since = None
        self._is_told = False
        self._said = ""

    def _record(self, kind: str, data: dict[str, object]) -> bool:
        try:
            EVENTS.append(self._db, [Event(kind=kind, subject=self._name, data=data, created_at=time.time())])
        except StoreError:
            return False
        return True


def keep_going(step: Callable[[], int], watch: BusReporter, stop: threading.Event, *, idle_s: float) -> None:
    """Repeat a step; with nothing done pause shortly, after failures longer and longer."""
    pause = PAUSE_S
    while not stop.is_set():
        try:
            done = step()
        except (BusError, StoreError) as error:
            watch.failed(error)
            stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)
            continue
        watch.worked()
        pause = PAUSE_S
        if not done and idle_s:
            stop.wait(idle_s)


class Meter:
    """Counts what outbox and sink do, for Prometheus."""

    def __init__(self, registry: Registry) -> None:
        self.published = PUBLISHED.counter(registry)
        self._taken = TAKEN.counter(registry)
        for outcome in ("stored", "own", "dead", "opted_out"):
            self._taken.labels(outcome)

    def took(self, taken: Taken) -> None:
        """Count a window."""
        self._taken.labels("stored").inc(taken.stored)
        self._taken.labels("own").inc(taken.own)
        self._taken.labels("opted_out").inc(taken.opted_out)
        self._taken.labels("dead").inc(sum(taken.dead.values()))


def serve_bus(  # noqa: PLR0913 - a service with its settings
    db: LoomDB,
    url: str,
    bus: Bus,
    *,
    stop: threading.Event,
    say: Say,
    terms: Terms | None = None,
    meter: Meter | None = None,
) -> None:
    """Publish what is on record, and take in what others publish, until `stop` is set."""
    meter = meter or Meter(Registry())
    counts = Counter[str]()
    told = Counter[str]()
    outbox = Outbox(db, url, bus)
    sink = Sink(db, url, bus, terms=terms)

    has_streams = False

    def publish() -> int:
        nonlocal has_streams
        if not has_streams:
            _make_streams(bus, say)
            has_streams = True
        published = outbox.step()
        counts["published"] += published
        meter.published.inc(published)
        return published

    def take() -> int:
        taken = sink.step(wait_s=1.0)
        counts["taken in"] += taken.stored
        meter.took(taken)
        counts.update({f"dead: {cause}": number for cause, number in taken.dead.items()})
        return taken.total

    try:
        with ThreadPoolExecutor(2, thread_name_prefix="bus") as threads:
            loops = [
                threads.submit(keep_going, publish, BusReporter(db, "outbox", say), stop, idle_s=LOOK_S),
                threads.submit(keep_going, take, BusReporter(db, "sink", say), stop, idle_s=0.0),
            ]
            try:
                while not wait(loops, timeout=TELL_S, return_when=FIRST_EXCEPTION).done:
                    if new := counts - told:
                        say(", ".join(f"{name} {number}" for name, number in sorted(new.items())))
                        told = counts.copy()
            finally:
                stop.set()
            for loop in loops:
                loop.result()
    finally:
        outbox.close()
        sink.close()


def _make_streams(bus: Bus, say: Say) -> None:
    try:
        bus.make_streams()
    except BusAway:
        raise
    except (
        BusError
    ) as error:  # publishing needs neither the right to make streams nor ours: others may take the subjects
        say(f"streams: {type(error).__name__}: {error}")
