"""Held-out tasks, which training never draws, and the attempts at them that compare policies."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from loomrl.config import EvaluationConfig, PolicyChoice
from loomrl.errors import ConfigError
from loomrl.gym.curriculum import HELD_OUT_SEEDS, Draw, family_key
from loomrl.gym.episode import Attempt
from loomrl.gym.host.local import Plan
from loomrl.gym.memory import MEMORY, MemoryBank, remembers
from loomrl.gym.preference import Preference
from loomrl.gym.task_mixture import TaskMixture
from loomrl.types import End, Group, Source, Trajectory

SEEDS_APART = 1_000_003
"""Distance between evaluation seeds: two share a task only if one has a million episodes."""


def held_out(mixture: TaskMixture, settings: EvaluationConfig) -> list[Draw]:
    """Held-out tasks, spread evenly over families and levels, even if there are fewer tasks than combinations."""
    families, levels = mixture.families, settings.levels
    first = HELD_OUT_SEEDS.start + settings.seed * SEEDS_APART % len(HELD_OUT_SEEDS)
    round_trip = math.lcm(len(families), len(levels))
    return [
        Draw(families[index % len(families)], levels[(index + index // round_trip) % len(levels)], first + index)
        for index in range(settings.episodes)
    ]


class HeldOut:
    """The attempts at each of these tasks by the policy called `name`, or those by every preference, in waves: finish
    one wave before the next.

    In environments with memory, an attempt begins with the memory left by the last successful attempt of its family. A
    wave has at most one attempt of such a family, in the order of the tasks, however many run at once. Only attempts of
    this object leave memories. All other attempts are in the first wave.
    """

    def __init__(
        self,
        mixture: TaskMixture,
        settings: EvaluationConfig,
        *,
        run: str,
        name: str,
        policy: PolicyChoice,
        preferences: Sequence[Preference] = (),
    ) -> None:
        self.plans = _plans(mixture, settings, run=run, name=name, policy=policy, preferences=preferences)
        remembering = {name for name, member in mixture.members.items() if remembers(member.environment)}
        if remembering and settings.attempts > 1:
            raise ConfigError(
                f"evaluation.attempts={settings.attempts}: attempts in {', '.join(remembering)} begin with what "
                "earlier ones remember, so several at a task are no equals. Leave it at 1."
            )
        self._rows: dict[str, list[Plan]] = {}
        """Family → its remaining attempts, for families with memory."""
        self._free: list[Plan] = []
        for plan in self.plans:
            task = plan.attempt.task
            row = self._rows.setdefault(family_key(task), []) if task.environment in remembering else self._free
            row.append(plan)
        self._memories = MemoryBank()
        self._played: dict[str, Trajectory] = {}

    def __len__(self) -> int:
        """The number of attempts in all."""
        return len(self.plans)

    def waves(self) -> Iterator[list[Plan]]:
        """The next attempts. Give every trajectory of a wave to `take` before drawing the next wave."""
        while self._free or self._rows:
            wave, self._free = self._free, []
            for row in self._rows.values():
                wave.append(self._remembering(row.pop(0)))
            self._rows = {family: row for family, row in self._rows.items() if row}
            yield wave

    def take(self, trajectory: Trajectory) -> None:
        """Record one attempt of the current wave."""
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
        """The number of attempts recorded."""
        return len(self._played)

    @property
    def trajectories(self) -> list[Trajectory]:
        """The recorded trajectories, in the order of the tasks."""
        return [self._played[plan.attempt.id] for plan in self.plans if plan.attempt.id in self._played]

    def _remembering(self, plan: Plan) -> Plan:
        attempt = plan.attempt
        return replace(plan, attempt=replace(attempt, task=self._memories.given(attempt.task)))


def _plans(
    mixture: TaskMixture,
    settings: EvaluationConfig,
    *,
    run: str,
    name: str,
    policy: PolicyChoice,
    preferences: Sequence[Preference],
) -> list[Plan]:
    """The plans, equal for every run; with preferences, all tasks by each of them."""
    plans = []
    tasks = held_out(mixture, settings)
    asked = [replace(task, preference=preference) for preference in preferences for task in tasks]
    size = settings.attempts
    for index, draw in enumerate(draw for draw in asked or tasks for _ in range(size)):
        member = mixture.member(draw)
        attempt = Attempt(
            id=f"{run}/{name}/{index}",
            task=member.task(draw),
            group=f"{run}/{name}/{index - index % size}",
            source=Source.EVALUATION,
            run=run,
            snapshot=member.snapshot,
        )
        seed = f"{name}/{draw.seed}/{index}"
        plans.append(Plan(attempt=attempt, policy=policy, settings=member.config.settings, seed=seed))
    return plans
