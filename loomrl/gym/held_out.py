"""Tasks that no training draws, and the attempts at them by which policies are compared."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from loomrl.config import EvaluationConfig, PolicyChoice
from loomrl.gym.curriculum import HELD_OUT_SEEDS, Draw, family_key
from loomrl.gym.episode import Attempt
from loomrl.gym.host.local import Plan
from loomrl.gym.memory import MEMORY, MemoryBank, remembers
from loomrl.gym.mixture import Cast
from loomrl.types import End, Group, Source, Trajectory

SEEDS_APART = 1_000_003
"""So that two evaluation seeds share no task unless one has a million episodes."""


def held_out(cast: Cast, settings: EvaluationConfig) -> list[Draw]:
    """Tasks that no training draws, evenly over families and levels, also where there are fewer tasks than of both."""
    families, levels = cast.families, settings.levels
    first = HELD_OUT_SEEDS.start + settings.seed * SEEDS_APART % len(HELD_OUT_SEEDS)
    round_trip = math.lcm(len(families), len(levels))
    return [
        Draw(families[index % len(families)], levels[(index + index // round_trip) % len(levels)], first + index)
        for index in range(settings.episodes)
    ]


class HeldOut:
    """One attempt at each of these tasks by the policy called `name`, wave after wave: play all of one, then go on.

    Where environments remember, an attempt begins with what the last successful one before it in its family left: a
    wave has at most one attempt of such a family, and they follow each other in the order of the tasks, however many
    are played at once. Nothing is remembered but from attempts of this object. All else is in the first wave.
    """

    def __init__(self, cast: Cast, settings: EvaluationConfig, *, run: str, name: str, policy: PolicyChoice) -> None:
        self.plans = _plans(cast, settings, run=run, name=name, policy=policy)
        remembering = {name for name, member in cast.members.items() if remembers(member.environment)}
        self._rows: dict[str, list[Plan]] = {}
        """Family → its attempts to come, of families that may remember."""
        self._free: list[Plan] = []
        for plan in self.plans:
            task = plan.attempt.task
            row = self._rows.setdefault(family_key(task), []) if task.environment in remembering else self._free
            row.append(plan)
        self._memories = MemoryBank()
        self._played: dict[str, Trajectory] = {}

    def __len__(self) -> int:
        """How many attempts there are in all."""
        return len(self.plans)

    def waves(self) -> Iterator[list[Plan]]:
        """What can be played next. Every trajectory of a wave is to be given to `take` before the next is drawn."""
        while self._free or self._rows:
            wave, self._free = self._free, []
            for row in self._rows.values():
                wave.append(self._remembering(row.pop(0)))
            self._rows = {family: row for family, row in self._rows.items() if row}
            yield wave

    def take(self, trajectory: Trajectory) -> None:
        """Take in one attempt of the present wave."""
        self._played[trajectory.id] = trajectory
        family = family_key(trajectory.task)
        if family not in self._rows:
            return
        self._memories.commit(Group(trajectory.group, (trajectory,)))
        if trajectory.end is not End.FAILED and MEMORY not in trajectory.extra:
            self._free += self._rows.pop(family)  # it remembers nothing, so they need not wait for each other

    def played(self, play: Callable[[Sequence[Plan]], Iterable[Trajectory]]) -> list[Trajectory]:
        """All trajectories, in the order of the tasks; `play` plays a wave."""
        for wave in self.waves():
            for trajectory in play(wave):
                self.take(trajectory)
        return self.trajectories

    @property
    def done(self) -> int:
        """How many attempts were taken in."""
        return len(self._played)

    @property
    def trajectories(self) -> list[Trajectory]:
        """What was taken in, in the order of the tasks."""
        return [self._played[plan.attempt.id] for plan in self.plans if plan.attempt.id in self._played]

    def _remembering(self, plan: Plan) -> Plan:
        attempt = plan.attempt
        return replace(plan, attempt=replace(attempt, task=self._memories.given(attempt.task)))


def _plans(cast: Cast, settings: EvaluationConfig, *, run: str, name: str, policy: PolicyChoice) -> list[Plan]:
    """The same for every run."""
    plans = []
    for index, draw in enumerate(held_out(cast, settings)):
        member = cast.member(draw)
        id = f"{run}/{name}/{index}"
        attempt = Attempt(
            id=id,
            task=member.task(draw),
            group=id,
            source=Source.EVALUATION,
            run=run,
            snapshot=member.snapshot,
        )
        seed = f"{name}/{draw.seed}/{index}"
        plans.append(Plan(attempt=attempt, policy=policy, settings=member.config.settings, seed=seed))
    return plans
