"""Shared by all checks: the environment under test, the tasks to try, a way to play them, and the results as data."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from loomrl.gym.base import LEVELS, BaseEnvironment
from loomrl.gym.episode import Attempt, EpisodeLimits, run_episode
from loomrl.gym.policy import PolicyFactory
from loomrl.types import Task, Trajectory


@dataclass(frozen=True, slots=True)
class EnvironmentCheck:
    """One promise: kept or not, the finding, and its figures."""

    name: str
    passed: bool
    detail: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of all checks of an environment."""

    environment: str
    version: str
    checks: tuple[EnvironmentCheck, ...]

    @property
    def passed(self) -> bool:
        """True if every promise is kept."""
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        lines = [f"{'ok  ' if check.passed else 'FAIL'}  {check.name:<12} {check.detail}" for check in self.checks]
        verdict = "passes" if self.passed else "does not pass"
        return "\n".join([*lines, f"{self.environment} {self.version} {verdict}."])


LIMITS = EpisodeLimits(turn_timeout_s=10, episode_timeout_s=25)
ALL_LEVELS = range(1, LEVELS + 1)
SOME_LEVELS = (1, 5, LEVELS)


@dataclass(frozen=True, slots=True)
class CheckProbe:
    """The environment under test. `tell` says where the check is, so that the waiting process can name a hang.

    `share` is the part of the oracle's and the opponents' episodes, and of the attacks, that is tried.
    """

    kind: type[BaseEnvironment]
    settings: Mapping[str, Any]
    tell: Callable[[str], None]
    step_limit_s: float
    share: float

    def open(self) -> BaseEnvironment:
        """A fresh environment."""
        return self.kind(self.settings)

    @property
    def families(self) -> tuple[str, ...]:
        """The families with these settings."""
        return self.open().families

    @property
    def guess_floor(self) -> Mapping[str, float]:
        """The success rate of guessing by family, with these settings."""
        return self.open().guess_floor

    def tasks(self, levels: Iterable[int], seeds: Iterable[int]) -> Iterator[Task]:
        """The task of every family, level and seed."""
        environment = self.open()
        for family in environment.families:
            for level in levels:
                for seed in seeds:
                    yield environment.task(family, level, seed)

    async def play(self, task: Task, policy: PolicyFactory, environment: BaseEnvironment | None = None) -> Trajectory:
        """One episode of a policy, by default in a fresh environment."""
        self.tell(case(task))
        environment = environment or self.open()
        actor = policy(environment, random.Random(task.seed))
        return await run_episode(environment, actor, Attempt(id="check", task=task, group="check"), limits=LIMITS)


def case(task: Task) -> str:
    """A task's name in a report."""
    return f"{task.family}, level {task.level}, seed {task.seed}"


def trouble(trajectory: Trajectory) -> str:
    """The failure of an episode in one line, or an empty text."""
    failure = trajectory.failure
    if failure is None:
        return ""
    blame = "" if failure.boundary == "environment" else f" (in {failure.boundary})"
    return f"{case(trajectory.task)}: {failure.kind}{blame}: {failure.message}"


def summarize(faults: list[str]) -> str:
    """The first faults, and the number of the others."""
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return "; ".join(faults[:3]) + more
