"""The collection of one run: curriculum → attempts → hub → lease → ack, with nothing lost or trained twice.

The hub's ack is the commit point: a checkpoint is staged with the leases it was trained on, and counts once the hub has
the acks (`loomrl.run.ledger`). Attempts that the hub has already are not made again.
"""

import logging
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Self

from loomrl.algorithms.language.group_replay import GroupReplay, replay_metrics
from loomrl.algorithms.language.league import League, needed_versions, open_league
from loomrl.algorithms.language.lesson import Lesson, lesson_of
from loomrl.algorithms.language.measure import measure, staleness
from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.language.resolved import Algorithms, Resolved, stops_of
from loomrl.algorithms.language.steering import PreferenceSource
from loomrl.algorithms.timing import Pace, Phases
from loomrl.config import Experiment, LanguagePolicy, PolicyGradient
from loomrl.errors import Conflict, HubError, LeaseLost
from loomrl.gym.curriculum import TaskDraw, TaskOutcome, family_key
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.memory import MemoryBank
from loomrl.gym.rewards import Shaping, open_shaping
from loomrl.gym.task_mixture import TaskMixture, TaskSource, open_task_source
from loomrl.hub import GroupPlan, Hub, Lease, Selection
from loomrl.hub.hub import MOST_AT_ONCE
from loomrl.run.ledger import VersionLedger
from loomrl.store import LoomDB
from loomrl.store.notes import Notes
from loomrl.store.runs import Claim, hold
from loomrl.telemetry.metric import Metric
from loomrl.types import Failure, Group, Trajectory

_log = logging.getLogger(__name__)

TRIES = 3
"""Number of tries of an update, each with other tasks, while every group of it fails."""


@dataclass(kw_only=True)
class Collector:
    """The attempts of one run that its runners play, and the leases on them: the base of two sources.

    `done` counts its updates, and is the version of the policy that acts.
    """

    experiment: Experiment
    run: str
    hub: Hub
    notes: Notes
    """The run's notes of what it began, from which it repeats updates after a crash."""
    mixture: TaskMixture
    tasks: TaskSource
    clock: Callable[[], float]
    done: int = 0
    cursor: int = 0
    """Behind the attempts of all updates that are done. Those of later ones, if there are any, come after it."""
    leases: dict[str, float] = field(default_factory=dict)
    """Leases trained on since the last checkpoint, in order, and when each expires."""
    reached: int = 0
    """Behind the attempts of the present update, too."""
    shaping: Shaping = field(default_factory=lambda: Shaping(()))
    """Adds the experiment's own parts to rewards."""
    memories: MemoryBank = field(default_factory=MemoryBank)
    """Memories that groups leave to later ones."""
    steered: PreferenceSource | None = None
    """Draws preferences, if there are several objectives."""
    replay: GroupReplay | None = None
    """Groups to learn from again, if there is replay."""
    league: League | None = None
    """Draws opponents, if an environment's settings ask for it."""
    ended: str | None = None
    """The reason why it ended before its last update."""
    held_out: Sequence[Sample] = ()
    """None: attempts are evaluated on tasks."""
    check_claim: Callable[[], None] = lambda: None
    """RunTaken once another process leads the run."""

    @classmethod
    def of(
        cls,
        experiment: Experiment,
        run: str,
        hub: Hub,
        notes: Notes,
        mixture: TaskMixture,
        *,
        steered: PreferenceSource | None = None,
        **own: Any,
    ) -> Self:
        """The source of a run at its beginning; `own` are the fields of the subclass."""
        tasks = open_task_source(
            mixture, experiment.curriculum, seed=experiment.seed, quarantine=experiment.rollout.quarantine
        )
        replay = experiment.rollout.replay
        seed = experiment.seed
        return cls(
            experiment=experiment,
            run=run,
            hub=hub,
            notes=notes,
            mixture=mixture,
            tasks=tasks,
            shaping=open_shaping(experiment.rewards, seed=seed),
            steered=steered,
            replay=None if replay is None else GroupReplay(replay, hub, seed, experiment.store_url),
            league=open_league(experiment, mixture),
            clock=time.time,
            **own,
        )

    @property
    def limit(self) -> int:
        """Updates in all."""
        return self.experiment.train.updates

    @property
    def over(self) -> str | None:
        """The reason why no update is left."""
        return self.ended or (f"all {self.done} updates done" if self.done >= self.limit else None)

    def end(self, reason: str) -> None:
        """Make no further update, unless one is asked for."""
        self.ended = reason

    def samples_with(self, version: int) -> bool:
        """True if later groups are sampled with this version, so that engines need its weights."""
        return version % self.experiment.rollout.publish_every == 0

    def lesson(self, groups: Sequence[Group], algorithm: Algorithms) -> Lesson:
        """The samples of this update: those of its groups, and of replayed ones."""
        skips = isinstance(algorithm, PolicyGradient) and algorithm.cut_off == "skip"
        resolved = Resolved(self.experiment, algorithm)
        stop = stops_of(resolved.origin, trust_remote_code=resolved.model.trust_remote_code) if skips else None
        again = self.replay.draw(self.done) if self.replay else []
        made = lesson_of(algorithm, groups, version=self.done, stop=stop, again=again)
        multipliers = () if self.steered is None else self.steered.multipliers
        dropped = made.dropped + self.experiment.rollout.groups_per_update - len(groups)
        metrics = replay_metrics(groups, again, self.done) if self.replay else {}
        return replace(made, dropped=dropped, multipliers=multipliers, metrics=metrics)

    def measure(self, groups: Sequence[Group], failures: Sequence[Failure]) -> dict[str, float]:
        """Metrics of this update's attempts."""
        found = measure(groups, failures, family_of=family_key) | staleness(groups, self.done)
        for part in (self.steered, self.league):
            found |= {} if part is None else part.metrics(usable(groups))
        return found

    def score(self, mean: float | None) -> float | None:
        """The best version has the highest: this mean success unless it is 0, or the rating in a league."""
        return mean or None if self.league is None else self.league.rating

    def advance(self, groups: Sequence[Group]) -> None:
        """Update `done + 1` was made from these groups."""
        attempts = usable(groups)
        outcomes = (TaskOutcome(family_key(t.task), t.task.level, t.reward.success) for t in attempts)
        self.tasks.observe(outcomes)
        self.shaping.observe(attempts)
        if self.steered is not None:
            self.steered.observe(attempts)
        if self.replay is not None:
            self.replay.observe(groups, self.done)
        if self.league is not None:
            self.league.observe(groups)
        for group in groups:
            self.memories.commit(group)
        self.done += 1
        self.cursor = self.reached

    def store(self, played: Sequence[Trajectory]) -> list[Trajectory]:
        """Put attempts into the hub, and reach them.

        Where another process that leads this run, or led it until now, has stored an attempt of the same name, that
        one holds.
        """
        parts = [played[first : first + MOST_AT_ONCE] for first in range(0, len(played), MOST_AT_ONCE)]
        return [attempt for part in parts or [played] for attempt in self._store_part(part)]

    def _store_part(self, played: Sequence[Trajectory]) -> list[Trajectory]:
        while True:
            try:
                self.reach(self.hub.append(played) if played else ())
            except Conflict as error:
                _log.warning("another process leads, or led, run %s: %s", self.run, error)
                ids = Selection(ids=tuple(attempt.id for attempt in played))
                theirs = {attempt.id: attempt for _, attempt in self.hub.replay(selection=ids)}
                if not theirs:
                    raise
                played = [theirs.get(attempt.id, attempt) for attempt in played]
            else:
                return list(played)

    def renew_leases(self) -> None:
        """Renew every lease of which less than half its term is left."""
        soon = self.clock() + self.experiment.hub.lease_s / 2
        for id, expires_at in self.leases.items():
            if expires_at < soon:
                self.leases[id] = self.hub.renew(id)

    def acquire(self, lend: Callable[..., Lease]) -> Lease:
        """The present update's lease: one that a killed process held is taken over, a lost one replaced.

        RunTaken if it was lost to another process that leads the run now.
        """
        for attempt in count():
            id = f"{self.run}/{self.done}/{attempt}"
            try:
                return lend(version=self.done, consumer=self.run, lease_id=id)
            except LeaseLost:
                self.check_claim()
        raise AssertionError("unreachable")

    def draw(self, rng: random.Random) -> TaskDraw:
        """The curriculum's next task, with the memory that its family has now and all else that is drawn for it."""
        drawn = self.tasks.draw(rng)
        return replace(
            drawn,
            memory=self.memories.snapshot(drawn.family.key),
            preference=None if self.steered is None else self.steered.draw(rng),
            opponent=None if self.league is None else self.league.draw(rng, drawn),
            turns=None if (limit := self.experiment.rollout.turn_limit) is None else limit.after(self.done),
        )

    def siblings(self, name: str, draw: TaskDraw, policy: LanguagePolicy) -> list[Plan]:
        """The attempts of a group; what they are follows from its name in the run, and the draw."""
        member = self.mixture.member(draw)
        group = f"{self.run}/{name}"
        size = self.experiment.rollout.group_size
        first = Attempt(
            id=f"{group}/0",
            task=member.task(draw),
            group=group,
            group_size=size,
            version=policy.version,
            run=self.run,
            snapshot=member.snapshot,
        )
        return [
            Plan(
                attempt=replace(first, id=f"{group}/{sibling}"),
                policy=policy,
                settings=member.settings(draw),
                seed=f"{self.experiment.seed}/{name}/{sibling}",
            )
            for sibling in range(size)
        ]

    # -- what others know of it -------------------------------------------------------------------------------------

    def settle(self, state: Mapping[str, Any]) -> None:
        """Ack everything that a checkpoint was trained on; LeaseLost if another process holds one."""
        self.renew_leases()
        for lease_id in state["leases"]:
            self.hub.ack(lease_id, version=state["done"])
        self.leases = {}

    def ledger(self, db: LoomDB, claim: Claim) -> VersionLedger:
        """The run's versions, each of which counts once the hub has the acks of what it was trained on."""
        self.check_claim = partial(hold, db, claim)
        return VersionLedger(
            experiment=self.experiment,
            db=db,
            clock=self.clock,
            claim=claim,
            file="line.json",  # the name in checkpoints of every version
            data=lambda state: {"leases": state["leases"], "cursor": state["cursor"]},
            settle=self.settle,
            held=needed_versions,
            parent=self.experiment.parent,
        )

    def take(self, lease: Lease) -> None:
        """Hold this lease until it is acked."""
        self.leases[lease.id] = lease.expires_at

    def reach(self, cursors: Iterable[int]) -> None:
        """Attempts of the present update are at these cursors."""
        self.reached = max([self.reached, *cursors])

    @staticmethod
    def in_order(groups: Iterable[Group]) -> list[Group]:
        """Groups and their attempts finish in any order; sums must not depend on it."""
        ordered = sorted(groups, key=lambda group: (len(group.id), group.id))
        return [Group(g.id, tuple(sorted(g.trajectories, key=_by_plan)), g.cause) for g in ordered]

    def causes(self) -> dict[str, int]:
        """The number of released groups by cause."""
        return {cause: n for stats in self.hub.stats().environments.values() for cause, n in stats.released.items()}

    @property
    def _parts(self) -> dict[str, Any]:
        """The parts with a state of their own, by name."""
        parts = {
            "curriculum": self.tasks,
            "memories": self.memories,
            "shaping": self.shaping,
            "steered": self.steered,
            "replay": self.replay,
            "league": self.league,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def checkpoint_state(self, url: str) -> dict[str, Any]:
        """The state for a checkpoint of the present version at this URL, with which it may join the league."""
        if self.league is not None:
            self.league.admit(self.done, url)
        return self.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        parts = {name: part.state_dict() for name, part in self._parts.items()}
        return {"done": self.done, "cursor": self.cursor, "leases": [*self.leases], **parts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; the leases in it are settled."""
        self.done = state["done"]
        self.cursor = state["cursor"]
        self.reached = state["cursor"]
        is_ours = state.get("run", self.run) == self.run
        for name, part in self._parts.items():
            if name in state and (name != "league" or is_ours):  # another run's versions are no members of ours
                part.load_state_dict(state[name])


@dataclass(kw_only=True)
class TurnCollector(Collector):
    """A source whose rollouts and updates take turns."""

    play: Callable[[Sequence[Plan]], Iterable[Trajectory]]

    def collect(self, policy: LanguagePolicy, clock: Phases) -> tuple[list[Group], dict[str, float]]:
        """This update's groups, leased, and metrics of their attempts.

        Attempts that the hub has already are not played again. If all of them failed, other tasks are tried; families
        that keep failing are quarantined.
        """
        failures: list[Failure] = []
        self.ended = None
        self.renew_leases()
        for tries in range(TRIES):
            plans = {plan.attempt.id: plan for plan in self.plan(policy, tries)}
            stored = list(self.hub.replay(after=self.cursor, selection=Selection(run=self.run)))
            attempts = {t.id: t for _, t in stored if t.id in plans}
            with clock(Metric.TIME_ROLLOUT):
                fresh = list(self.play([plan for id, plan in plans.items() if id not in attempts]))
            played = self.store(sorted(self.shaping.shape(fresh), key=_by_plan))
            self.reach(c for c, t in stored if t.id in plans)
            everything = [*attempts.values(), *played]
            failures += [attempt.failure for attempt in everything if attempt.failure is not None]
            for case in self.tasks.quarantine.observe(everything):
                _log.warning("quarantined: %s", case)
            names = [*dict.fromkeys(plan.attempt.group for plan in plans.values())]
            # By name: groups that a killed process left of later updates stay in the hub.
            lease = self.acquire(partial(self.hub.lease, len(names), groups=names))
            if lease.groups:
                self.take(lease)
                groups = self.in_order(lease.groups)
                return groups, self.measure(groups, failures)
        raise HubError(
            f"update {self.done}: no group can be trained. Released so far: {self.causes()}.{_most_frequent(failures)}"
        )

    def timing(self, pace: Pace, clock: Phases) -> dict[str, float]:
        """The engines' rate during rollouts."""
        return pace.in_turns(clock.spent(Metric.TIME_ROLLOUT))

    def plan(self, policy: LanguagePolicy, tries: int) -> list[Plan]:
        """The attempts of this update. Drawing moves the tasks on: once an update, from the state in its checkpoint."""
        rng = random.Random(f"{self.experiment.seed}/{self.done}/{tries}")
        rollout = self.experiment.rollout
        plans = []
        groups = []
        for index in range(tries * rollout.groups_per_update, (tries + 1) * rollout.groups_per_update):
            member = self.mixture.member(draw := self.draw(rng))
            name = f"{self.done}/{index}"
            groups.append(GroupPlan(f"{self.run}/{name}", member.name, rollout.group_size, policy.version))
            plans += self.siblings(name, draw, policy)
        self.hub.open(groups)
        return plans


def usable(groups: Iterable[Group]) -> list[Trajectory]:
    """The attempts that did not fail."""
    return [attempt for group in groups for attempt in group.usable]


def _by_plan(attempt: Trajectory) -> tuple[int, str]:
    return len(attempt.id), attempt.id


def _most_frequent(failures: Sequence[Failure]) -> str:
    """A sentence with the commonest failure, numbers aside; empty if nothing failed."""
    if not failures:
        return ""
    forms = [(failure.boundary, re.sub(r"\d+", "#", failure.message)) for failure in failures]
    form, count = Counter(forms).most_common(1)[0]
    first = failures[forms.index(form)]
    return f" {count} of {len(failures)} attempts that failed said: {first.boundary}: {first.message}"
