"""One write transaction of the hub: the counters it changes and the positions it hands out."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, Table, bindparam, func, insert, select, update

from loomrl.hub.hub import EnvironmentStats
from loomrl.store.hub_tables import hub_counters
from loomrl.store.notes import hub_notes
from loomrl.types import End, Trajectory

RATE_S = 60.0
"""Seconds that `rate` looks back."""


@dataclass(slots=True)
class Counters:
    """One environment's counters."""

    environment: str
    weight: float = 1.0
    min_share: float = 0.0
    served: float = 0.0
    open: int = 0
    ready: int = 0
    leased: int = 0
    acked: int = 0
    released: dict[str, int] = field(default_factory=dict)
    trajectories: int = 0
    failures: int = 0
    late: int = 0
    tokens: int = 0
    success_sum: float = 0.0
    reward_sum: float = 0.0
    part_sums: dict[str, float] = field(default_factory=dict)
    recent: float = 0.0
    recent_at: float = 0.0

    @classmethod
    def of(cls, row: Row[Any]) -> "Counters":
        """The counters in a row of `hub_counters`."""
        stored = dict(row._mapping)
        return cls(**stored | {name: json.loads(stored[name]) for name in ("released", "part_sums")})

    def row(self) -> dict[str, Any]:
        """The row of `hub_counters`."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return values | {"released": json.dumps(self.released), "part_sums": json.dumps(self.part_sums)}

    def move(self, origin: str, state: str, *, cause: str = "") -> None:
        """Count one group from one state to another; "" is a new one."""
        if origin:
            setattr(self, origin, getattr(self, origin) - 1)
        if state == "released":
            self.released[cause] = self.released.get(cause, 0) + 1
        else:
            setattr(self, state, getattr(self, state) + 1)

    def count(self, trajectory: Trajectory, *, late: bool, now: float) -> None:
        """Count one stored attempt."""
        self.trajectories += 1
        self.late += late
        turns = [turn for thread in trajectory.sequences for turn in thread]
        self.tokens += sum(len(turn.tokens) for turn in turns if turn.tokens is not None)
        self.recent = self.recent * self._decay(now) + 1
        self.recent_at = max(now, self.recent_at)
        if trajectory.end is End.FAILED:
            self.failures += 1
            return
        self.success_sum += trajectory.reward.success
        self.reward_sum += trajectory.reward.total
        for name, part in trajectory.reward.parts.items():
            self.part_sums[name] = self.part_sums.get(name, 0.0) + part

    def stats(self, now: float) -> EnvironmentStats:
        """The counters as callers see them."""
        judged = max(self.trajectories - self.failures, 1)
        return EnvironmentStats(
            weight=self.weight,
            min_share=self.min_share,
            open=self.open,
            ready=self.ready,
            leased=self.leased,
            acked=self.acked,
            released=self.released,
            trajectories=self.trajectories,
            failures=self.failures,
            late=self.late,
            tokens=self.tokens,
            success=self.success_sum / judged,
            reward=self.reward_sum / judged,
            parts={name: total / judged for name, total in self.part_sums.items()},
            rate=self.recent * self._decay(now) / RATE_S,
        )

    def _decay(self, now: float) -> float:
        return math.exp(-max(now - self.recent_at, 0.0) / RATE_S)


class LeaseLedger:
    """State shared by one transaction's jobs. Its holder holds the write lock; `close` writes the counters."""

    def __init__(self, connection: Connection, now: float) -> None:
        self.connection = connection
        self.now = now
        rows = connection.execute(ALL_COUNTERS).all()
        self._stored = {row.environment: dict(row._mapping) for row in rows}
        self.environments = {row.environment: Counters.of(row) for row in rows}
        self._next: dict[str, int] = {}

    def counters(self, environment: str) -> Counters:
        """The counters of an environment; a new one begins with none."""
        if environment not in self.environments:
            self.environments[environment] = Counters(environment)
        return self.environments[environment]

    def positions(self, table: Table, count: int) -> range:
        """The next positions of a table. They grow in commit order, as this transaction holds the write lock."""
        if table.name not in self._next:
            there = self.connection.scalar(select(func.max(table.c.position))) or 0
            gone = self.connection.scalar(_NOTE, {"key": highest(table)}) or 0
            self._next[table.name] = max(there, int(gone)) + 1
        first = self._next[table.name]
        self._next[table.name] += count
        return range(first, first + count)

    def move(self, rows: Iterable[Any], origin: str, state: str, *, cause: str = "") -> None:
        """Count changed groups, given as rows that name their environment."""
        for row in rows:
            self.counters(row.environment).move(origin, state, cause=cause)

    def close(self) -> None:
        """Write the counters that changed."""
        rows = [one.row() for one in self.environments.values()]
        new = [row for row in rows if row["environment"] not in self._stored]
        changed = [row | {"at": row["environment"]} for row in rows if row != self._stored.get(row["environment"], row)]
        if new:
            self.connection.execute(insert(hub_counters), new)
        if changed:
            self.connection.execute(_SET_LINE, changed)


def highest(table: Table) -> str:
    """The key of the note that keeps a table's highest position beyond the deletion of its row."""
    return f"highest position in {table.name}"


ALL_COUNTERS = select(hub_counters)
_NOTE = select(hub_notes.c.text).where(hub_notes.c.key == bindparam("key"))
_SET_LINE = update(hub_counters).where(hub_counters.c.environment == bindparam("at"))
