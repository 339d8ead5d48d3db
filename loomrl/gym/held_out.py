"""Held-out tasks, which training never draws, and the attempts at them that compare policies."""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from loomrl.config import EvaluationConfig, PolicyChoice
from loomrl.errors import ConfigError
from loomrl.gym.curriculum import HELD_OUT_SEEDS, TaskDraw, TaskFamily, family_key
from loomrl.gym.episode import Attempt, Plan
from loomrl.gym.memory import MEMORY, MemoryBank, remembers
from loomrl.gym.preference import Preference
from loomrl.gym.task_mixture import MixtureMember, TaskMixture
from loomrl.types import End, Group, Source, Task, Trajectory

SEEDS_APART = 1_000_003
"""Distance between evaluation seeds: two share a task only if one has a million episodes."""


EPISODES = 200
LEVELS = (1, 5, 10)
"""Default number and levels of held-out tasks, where they are generated."""


def draw_held_out(mixture: TaskMixture, settings: EvaluationConfig) -> list[TaskDraw]:
    """Held-out tasks: divided among environments by their shares, and evenly among families and levels, even if there
    are fewer tasks than combinations. Where tasks are rows of a list, no row comes twice; without a number of episodes
    all of them come.
    """
    first = HELD_OUT_SEEDS.start + settings.seed * SEEDS_APART % len(HELD_OUT_SEEDS)
    by_environment: dict[str, list[TaskFamily]] = {}
    for family in mixture.families:
        by_environment.setdefault(family.environment, []).append(family)
    shares = {name: families[0].share for name, families in by_environment.items()}
    counts = _divide(settings.episodes or EPISODES, shares)
    draws: list[TaskDraw] = []
    for name, families in by_environment.items():
        rows = {family.key: _rows(mixture.members[name], family, settings) for family in families}
        everything = sum(len(listed or ()) for listed in rows.values())
        is_listed = all(listed is not None for listed in rows.values())
        count = everything if is_listed and settings.episodes is None else counts[name]
        draws += _draw_tasks(families, rows, settings.levels or LEVELS, min(count, everything) if is_listed else count)
    if not by_environment:
        raise ConfigError("environments=[]: there is nothing to evaluate on. Name one, such as --env Math.")
    if not draws:
        raise ConfigError(f"evaluation.levels={list(settings.levels or ())}: no held-out row has one of these levels.")
    return [draw if draw.seed >= 0 else replace(draw, seed=first + index) for index, draw in enumerate(draws)]


def _divide(count: int, shares: Mapping[str, float]) -> dict[str, int]:
    """`count` divided by shares; the rest after rounding goes to the largest remainders."""
    whole = {name: math.floor(count * share / math.fsum(shares.values())) for name, share in shares.items()}
    left = sorted(shares, key=lambda name: whole[name] - count * shares[name])[: count - sum(whole.values())]
    return {name: number + (name in left) for name, number in whole.items()}


def _rows(member: MixtureMember, family: TaskFamily, settings: EvaluationConfig) -> list[tuple[int, int]] | None:
    """Level and seed of each row of a family that is held out, in an order of the evaluation's seed; None if its tasks
    are generated.
    """
    counts = {level: member.count(family.name, level, held_out=True) for level in member.levels(family.name)}
    if None in counts.values():
        return None
    wanted = [level for level in counts if settings.levels is None or level in (0, *settings.levels)]
    rows = [(level, HELD_OUT_SEEDS.start + row) for level in wanted for row in range(counts[level] or 0)]
    random.Random(f"{settings.seed}/{family.key}").shuffle(rows)
    return rows


def _draw_tasks(
    families: Sequence[TaskFamily], rows: Mapping[str, list[tuple[int, int]] | None], levels: Sequence[int], count: int
) -> list[TaskDraw]:
    """`count` tasks of one environment, family by family. A seed of -1 is assigned later."""
    if count < len(families):  # not the first of them: neighbours are alike
        families = [families[index * len(families) // count] for index in range(count)]
    draws: list[TaskDraw] = []
    round_trip = math.lcm(len(families) or 1, len(levels))
    index = 0
    while len(draws) < count and any(rows[family.key] != [] for family in families):
        family = families[index % len(families)]
        level = levels[(index + index // round_trip) % len(levels)]
        listed = rows[family.key]
        if listed is None:
            draws.append(TaskDraw(family, family.at(level), -1))
        elif listed:
            draws.append(TaskDraw(family, *listed.pop()))
        index += 1
    return draws


def list_left_out(mixture: TaskMixture, tasks: Iterable[Task]) -> list[str]:
    """The families that none of these held-out tasks is of, and of lists the number of rows that are not among them."""
    seen: dict[str, set[tuple[int, int]]] = {}
    for task in tasks:
        seen.setdefault(family_key(task), set()).add((task.level, task.seed))
    missing: list[str] = []
    for family in mixture.families:
        listed = _rows(mixture.members[family.environment], family, EvaluationConfig())
        rest = 0 if listed is None else len(listed) - len(seen.get(family.key, ()))
        if family.key not in seen:
            missing.append(family.key)
        elif rest:
            missing.append(f"{rest} of {len(listed or ())} rows of {family.key}")
    return missing


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
            wave = self._free
            self._free = []
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

    def play_all(self, play: Callable[[Sequence[Plan]], Iterable[Trajectory]]) -> list[Trajectory]:
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
        return replace(plan, attempt=replace(attempt, task=self._memories.attach(attempt.task)))


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
    tasks = draw_held_out(mixture, settings)
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
