"""Environments played by hand, in a script or a notebook, and tasks as hard as a program's policy can take.

env = await LoomRLGym().create_environment("Math", {"difficulty": "intermediate"})
state = await env.reset()
state, reward, done, info = await env.step("<answer>12</answer>")
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from random import Random, SystemRandom
from types import MappingProxyType
from typing import Any

from loomrl.config import AdaptiveCurriculum, Curriculum, EnvironmentConfig
from loomrl.errors import ConfigError, EpisodeError, failure_from
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step, levels_of
from loomrl.gym.catalogue import find
from loomrl.gym.curriculum import TaskOutcome, family_key
from loomrl.gym.guard import GuardedEnvironment
from loomrl.gym.memory import MemoryBank
from loomrl.gym.task_mixture import gather, open_task_source
from loomrl.gym.template import load_templates
from loomrl.types import Observation, Reward, Task


class CurriculumGenerator:
    """Draws tasks and learns from how attempts at them went: `generate()`, attempt it, `observe(task, success)`.

    `environments` are names, or names with families and weights; without them they are those of the templates, or Math.
    Every family begins at `initial_difficulty`: a word, a level, or a number from 0.0 to 1.0, by default "beginner".
    Levels then follow success.
    Give a `curriculum` instead for anything else.
    """

    def __init__(
        self,
        environments: Sequence[str | EnvironmentConfig] = (),
        *,
        initial_difficulty: str | float | None = None,
        task_templates_path: str | None = None,
        curriculum: Curriculum | None = None,
        seed: int = 0,
    ) -> None:
        templates = load_templates(task_templates_path) if task_templates_path else ()
        named = environments or sorted({template.environment for template in templates}) or ("Math",)
        configs = [EnvironmentConfig(id=each) if isinstance(each, str) else each for each in named]
        self._mixture = gather(configs, task_templates_path, lambda id: (find(id).id, ""))
        if curriculum is not None and initial_difficulty is not None:
            raise ConfigError(
                f"initial_difficulty={initial_difficulty!r} has no effect beside a curriculum: set its levels."
            )
        start = _level("beginner" if initial_difficulty is None else initial_difficulty)
        settings = curriculum or AdaptiveCurriculum(start_level=start)
        self._curriculum = open_task_source(self._mixture, settings, seed=seed)
        self._rng = random.Random(seed)

    def generate(self) -> Task:
        """The next task to attempt. The same seed and the same outcomes give the same tasks."""
        draw = self._curriculum.draw(self._rng)
        return self._mixture.member(draw).task(draw)

    def observe(self, task: Task, success: float) -> None:
        """Observe the success of an attempt at a task, from 0 to 1."""
        self._curriculum.observe([TaskOutcome(family_key(task), task.level, success)])

    def progress(self) -> dict[str, float]:
        """Level per family; a fraction is the chance of the next level."""
        return self._curriculum.progress()

    def state_dict(self) -> dict[str, Any]:
        """Everything a restart needs, as JSON."""
        version, internal, gauss = self._rng.getstate()
        return {"curriculum": self._curriculum.state_dict(), "randomness": [version, list(internal), gauss]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._curriculum.load_state_dict(state["curriculum"])
        version, internal, gauss = state["randomness"]
        self._rng.setstate((version, tuple(internal), gauss))


def _level(difficulty: str | float) -> int:
    """The level that a difficulty begins with."""
    given = EnvironmentSettings.parse({"difficulty": difficulty}, origin="initial_difficulty")
    return levels_of(given.difficulty).start


class ManualState(Observation):
    """The messages that the policy sees. The state of a `reset` knows its task, so that others can attempt it too."""

    task: Task | None = None
    settings: Mapping[str, Any] = MappingProxyType({})
    """Settings of its environment."""

    def __str__(self) -> str:
        return "\n\n".join(message.text for message in self)


class ManualEnvironment:
    """One environment, played one episode after the other. `done` is any end; `info` says which.

    `info` has `terminated`, `truncated`, `success` and `reward_parts`. An episode that fails is over with the reward
    nan, and `info["failure"]` says why: it is no attempt, good or bad.
    """

    def __init__(
        self, environment: BaseEnvironment, *, tasks: CurriculumGenerator | None = None, seed: int | None = None
    ) -> None:
        self._guarded = GuardedEnvironment(environment, memories=MemoryBank())
        self._rng = SystemRandom() if seed is None else Random(seed)
        self._tasks = tasks
        self._task: Task | None = None

    @property
    def environment(self) -> BaseEnvironment:
        """The environment being played."""
        return self._guarded.environment

    @property
    def settings(self) -> EnvironmentSettings:
        """Its settings."""
        return self.environment.settings

    def task(self, family: str, level: int, seed: int) -> Task:
        """The task of these three."""
        return self.environment.task(family, level, seed)

    async def reset(self, task: Task | None = None) -> ManualState:
        """Begin an episode: of this task, or of the next one."""
        if task is None:
            drawn = self._tasks.generate() if self._tasks else None
            task = drawn or self.environment.sample_task(self._rng.getrandbits(31))
        self._task = task
        state = ManualState(await self._guarded.reset(task))
        state.task = task
        state.settings = self.settings.model_dump(mode="json")
        return state

    async def step(self, action: str) -> tuple[ManualState, float, bool, dict[str, Any]]:
        """Act once: the next state, the reward, whether the episode is over, and what else there is to say."""
        if not isinstance(action, str):
            raise TypeError(
                f"action={action!r:.60} is {type(action).__name__}; {self.environment.name} takes a text, such as "
                f"{self._example()!r:.80}."
            )
        self._guarded.check_running()
        try:
            step = await self._guarded.step(self.read(action))
        except Exception as error:  # noqa: BLE001 - the boundary to the environment's author
            failure = failure_from(error, boundary=EpisodeError.boundary)
            await self._guarded.close()
            return (
                ManualState(),
                math.nan,
                True,
                _end_info(False, False, Reward()) | {"failure": asdict(failure), "success": None},
            )
        if (step.terminated or step.truncated) and self._tasks is not None and self._task is not None:
            self._tasks.observe(self._task, step.reward.success)
        return _four(step)

    def read(self, action: str) -> str:
        """The action as the environment reads it."""
        return action

    def oracle(self) -> str:
        """The next action of a perfect solver, from the present state."""
        return self.environment.oracle()

    async def close(self) -> None:
        """Release the environment's resources."""
        await self._guarded.close()

    def _example(self) -> str:
        try:
            return self.environment.random_action(Random(0))
        except Exception:  # noqa: BLE001 - an example for a message, no more
            return "some text"


def _four(step: Step) -> tuple[ManualState, float, bool, dict[str, Any]]:
    told = dict(step.info) | _end_info(step.terminated, step.truncated, step.reward)
    return ManualState(step.observation), step.reward.total, step.terminated or step.truncated, told


def _end_info(terminated: bool, truncated: bool, reward: Reward) -> dict[str, Any]:
    return {
        "terminated": terminated,
        "truncated": truncated,
        "success": reward.success,
        "reward_parts": dict(reward.parts),
    }
