"""Counts of what is on record, kept beside it: they survive restarts, and what is deleted later stays counted.

A tally reads a log by cursor and stores cursor and counts together, in one note of LoomDB. Any number of processes may
advance a tally: the one that comes second goes on from the first one's cursor.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from loomrl.observability.family import Family
from loomrl.store import LoomDB
from loomrl.store.notes import find_note, put_note

PATIENCE_S = 2.0
"""Time for one advance; what is left is counted by the next one."""
_SEPARATOR = "\x1f"


@dataclass(slots=True)
class Counts:
    """Counts by family and labels."""

    cursor: int = 0
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    """Name → labels, joined → value. Of a histogram the labels are its buckets' bounds, and `sum`."""

    def add(self, family: Family, *labels: str, by: float = 1.0) -> None:
        """Count one more."""
        assert len(labels) == len(family.labels), f"{family.name} has the labels {family.labels}"
        values = self.values.setdefault(family.name, {})
        key = _SEPARATOR.join(labels)
        values[key] = values.get(key, 0.0) + by

    def observe(self, family: Family, value: float) -> None:
        """One more value of a histogram."""
        values = self.values.setdefault(family.name, {})
        bound = next((f"{float(bound)}" for bound in family.buckets if value <= bound), "+Inf")
        values[bound] = values.get(bound, 0.0) + 1
        values["sum"] = values.get("sum", 0.0) + value

    def merge(self, other: "Counts") -> None:
        """Add another one's counts."""
        for name, values in other.values.items():
            mine = self.values.setdefault(name, {})
            for key, value in values.items():
                mine[key] = mine.get(key, 0.0) + value


Read = Callable[[int], Sequence[tuple[int, Any]]]
"""The next records past a cursor, each with its own."""
Fold = Callable[[Counts, Sequence[tuple[int, Any]]], None]


class Tally:
    """A log, counted once."""

    def __init__(self, db: LoomDB, name: str, read: Read, fold: Fold) -> None:
        self._db = db
        self._key = f"tally/{name}"
        self._read = read
        self._fold = fold

    def advance(self, *, patience_s: float = PATIENCE_S) -> Counts:
        """Count what is new; the counts since the beginning."""
        until = time.monotonic() + patience_s
        with self._db.read() as connection:
            note = find_note(connection, self._key)
        counts = _counts(note)
        while page := self._read(counts.cursor):
            self._fold(counts, page)
            counts.cursor = page[-1][0]
            note, counts = self._store(note, counts)
            if time.monotonic() > until:
                break
        return counts

    def _store(self, before: str | None, counts: Counts) -> tuple[str | None, Counts]:
        """Store the note and the counts; if another process was first, take over its own."""
        text = json.dumps({"cursor": counts.cursor, "values": counts.values})
        with self._db.write() as connection:
            there = find_note(connection, self._key)
            if there != before:
                return there, _counts(there)
            put_note(connection, self._key, text)
        return text, counts


def _counts(note: str | None) -> Counts:
    return Counts() if note is None else Counts(**json.loads(note))


def counter_metric(counts: Counts, family: Family, known: Sequence[tuple[str, ...]] = ()) -> CounterMetricFamily:
    """The counts of a family as Prometheus reads them; those that are `known` are 0 before the first one."""
    found = family.counted()
    values = dict(counts.values.get(family.name, {}))
    for labels in known:
        values.setdefault(_SEPARATOR.join(labels), 0.0)
    for key, value in sorted(values.items()):
        found.add_metric(key.split(_SEPARATOR) if family.labels else [], value)
    return found


def spread(counts: Counts, family: Family) -> HistogramMetricFamily:
    """The values of a histogram as Prometheus reads them."""
    values = counts.values.get(family.name, {})
    found = HistogramMetricFamily(family.name, family.meaning)
    found.add_metric([], list(_cumulative(family, values)), values.get("sum", 0.0))
    return found


def _cumulative(family: Family, values: dict[str, float]) -> Iterator[tuple[str, float]]:
    total = 0.0
    for bound in (*(f"{float(bound)}" for bound in family.buckets), "+Inf"):
        total += values.get(bound, 0.0)
        yield bound, total
