"""The collection of one run: curriculum → attempts → hub → lease → ack, with nothing lost or trained twice.

The hub's ack is the commit point: a checkpoint is staged with the leases it was trained on, and counts once the hub has
the acks (`loomrl.run.ledger`). Attempts that the hub has already are not made again.
"""

import logging
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Protocol

from loomrl.algorithms.language.league import League, held, open_league
from loomrl.algorithms.language.lesson import Lesson, lesson_of
from loomrl.algorithms.language.measure import measure
from loomrl.algorithms.language.origin import stops_of
from loomrl.algorithms.language.replay import Replay
from loomrl.algorithms.language.replay import measured as replayed
from loomrl.algorithms.language.resolved import Algorithms, Resolved
from loomrl.algorithms.language.steering import Steered
from loomrl.config import Experiment, LanguagePolicy, PolicyGradient
from loomrl.errors import Conflict, HubError, LeaseLost
from loomrl.gym.curriculum import TaskDraw, TaskOutcome, family_key
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.memory import MemoryBank
from loomrl.gym.rewards import Shaping, open_shaping
from loomrl.gym.task_mixture import TaskMixture, TaskSource, open_task_source
from loomrl.hub import GroupPlan, Hub, Lease, Selection, open_hub
from loomrl.hub.shard import MOST_AT_ONCE
from loomrl.run.ledger import VersionLedger
from loomrl.store import RECONNECT_S, LoomDB, beside, open_store
from loomrl.store.notes import Notes
from loomrl.store.runs import Claim, hold
from loomrl.types import Failure, Group, Trajectory

_log = logging.getLogger(__name__)

TRIES = 3
"""Number of tries of an update, each with other tasks, while every group of it fails."""


class Ahead(Protocol):
    """Groups begun before their turn, which a collector resumes with."""

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""


@dataclass(slots=True)
class Collector:
    """Collects attempts for one run and holds their leases.

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
    steered: Steered | None = None
    """Draws preferences, if there are several objectives."""
    replay: Replay | None = None
    """Groups to learn from again, if there is replay."""
    league: League | None = None
    """Draws opponents, if an environment's settings ask for it."""
    stream: Ahead | None = None
    """Groups begun beyond the present update, if rollouts do not wait for it."""
    still_ours: Callable[[], None] = lambda: None
    """RunTaken once another process leads the run."""

    def attempt(
        self, policy: LanguagePolicy, play: Callable[[Sequence[Plan]], Iterable[Trajectory]]
    ) -> tuple[list[Group], list[Failure]]:
        """This update's groups, leased, and what failed on the way to them.

        What the hub has already is not played again. If all of it failed, other tasks are tried; families that keep
        failing are quarantined.
        """
        failures: list[Failure] = []
        self.hold()
        for tries in range(TRIES):
            plans = {plan.attempt.id: plan for plan in self._plans(policy, tries)}
            stored = list(self.hub.replay(after=self.cursor, selection=Selection(run=self.run)))
            attempts = {t.id: t for _, t in stored if t.id in plans}
            fresh = play([plan for id, plan in plans.items() if id not in attempts])
            played = self.store(sorted(self.shaping.shape(fresh), key=_by_plan))
            self.reach(c for c, t in stored if t.id in plans)
            everything = [*attempts.values(), *played]
            failures += [attempt.failure for attempt in everything if attempt.failure is not None]
            for case in self.tasks.quarantine.observe(everything):
                _log.warning("quarantined: %s", case)
            lease = self._lease(dict.fromkeys(plan.attempt.group for plan in plans.values()))
            if lease.groups:
                self.take(lease)
                return self.in_order(lease.groups), failures
        raise HubError(
            f"update {self.done}: no group can be trained. Released so far: {self.causes()}.{_most_frequent(failures)}"
        )

    @property
    def limit(self) -> int:
        """Updates in all."""
        return self.experiment.train.updates

    @property
    def over(self) -> str | None:
        """The reason why no update is left."""
        return f"all {self.done} updates done" if self.done >= self.limit else None

    def lesson(self, groups: Sequence[Group], algorithm: Algorithms) -> Lesson:
        """The samples of this update: those of its groups, and of replayed ones."""
        skips = isinstance(algorithm, PolicyGradient) and algorithm.cut_off == "skip"
        resolved = Resolved(self.experiment, algorithm)
        stop = stops_of(resolved.origin, trust_remote_code=resolved.model.trust_remote_code) if skips else None
        again = self.replay.draw(self.done) if self.replay else []
        made = lesson_of(algorithm, groups, version=self.done, stop=stop, again=again)
        multipliers = () if self.steered is None else self.steered.multipliers
        dropped = made.dropped + self.experiment.rollout.groups_per_update - len(groups)
        metrics = replayed(groups, again, self.done) if self.replay else {}
        return replace(made, dropped=dropped, multipliers=multipliers, metrics=metrics)

    def measured(self, groups: Sequence[Group], failures: Sequence[Failure]) -> dict[str, float]:
        """Metrics of this update's attempts."""
        found = measure(groups, failures, family_of=family_key)
        for part in (self.steered, self.league):
            found |= {} if part is None else part.measured(usable(groups))
        return found

    def score(self, mean: float | None) -> float | None:
        """By which the best version is chosen: this mean success unless it is 0, or the rating in a league."""
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

    def admit(self, url: str) -> None:
        """The present version gets a checkpoint at this URL, so that it may join the league."""
        if self.league is not None:
            self.league.admit(self.done, url)

    def store(self, played: Sequence[Trajectory]) -> list[Trajectory]:
        """Put attempts into the hub, and reach them.

        Where another process that leads this run, or led it until now, has stored an attempt of the same name, that
        one holds.
        """
        parts = [played[first : first + MOST_AT_ONCE] for first in range(0, len(played), MOST_AT_ONCE)]
        return [attempt for part in parts or [played] for attempt in self._stored(part)]

    def _stored(self, played: Sequence[Trajectory]) -> list[Trajectory]:
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

    def hold(self) -> None:
        """Renew every lease of which less than half its term is left."""
        soon = self.clock() + self.experiment.hub.lease_s / 2
        for id, expires_at in self.leases.items():
            if expires_at < soon:
                self.leases[id] = self.hub.renew(id)

    def _lease(self, groups: Collection[str]) -> Lease:
        """Those of these groups that can be trained; what a killed process left of later updates stays in the hub."""
        return self.lent(partial(self.hub.lease, len(groups), groups=list(groups)))

    def lent(self, lend: Callable[..., Lease]) -> Lease:
        """The present update's lease: one that a killed process held is taken over, a lost one replaced.

        RunTaken if it was lost to another process that leads the run now.
        """
        for attempt in count():
            id = f"{self.run}/{self.done}/{attempt}"
            try:
                return lend(version=self.done, consumer=self.run, lease_id=id)
            except LeaseLost:
                self.still_ours()
        raise AssertionError("unreachable")

    def _plans(self, policy: LanguagePolicy, tries: int) -> list[Plan]:
        """The attempts of this update: the same after a restart, because they follow from seed and update alone."""
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
        """Ack everything that a checkpoint was trained on; LeaseLost where somebody else has got it."""
        self.hold()
        for lease_id in state["leases"]:
            self.hub.ack(lease_id, version=state["done"])
        self.leases = {}

    def ledger(self, db: LoomDB, claim: Claim) -> VersionLedger:
        """The run's versions, each of which counts once the hub has the acks of what it was trained on."""
        self.still_ours = partial(hold, db, claim)
        return VersionLedger(
            experiment=self.experiment,
            db=db,
            clock=self.clock,
            claim=claim,
            file="line.json",  # the name in checkpoints of every version
            data=lambda state: {"leases": state["leases"], "cursor": state["cursor"]},
            settle=self.settle,
            held=held,
            parent=self.experiment.parent,
        )

    def take(self, lease: Lease) -> None:
        """Hold this lease until it is acked."""
        self.leases[lease.id] = lease.expires_at

    def reach(self, cursors: Iterable[int]) -> None:
        """Attempts of the present update are at these cursors."""
        self.reached = max([self.reached, *cursors])

    def run_ahead(self, stream: Ahead) -> None:
        """From now on groups begin before their turn."""
        self.stream = stream

    @staticmethod
    def in_order(groups: Iterable[Group]) -> list[Group]:
        """Groups and their attempts finish in any order; sums must not depend on it."""
        ordered = sorted(groups, key=lambda group: (len(group.id), group.id))
        return [Group(g.id, tuple(sorted(g.trajectories, key=_by_plan)), g.cause) for g in ordered]

    def causes(self) -> dict[str, int]:
        """The number of released groups by cause."""
        return {cause: n for stats in self.hub.stats().environments.values() for cause, n in stats.released.items()}

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {
            "done": self.done,
            "cursor": self.cursor,
            "leases": [*self.leases],
            "curriculum": self.tasks.state_dict(),
            "memories": self.memories.state_dict(),
            "shaping": self.shaping.state_dict(),
            "steered": self.steered and self.steered.state_dict(),
            "replay": self.replay and self.replay.state_dict(),
            "league": self.league and self.league.state_dict(),
            "stream": self.stream and self.stream.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`; what it was trained on is settled."""
        self.done = state["done"]
        self.cursor = state["cursor"]
        self.reached = state["cursor"]
        self.tasks.load_state_dict(state["curriculum"])
        self.memories.load_state_dict(state["memories"])
        self.shaping.load_state_dict(state["shaping"])
        if self.steered is not None:
            self.steered.load_state_dict(state["steered"])
        if self.replay is not None:
            self.replay.load_state_dict(state["replay"])
        if self.league is not None and state["league"] and state.get("run", self.run) == self.run:  # or a new one
            self.league.load_state_dict(state["league"])
        if self.stream is not None:
            self.stream.load_state_dict(state["stream"])


def usable(groups: Iterable[Group]) -> list[Trajectory]:
    """The attempts that did not fail."""
    return [attempt for group in groups for attempt in group.usable]


def _by_plan(attempt: Trajectory) -> tuple[int, str]:
    return len(attempt.id), attempt.id


def open_collector(
    experiment: Experiment,
    run: str,
    hub: Hub,
    notes: Notes,
    mixture: TaskMixture,
    *,
    steered: Steered | None = None,
) -> Collector:
    """The collector of a run at its beginning."""
    tasks = open_task_source(
        mixture, experiment.curriculum, seed=experiment.seed, quarantine=experiment.rollout.quarantine
    )
    return Collector(
        experiment=experiment,
        run=run,
        hub=hub,
        notes=notes,
        mixture=mixture,
        tasks=tasks,
        shaping=open_shaping(experiment.rewards),
        steered=steered,
        replay=None if (replay := experiment.rollout.replay) is None else Replay(replay, hub, experiment.seed),
        league=open_league(experiment, mixture),
        clock=time.time,
    )


@contextmanager
def opened_collector(
    experiment: Experiment, run: str, mixture: TaskMixture, *, steered: Steered | None = None
) -> Iterator[Collector]:
    """The collector of a run with its own hub, a LoomDB beside the experiment's."""
    url = beside(experiment.store_url, run)
    groups = experiment.rollout.groups_per_update * experiment.train.checkpoint_every
    with (
        open_hub(
            url, experiment.hub, groups_per_update=groups, environments=experiment.environments, reconnect_s=RECONNECT_S
        ) as hub,
        open_store(url, reconnect_s=RECONNECT_S) as store,
    ):
        yield open_collector(experiment, run, hub, Notes(store), mixture, steered=steered)


def _most_frequent(failures: Sequence[Failure]) -> str:
    """A sentence with the commonest failure, numbers aside; empty if nothing failed."""
    if not failures:
        return ""
    forms = [(failure.boundary, re.sub(r"\d+", "#", failure.message)) for failure in failures]
    form, count = Counter(forms).most_common(1)[0]
    first = failures[forms.index(form)]
    return f" {count} of {len(failures)} attempts that failed said: {first.boundary}: {first.message}"
