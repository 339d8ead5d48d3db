"""Conditions that raise an alert once when they begin, and an event when they end."""

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loomrl.config.loop import Alarms
from loomrl.coordinator.contract import alert_event
from loomrl.coordinator.decision import Alert
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.notes import find_note, put_note

CLEARED = "alert.cleared"
WINDOW_S = 3600.0
SAMPLE_S = 30.0
LEAST = 20
"""Trajectories in the window without which a share means nothing."""
PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The inputs of the alarms at a moment."""

    collected: int = 0
    """Collected trajectories of the last hour."""
    lost: int = 0
    bus_away_s: float = 0.0
    unreachable: str = ""
    """Reason why trainings cannot be reached; empty if they can."""
    stuck_s: float = 0.0
    """Seconds for which a release could not begin."""
    stuck_by: str = ""


def alarms(settings: Alarms, signs: Signs) -> list[Alert]:
    """The conditions that hold now."""
    found = []
    tried = signs.collected + signs.lost
    if tried >= LEAST and signs.lost > settings.collection * tried:
        share = f"{signs.lost} of {tried} trajectories of the last hour could not be collected"
        found.append(Alert("collection_errors", share))
    if signs.bus_away_s > 60 * settings.bus_minutes:
        found.append(Alert("bus_away", f"the bus has been away for {signs.bus_away_s / 60:.0f} minutes"))
    if signs.unreachable:
        found.append(Alert("training_unreachable", signs.unreachable))
    if signs.stuck_s > 60 * settings.stuck_minutes:
        found.append(Alert("release_stuck", f"for {signs.stuck_s / 60:.0f} minutes: {signs.stuck_by}"))
    return found


def record_alarms(db: LoomDB, endpoint: str, now: Sequence[Alert], *, at: float) -> list[Alert]:
    """Record the alarms that have begun or ended; return those that have begun. Each is recorded once, by the first
    process."""
    key = f"alarms/{endpoint}"
    with db.read() as connection:
        before = json.loads(find_note(connection, key) or "{}")
    if {alert.name for alert in now} == before.keys():
        return []
    with db.write() as connection:
        before = json.loads(find_note(connection, key) or "{}")
        begun = [alert for alert in now if alert.name not in before]
        names = {alert.name for alert in now}
        ended = {name: since for name, since in before.items() if name not in names}
        put_note(connection, key, json.dumps({alert.name: before.get(alert.name, at) for alert in now}))
        EVENTS.insert(
            connection,
            [
                *(alert_event(alert, endpoint, at=at) for alert in begun),
                *(_cleared_event(endpoint, name, at - since, at) for name, since in ended.items()),
            ],
        )
    return begun


def open_alarms(db: LoomDB, endpoint: str) -> Mapping[str, float]:
    """The conditions that hold, and since when."""
    with db.read() as connection:
        found: Mapping[str, float] = json.loads(find_note(connection, f"alarms/{endpoint}") or "{}")
    return found


def _cleared_event(endpoint: str, name: str, seconds: float, at: float) -> Event:
    return Event(kind=CLEARED, subject=endpoint, data={"alert": name, "seconds": round(seconds, 3)}, created_at=at)


@dataclass(slots=True)
class Collection:
    """Samples of the collected and lost counts during the last hour."""

    _samples: deque[tuple[float, int, int]] = field(default_factory=deque)

    def last_hour(self, collected: int, lost: int, *, at: float) -> tuple[int, int]:
        """The increase of the counts within the last hour, or since the first look."""
        if not self._samples or at >= self._samples[-1][0] + SAMPLE_S:
            self._samples.append((at, collected, lost))
        while len(self._samples) > 1 and self._samples[1][0] <= at - WINDOW_S:
            self._samples.popleft()
        _, before, lost_before = self._samples[0]
        return collected - before, lost - lost_before


@dataclass(slots=True)
class BusWatch:
    """Follows the events about the bus: since when it is away, and how many messages were rejected."""

    db: LoomDB
    rejected: int = 0
    gone: dict[str, float] = field(default_factory=dict)
    """Outbox, sink or inbox → time since which it cannot use the bus."""
    _cursors: dict[str, int] = field(default_factory=dict)

    @property
    def away_since(self) -> float | None:
        """Time since which the bus is away; None while it is there."""
        return min(self.gone.values(), default=None)

    def look(self) -> None:
        """Read what is new."""
        said = [event for kind in ("bus.away", "bus.refused", "bus.back") for event in self._new(kind)]
        for _, event in sorted(said, key=lambda each: each[0]):
            if event.kind == "bus.back":
                self.gone.pop(event.subject, None)
            else:
                self.gone.setdefault(event.subject, event.created_at)
        self.rejected += sum(sum(event.data.values()) for _, event in self._new("bus.rejected"))

    def _new(self, kind: str) -> list[tuple[int, Event]]:
        found: list[tuple[int, Event]] = []
        while page := EVENTS.read(self.db, after=self._cursors.get(kind, 0), limit=PAGE, kind=kind):
            self._cursors[kind] = page[-1][0]
            found += page
        return found
