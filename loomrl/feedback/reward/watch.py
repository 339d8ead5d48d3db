"""Detection of reward hacking: easy components rise while hard ones fall.

Rewards are looked at in windows of a fixed size, each once, when it is full, and compared with the windows before it:
every score with some of those before, in an order known beforehand, by bets (`loomrl.release.paired`). So the bounds of
the difference hold for any distribution within 0..1 and any number of scores. Window k spends 6/(pi*k)^2 of the error
rate, divided among its bounds: over all windows, however many there are, the chance that a component whose mean stays
is ever found to rise or to fall is at most the error rate.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from loomrl.config.rewards import RewardWatch
from loomrl.feedback.reward.pipeline import COMPLETION, EFFICIENCY, FEEDBACK, QUALITY
from loomrl.release.guard import Better, Guard
from loomrl.release.paired import compare_pairs
from loomrl.store.db import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.notes import find_note, put_note
from loomrl.store.rewards import are_there, first_scores

LADDER = (FEEDBACK, COMPLETION, QUALITY, EFFICIENCY)
"""Components from the hardest to please to the easiest; custom ones come last."""
LEAST = 30
"""Scores in a window, and in those before it, that a component needs to be looked at."""
Scores = Mapping[str, Sequence[float]]
Row = tuple[int, Mapping[str, float]]
"""A reward's position, and its first scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """A component's mean in a window and before it, with bounds of the difference."""

    component: str
    before: float
    now: float
    count_before: int
    count: int
    low: float
    high: float

    @property
    def rises(self) -> bool:
        """Proved higher than before."""
        return self.low > 0

    @property
    def falls(self) -> bool:
        """Proved lower than before."""
        return self.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Two components that diverge: a hard one falls while an easier one rises."""

    rises: Movement
    falls: Movement

    @property
    def reason(self) -> str:
        """One line for people."""
        up = self.rises
        down = self.falls
        return (
            f"{down.component} falls from {down.before:.3f} to {down.now:.3f} while {up.component} rises from "
            f"{up.before:.3f} to {up.now:.3f}"
        )


def movements(before: Scores, now: Scores, *, number: int, error_rate: float) -> list[Movement]:
    """Every component in window `number`, counted from 1, against those before; the hardest to please first."""
    names = [name for name in now if len(now[name]) >= LEAST and len(before.get(name, ())) >= LEAST]
    spent = error_rate * 6 / (math.pi * number) ** 2 / (2 * max(1, len(names)))
    return [_movement(name, before[name], now[name], spent) for name in sorted(names, key=_rung)]


def alarms(moved: Sequence[Movement]) -> list[Alarm]:
    """Each component that falls while an easier one rises; `moved` has the hardest to please first."""
    return [
        Alarm(rises=up, falls=down)
        for place, down in enumerate(moved)
        for up in moved[place + 1 :]
        if down.falls and up.rises
    ]


@dataclass(frozen=True, slots=True)
class Windows:
    """The state of a watch on record: how many windows it looked at, and the position before each of the last ones."""

    number: int = 0
    starts: tuple[int, ...] = (0,)


@dataclass(slots=True)
class HackingWatch:
    """The watch over an endpoint's rewards. Any number may watch: each window is looked at once."""

    db: LoomDB
    endpoint: str
    settings: RewardWatch
    _past: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    """Position before a window → its scores."""

    @property
    def _key(self) -> str:
        return f"reward-watch/{self.endpoint}"

    def look(self, *, at: float) -> list[Alarm]:
        """Look at every window that has become full; alarms are on record as events `reward.alarm`."""
        found: list[Alarm] = []
        while (raised := self._look(at)) is not None:
            found += raised
        return found

    def _look(self, at: float) -> list[Alarm] | None:
        """The alarms of the next window; None if it is not full, or somebody else looked at it."""
        with self.db.read() as connection:
            note = find_note(connection, self._key)
        windows = Windows() if note is None else Windows(**json.loads(note))
        *earlier, start = windows.starts
        if not are_there(self.db, self.endpoint, after=start, count=self.settings.window):
            return None
        rows = self._rows(start)
        self._past[start] = _by_component(rows)
        number = windows.number + bool(earlier)
        raised = self._compare(earlier, start, number)
        data = {"from": rows[0][0], "to": rows[-1][0], "window": number, "error_rate": self.settings.error_rate}
        new = Windows(number, (*windows.starts, rows[-1][0])[-1 - self.settings.reference :])
        with self.db.write() as connection:
            if find_note(connection, self._key) != note:
                return None
            put_note(connection, self._key, json.dumps(asdict(new)))
            EVENTS.insert(connection, [_event(alarm, self.endpoint, data, at) for alarm in raised])
        return raised

    def _compare(self, earlier: Sequence[int], start: int, number: int) -> list[Alarm]:
        if not earlier:
            return []
        before: dict[str, list[float]] = {}
        for each in earlier:
            if each not in self._past:
                self._past[each] = _by_component(self._rows(each))
            for name, scores in self._past[each].items():
                before.setdefault(name, []).extend(scores)
        self._past = {each: self._past[each] for each in (*earlier, start)}
        return alarms(movements(before, self._past[start], number=number, error_rate=self.settings.error_rate))

    def _rows(self, start: int) -> list[Row]:
        return first_scores(self.db, self.endpoint, after=start, limit=self.settings.window)


def _by_component(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Every trajectory's first score of a component, in order: later ones of the same are no evidence of their own."""
    found: dict[str, list[float]] = {}
    for _, first in rows:
        for name, score in first.items():
            found.setdefault(name, []).append(score)
    return found


def _rung(name: str) -> tuple[int, str]:
    return (LADDER.index(name) if name in LADDER else len(LADDER), name)


def _movement(name: str, before: Sequence[float], now: Sequence[float], error_rate: float) -> Movement:
    pairs = list(zip(*_blocks(before, now), strict=True))
    guard = Guard(metric=name, better=Better.HIGHER)
    found = compare_pairs(guard, pairs, error_rate=error_rate, planned=len(pairs))
    return Movement(
        component=name,
        before=math.fsum(before) / len(before),
        now=math.fsum(now) / len(now),
        count_before=len(before),
        count=len(now),
        low=found.low,
        high=found.high,
    )


def _blocks(*samples: Sequence[float]) -> list[list[float]]:
    """Block means of consecutive scores, equally many from each sample; the smaller sample has blocks of one score."""
    count = min(map(len, samples))
    means = []
    for sample in samples:
        size = len(sample) // count
        blocks = np.asarray(sample[: count * size], np.float64).reshape(count, size)
        means.append(blocks.mean(1).tolist())
    return means


def _event(alarm: Alarm, endpoint: str, data: Mapping[str, Any], at: float) -> Event:
    evidence = {"reason": alarm.reason, "rises": asdict(alarm.rises), "falls": asdict(alarm.falls), **data}
    return Event(kind="reward.alarm", subject=endpoint, data=evidence, created_at=at)
