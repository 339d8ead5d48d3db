"""Continuous attempts: groups are trained as they complete, never staler than `max_staleness`.

The groups that start and those that are trained are noted in the hub in advance. So after a crash the updates since the
checkpoint are repeated from the same groups. Other attempts that the hub lacks are played again.
"""

import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from typing_extensions import override

from loomrl.algorithms.language.collector import TRIES, Collector
from loomrl.algorithms.language.measure import queue_wait
from loomrl.algorithms.language.underway import Underway
from loomrl.algorithms.timing import Pace, Phases
from loomrl.config import LanguagePolicy
from loomrl.errors import HubError
from loomrl.gym.curriculum import TaskDraw
from loomrl.gym.episode import Plan, failure_trajectory
from loomrl.hub import GroupPlan, HubStats, Lease, Selection
from loomrl.telemetry.metric import Metric
from loomrl.types import Failure, Group, Trajectory

_log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Interval between polls for changes in the hub that depend on time alone."""
_LATE = Failure("staleness", "Late", "too old to learn from before it had finished: raise hub.max_staleness")


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
    held: dict[str, Trajectory] = field(default_factory=dict)
    """Finished attempts that wait for the others, to be shaped together."""


@dataclass(kw_only=True)
class StreamCollector(Collector):
    """A source whose rollouts go on during updates. Groups are numbered in the order in which they begin.

    With `max_staleness` n, at most n + 1 updates' worth of groups are in flight or being trained. The older ones go
    first, so a group as fast as the others is trained in time. A later one is cancelled and counted.
    """

    players: Underway
    _next: int = field(default=0, init=False)
    """Number of the next group."""
    _flights: dict[str, _Flight] = field(default_factory=dict, init=False)
    _restored: Mapping[str, Sequence[Any]] | None = field(default_factory=dict, init=False)
    """Groups in flight from the checkpoint; None once the hub's part of them is known."""
    _playing: bool = field(default=False, init=False)
    """True while missing attempts are being played, which they are not while updates are repeated."""
    _arrived: list[Trajectory] = field(default_factory=list, init=False)
    """Attempts since the last update."""
    _released: int = field(default=0, init=False)
    """Groups released untrained before this update began."""

    def collect(self, policy: LanguagePolicy, clock: Phases) -> tuple[list[Group], dict[str, float]]:
        """The next update's groups, leased, and metrics of the attempts since the last one."""
        self.ended = None
        self.renew_leases()
        if self._restored is not None:
            self._recover(policy, self._restored)
            self._restored = None
        lease = None if self._playing else self._repeat()
        if lease is None:
            if not self._playing:
                self._playing = True
                self._start([name for name, flight in self._flights.items() if flight.missing], policy)
            self._cancel_late_attempts()
            self._released = _count_released(self.hub.stats())
            lease = self._wait(policy, clock)
        self.take(lease)
        trained = [self._flights.pop(group.id) for group in lease.groups if group.id in self._flights]
        self.players.drop([id for flight in trained for id in flight.missing])
        groups = self.in_order(lease.groups)
        waited: dict[str, float] = {Metric.TIME_QUEUE: queue_wait(groups, time.time())}
        return groups, self.measure(groups, self._observe()) | waited

    def timing(self, pace: Pace, clock: Phases) -> dict[str, float]:
        """The engines' rate during the whole update, and how much of it overlapped with learning."""
        return pace.overlapping()

    @override
    def end(self, reason: str) -> None:
        super().end(reason)
        self._playing = False
        self.players.drop([id for flight in self._flights.values() for id in flight.missing])

    def _wait(self, policy: LanguagePolicy, clock: Phases) -> Lease:
        """The lease of the current update, once there are groups for it."""
        count = self.experiment.rollout.groups_per_update
        hopeless = False
        look_at = 0.0
        while True:
            looking = time.monotonic() >= look_at
            if looking:
                look_at = time.monotonic() + LOOK_S
                self.renew_leases()
                stats = self.hub.stats(version=self.done)
                hopeless = _count_released(stats) - self._released >= TRIES * count
                self._admit(policy, stats, hopeless=hopeless)
            full = sum(not flight.missing for flight in self._flights.values()) >= count
            if looking or full:
                lease = self._lease(count, hopeless=hopeless)
                if lease.groups:
                    return lease
            with clock(Metric.TIME_ROLLOUT):
                finished = self.players.take_finished()
            failed = self._take_in(finished)
            if failed or (full and not looking):
                look_at = 0.0

    # -- what begins ------------------------------------------------------------------------------------------------

    def _admit(self, policy: LanguagePolicy, stats: HubStats, *, hopeless: bool) -> None:
        """Begin as many groups as are wanted and can be trained in time."""
        experiment = self.experiment
        done = self.done
        begun = sum(one.open + one.ready for one in stats.environments.values())
        if hopeless and not begun:
            raise HubError(f"update {done}: no group can be trained. Released so far: {self.causes()}.")
        ahead = experiment.hub.max_staleness + 1 - (done - policy.version)
        ahead = min(ahead, max(experiment.train.updates - done, 1))
        room = min(experiment.rollout.groups_per_update * ahead - begun, stats.room)
        if room <= 0 or hopeless:
            return
        seeds = [f"{experiment.seed}/{number}" for number in range(self._next, self._next + room)]
        draws = [self.draw(random.Random(seed)) for seed in seeds]
        self.notes.keep(self._plans_note(), json.dumps([_note(draw) for draw in draws]))
        self._start([self._begin(draw, policy) for draw in draws], policy)

    def _begin(self, draw: TaskDraw, policy: LanguagePolicy) -> str:
        """Add the next group to those in flight."""
        self._next += 1
        return self._fly(self._next - 1, draw, policy, since=self.cursor)

    def _fly(self, number: int, draw: TaskDraw, policy: LanguagePolicy, *, since: int) -> str:
        plans = self.siblings(str(number), draw, policy)
        name = plans[0].attempt.group
        self._flights[name] = _Flight(draw, policy.version, {plan.attempt.id: plan for plan in plans}, since)
        return name

    def _start(self, names: Sequence[str], policy: LanguagePolicy) -> None:
        """Play the missing attempts of these groups."""
        size = self.experiment.rollout.group_size
        flights = {name: self._flights[name] for name in names}
        plans = [GroupPlan(n, f.draw.family.environment, size, policy.version) for n, f in flights.items()]
        self.hub.open(plans)
        for flight in flights.values():
            flight.version = policy.version
            self.players.start(list(flight.missing.values()))

    # -- what comes back --------------------------------------------------------------------------------------------

    def _take_in(self, finished: Sequence[Trajectory]) -> bool:
        """Store missing attempts; True if one failed, which may have decided a group."""
        fresh = [t for t in finished if t.group in self._flights and t.id in self._flights[t.group].missing]
        if self.shaping.compares:
            fresh = self._whole_groups(fresh)
        if not fresh:
            return False
        fresh = self.store(list(self.shaping.shape(fresh)))
        self._arrived += fresh
        for trajectory in fresh:
            del self._flights[trajectory.group].missing[trajectory.id]
        return any(trajectory.failure for trajectory in fresh)

    def _whole_groups(self, fresh: Sequence[Trajectory]) -> list[Trajectory]:
        """The attempts of groups that are complete with these; the others are held."""
        for attempt in fresh:
            self._flights[attempt.group].held.setdefault(attempt.id, attempt)
        flights = [self._flights[name] for name in dict.fromkeys(attempt.group for attempt in fresh)]
        return [attempt for f in flights if f.held.keys() == f.missing.keys() for attempt in f.held.values()]

    def _cancel_late_attempts(self) -> None:
        """Cancel attempts that can no longer be trained: their first tokens are too old."""
        floor = self.done - self.experiment.hub.max_staleness
        late = [plan for f in self._flights.values() if f.version < floor for plan in f.missing.values()]
        self.players.drop([plan.attempt.id for plan in late])
        self._take_in([failure_trajectory(plan.attempt, _LATE) for plan in late])
        ready = {one.id for one in self.hub.ready(limit=10**6)}
        for name in [name for name, f in self._flights.items() if not f.missing and name not in ready]:
            del self._flights[name]

    def _observe(self) -> list[Failure]:
        """Show the quarantine the attempts since the last update; returns their failures."""
        arrived = self._arrived
        self._arrived = []
        for case in self.tasks.quarantine.observe(arrived):
            _log.warning("quarantined: %s", case)
        return [attempt.failure for attempt in arrived if attempt.failure is not None]

    # -- what is trained --------------------------------------------------------------------------------------------

    def _lease(self, count: int, *, hopeless: bool) -> Lease:
        """A lease of an update's groups, noted, or an empty one; of fewer groups if there cannot be more."""
        least = 1 if hopeless else count
        lease = self.acquire(partial(self.hub.lease, count, at_least=least))
        if lease.groups:
            self.notes.keep(self._update_note(), json.dumps([group.id for group in lease.groups]))
        return lease

    # -- after a crash ----------------------------------------------------------------------------------------------

    def _recover(self, policy: LanguagePolicy, restored: Mapping[str, Sequence[Any]]) -> None:
        """Find the groups begun after the checkpoint too, and the hub's part of all of them."""
        for number, (*note, since) in restored.items():
            self._fly(int(number), self._draw_of(note), policy, since=min(since, self.cursor))
        while (noted := self.notes.find(self._plans_note())) is not None:
            for note in json.loads(noted):
                self.tasks.skip(draw := self._draw_of(note))
                self._begin(draw, policy)
        after = min([self.cursor, *(flight.since for flight in self._flights.values())])
        for cursor, attempt in self.hub.replay(after=after, selection=Selection(run=self.run)):
            flight = self._flights.get(attempt.group)
            if flight is not None and attempt.id in flight.missing:
                del flight.missing[attempt.id]
                self._arrived += [attempt] if cursor > self.cursor else []
            self.reach([cursor])

    def _repeat(self) -> Lease | None:
        """The lease of an update that was already made before a crash, if it was."""
        noted = self.notes.find(self._update_note())
        if noted is None:
            return None
        groups = json.loads(noted)
        lease = self.acquire(partial(self.hub.lease, len(groups), at_least=len(groups), groups=groups))
        return lease if lease.groups else None

    def _plans_note(self) -> str:
        return f"{self.run}/plans/{self._next}"

    def _update_note(self) -> str:
        return f"{self.run}/update/{self.done}"

    def _draw_of(self, note: Sequence[Any]) -> TaskDraw:
        key, *drawn = note
        family = next(family for family in self.mixture.families if family.key == key)
        return TaskDraw(family, *drawn)

    @override
    def state_dict(self) -> dict[str, Any]:
        flights = {name.rpartition("/")[2]: [*_note(f.draw), f.since] for name, f in self._flights.items()}
        own = {"next": self._next, "flights": {**(self._restored or {}), **flights}}
        return super().state_dict() | {"stream": own}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if "stream" in state:  # not where rollouts and updates took turns
            self._next = state["stream"]["next"]
            self._restored = state["stream"]["flights"]


def _note(draw: TaskDraw) -> list[Any]:
    return [draw.family.key, draw.level, draw.seed, draw.memory, draw.preference, draw.opponent, draw.turns]


def _count_released(stats: HubStats) -> int:
    return sum(sum(one.released.values()) for one in stats.environments.values())
