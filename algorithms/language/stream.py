"""A collector with continuous attempts: groups are trained as they complete, never staler than `max_staleness`.

The groups that start and those that are trained are noted in the hub in advance. So after a crash the updates since the
checkpoint are repeated from the same groups. Other attempts that the hub lacks are played again.
"""

import json
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from loomrl.algorithms.language.collector import TRIES, Collector
from loomrl.config import LanguagePolicy
from loomrl.errors import HubError
from loomrl.gym.curriculum import TaskDraw
from loomrl.gym.episode import Plan, failure_trajectory
from loomrl.hub import GroupPlan, HubStats, Lease, Selection
from loomrl.types import Failure, Group, Trajectory

_log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Interval between polls for changes in the hub that depend on time alone."""
_LATE = Failure("staleness", "Late", "too old to learn from before it had finished: raise hub.max_staleness")


class Players(Protocol):
    """Plays attempts in the background."""

    def start(self, plans: Sequence[Plan]) -> None:
        """Play these plans."""

    def drop(self, ids: Collection[str]) -> None:
        """Cancel these attempts."""

    def finished(self) -> list[Trajectory]:
        """The results since the last call; may wait a moment."""


@dataclass(slots=True)
class _Flight:
    """A group that has begun and is not trained yet."""

    draw: TaskDraw
    version: int
    """The policy version with which it began."""
    missing: dict[str, Plan]
    """Its attempts that the hub lacks."""
    since: int
    """A hub cursor before the first of its attempts."""


class Stream:
    """The groups of a collector, numbered in the order in which they begin: `next` is the number of the next one.

    With `max_staleness` n, at most n + 1 updates' worth of groups are in flight or being trained. The older ones go
    first, so a group as fast as the others is trained in time. A later one is cancelled and counted.
    """

    def __init__(self, collector: Collector, players: Players) -> None:
        self._collector = collector
        self._players = players
        self._next = 0
        self._flights: dict[str, _Flight] = {}
        self._restored: Mapping[str, Sequence[Any]] | None = {}
        """Groups in flight from the checkpoint; None once the hub's part of them is known."""
        self._playing = False
        """True while missing attempts are being played, which they are not while updates are repeated."""
        self._arrived: list[Trajectory] = []
        """Attempts since the last update."""
        self._released = 0
        """Groups released untrained before this update began."""
        collector.run_ahead(self)

    def attempt(
        self, policy: LanguagePolicy, wait: Callable[[Callable[[], list[Trajectory]]], list[Trajectory]]
    ) -> tuple[list[Group], list[Failure]]:
        """The next update's groups, leased, and the failures since the last one; `wait` is called for every wait."""
        collector = self._collector
        collector.hold()
        if self._restored is not None:
            self._recover(policy, self._restored)
            self._restored = None
        lease = None if self._playing else self._again()
        if lease is None:
            if not self._playing:
                self._playing = True
                self._start([name for name, flight in self._flights.items() if flight.missing], policy)
            self._cancel_late_attempts()
            self._released = _released(collector.hub.stats())
            lease = self._wait(policy, wait)
        collector.take(lease)
        trained = [self._flights.pop(group.id) for group in lease.groups if group.id in self._flights]
        self._players.drop([id for flight in trained for id in flight.missing])
        return collector.in_order(lease.groups), self._observe()

    def pause(self) -> None:
        """Play nothing until the next attempt."""
        self._playing = False
        self._players.drop([id for flight in self._flights.values() for id in flight.missing])

    def _wait(
        self, policy: LanguagePolicy, wait: Callable[[Callable[[], list[Trajectory]]], list[Trajectory]]
    ) -> Lease:
        """The lease of the current update, once there are groups for it."""
        count = self._collector.experiment.rollout.groups_per_update
        hopeless = False
        look_at = 0.0
        while True:
            looking = time.monotonic() >= look_at
            if looking:
                look_at = time.monotonic() + LOOK_S
                self._collector.hold()
                stats = self._collector.hub.stats(version=self._collector.done)
                hopeless = _released(stats) - self._released >= TRIES * count
                self._admit(policy, stats, hopeless=hopeless)
            full = sum(not flight.missing for flight in self._flights.values()) >= count
            if looking or full:
                lease = self._lease(count, hopeless=hopeless)
                if lease.groups:
                    return lease
            failed = self._take_in(wait(self._players.finished))
            if failed or (full and not looking):
                look_at = 0.0

    # -- what begins ------------------------------------------------------------------------------------------------

    def _admit(self, policy: LanguagePolicy, stats: HubStats, *, hopeless: bool) -> None:
        """Begin as many groups as are wanted and can be trained in time."""
        experiment = self._collector.experiment
        done = self._collector.done
        begun = sum(one.open + one.ready for one in stats.environments.values())
        if hopeless and not begun:
            raise HubError(f"update {done}: no group can be trained. Released so far: {self._collector.causes()}.")
        ahead = experiment.hub.max_staleness + 1 - (done - policy.version)
        ahead = min(ahead, max(experiment.train.updates - done, 1))
        room = min(experiment.rollout.groups_per_update * ahead - begun, stats.room)
        if room <= 0 or hopeless:
            return
        draws = [self._draw(number) for number in range(self._next, self._next + room)]
        self._collector.notes.keep(self._plans_note(), json.dumps([_note(draw) for draw in draws]))
        self._start([self._begin(draw, policy) for draw in draws], policy)

    def _draw(self, number: int) -> TaskDraw:
        rng = random.Random(f"{self._collector.experiment.seed}/{number}")
        return self._collector.draw(rng)

    def _begin(self, draw: TaskDraw, policy: LanguagePolicy) -> str:
        """Add the next group to those in flight."""
        self._next += 1
        return self._fly(self._next - 1, draw, policy, since=self._collector.cursor)

    def _fly(self, number: int, draw: TaskDraw, policy: LanguagePolicy, *, since: int) -> str:
        plans = self._collector.siblings(str(number), draw, policy)
        name = plans[0].attempt.group
        self._flights[name] = _Flight(draw, policy.version, {plan.attempt.id: plan for plan in plans}, since)
        return name

    def _start(self, names: Sequence[str], policy: LanguagePolicy) -> None:
        """Play the missing attempts of these groups."""
        size = self._collector.experiment.rollout.group_size
        flights = {name: self._flights[name] for name in names}
        plans = [GroupPlan(n, f.draw.family.environment, size, policy.version) for n, f in flights.items()]
        self._collector.hub.open(plans)
        for flight in flights.values():
            flight.version = policy.version
            self._players.start(list(flight.missing.values()))

    # -- what comes back --------------------------------------------------------------------------------------------

    def _take_in(self, finished: Sequence[Trajectory]) -> bool:
        """Store missing attempts; True if one failed, which may have decided a group."""
        fresh = [t for t in finished if t.group in self._flights and t.id in self._flights[t.group].missing]
        if not fresh:
            return False
        fresh = self._collector.store(list(self._collector.shaping.shape(fresh)))
        self._arrived += fresh
        for trajectory in fresh:
            del self._flights[trajectory.group].missing[trajectory.id]
        return any(trajectory.failure for trajectory in fresh)

    def _cancel_late_attempts(self) -> None:
        """Cancel attempts that can no longer be trained: their first tokens are too old."""
        floor = self._collector.done - self._collector.experiment.hub.max_staleness
        late = [plan for f in self._flights.values() if f.version < floor for plan in f.missing.values()]
        self._players.drop([plan.attempt.id for plan in late])
        self._take_in([failure_trajectory(plan.attempt, _LATE) for plan in late])
        ready = {one.id for one in self._collector.hub.ready(limit=10**6)}
        for name in [name for name, f in self._flights.items() if not f.missing and name not in ready]:
            del self._flights[name]

    def _observe(self) -> list[Failure]:
        """Show the quarantine the attempts since the last update; returns their failures."""
        arrived = self._arrived
        self._arrived = []
        for case in self._collector.tasks.quarantine.observe(arrived):
            _log.warning("quarantined: %s", case)
        return [attempt.failure for attempt in arrived if attempt.failure is not None]

    # -- what is trained --------------------------------------------------------------------------------------------

    def _lease(self, count: int, *, hopeless: bool) -> Lease:
        """A lease of an update's groups, noted, or an empty one; of fewer groups if there cannot be more."""
        least = 1 if hopeless else count
        lease = self._collector.lent(partial(self._collector.hub.lease, count, at_least=least))
        if lease.groups:
            self._collector.notes.keep(self._update_note(), json.dumps([group.id for group in lease.groups]))
        return lease

    # -- after a crash ----------------------------------------------------------------------------------------------

    def _recover(self, policy: LanguagePolicy, restored: Mapping[str, Sequence[Any]]) -> None:
        """Find the groups begun after the checkpoint too, and the hub's part of all of them."""
        hub = self._collector.hub
        for number, (*note, since) in restored.items():
            self._fly(int(number), self._drawn(note), policy, since=min(since, self._collector.cursor))
        while (noted := self._collector.notes.find(self._plans_note())) is not None:
            for note in json.loads(noted):
                self._collector.tasks.skip(draw := self._drawn(note))
                self._begin(draw, policy)
        after = min([self._collector.cursor, *(flight.since for flight in self._flights.values())])
        for cursor, attempt in hub.replay(after=after, selection=Selection(run=self._collector.run)):
            flight = self._flights.get(attempt.group)
            if flight is not None and attempt.id in flight.missing:
                del flight.missing[attempt.id]
                self._arrived += [attempt] if cursor > self._collector.cursor else []
            self._collector.reach([cursor])

    def _again(self) -> Lease | None:
        """The lease of an update that was already made before a crash, if it was."""
        noted = self._collector.notes.find(self._update_note())
        if noted is None:
            return None
        groups = json.loads(noted)
        lend = partial(self._collector.hub.lease, len(groups), at_least=len(groups), groups=groups)
        lease = self._collector.lent(lend)
        return lease if lease.groups else None

    def _plans_note(self) -> str:
        return f"{self._collector.run}/plans/{self._next}"

    def _update_note(self) -> str:
        return f"{self._collector.run}/update/{self._collector.done}"

    def _drawn(self, note: Sequence[Any]) -> TaskDraw:
        key, *drawn = note
        family = next(family for family in self._collector.mixture.families if family.key == key)
        return TaskDraw(family, *drawn)

    def state_dict(self) -> dict[str, Any]:
        """The groups in flight, as JSON."""
        flights = {name.rpartition("/")[2]: [*_note(f.draw), f.since] for name, f in self._flights.items()}
        return {"next": self._next, "flights": {**(self._restored or {}), **flights}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._next = state["next"]
        self._restored = state["flights"]


def _note(draw: TaskDraw) -> list[Any]:
    return [draw.family.key, draw.level, draw.seed, draw.memory, draw.preference, draw.opponent, draw.turns]


def _released(stats: HubStats) -> int:
    return sum(sum(one.released.values()) for one in stats.environments.values())
