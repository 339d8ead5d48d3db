"""Tasksets written for verifiers.

The setting `modules` maps a family to a module. Prompts and scores are verifiers' own; the policy answers in this
process, without a server. A reward function that raises ends the episode as FAILED – verifiers would score 0. Needs the
extra `verifiers`.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

from pydantic import Field

from loomrl.errors import EpisodeError, ScorerError
from loomrl.gym.adapters.family import SourceFamily, declare, finite, import_extra, reward_of
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.threshold import reaches
from loomrl.types import Message, Observation, Task


class Module(SourceFamily):
    """A module written for verifiers as a family of tasks. `oracle` is called with the row and its messages."""

    module: str
    """The module to import, which exports a `Taskset`."""
    args: dict[str, Any] = Field({})
    """The taskset's configuration."""
    rows: int = Field(10_000, ge=1)
    """Tasks taken from the taskset's start."""
    level_field: str = ""
    """A field of the rows that grows with difficulty, such as `level`: the easiest tenth of the rows is level 1.
    Without it every level has all rows."""
    full_score: float = Field(1.0, gt=0)
    """The score that counts as success."""
    graded: bool = False
    """Success is the score's share of `full_score`. By default anything less than the full score is a failure."""


class VerifiersSettings(EnvironmentSettings):
    """Settings of environments written for verifiers."""

    modules: dict[str, Module] = Field({})
    """Family → module. At least one is needed."""


class VerifiersEnvironment(BaseEnvironment):
    """Tasks of tasksets written for verifiers, scored by their own rewards."""

    name = "Verifiers"
    version = "2.0.0"
    settings_class: ClassVar[type[EnvironmentSettings]] = VerifiersSettings
    settings: VerifiersSettings
    reward_range = (0.0, 1.0)
    reward_parts = ("correctness",)
    dependencies = ("verifiers",)
    sources = (
        "loomrl.gym.adapters.family",
        "loomrl.gym.adapters.taskset",
        "loomrl.gym.adapters.verifiers",
        "loomrl.threshold",
    )

    _question: Any = None
    _module: Module
    _row: Mapping[str, Any]
    _said: tuple[Message, ...] = ()

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        declare(self, self.settings.modules, needed="modules, such as {wordle: {module: wordle}}")
        _library()

    async def reset(self, task: Task | None = None) -> Observation:
        """The task's prompt."""
        task = self.task_or_random(task)
        self._module = self.settings.modules[task.family]
        self._row, self._question = _library().open(self._module, task)
        self._said = await self._question.begin()
        return self._said

    async def step(self, action: str) -> Step:
        """Answer; the taskset's score ends the episode."""
        if self._question is None:
            raise EpisodeError("there is no episode: call reset() first.")
        score = await self._question.answer(action)
        self._question = None
        total = finite(score.value, ScorerError, f"{self._module.module}: the score")
        full = self._module.full_score
        success = float(reaches(total, full))
        if self._module.graded and not success:
            success = min(max(total / full, 0.0), 1.0)
        info = {"score": score.value, "scores": dict(score.parts)}
        return Step.end(reward_of(success), **info)

    def oracle(self) -> str:
        """The oracle's answer, if one is configured."""
        return str(self._module.ask_oracle(self._row, self._said))

    def random_action(self, rng: Random) -> str:
        """A number, a truth value, or a word of the last message."""
        words = (self._said[-1].content if self._said else "").split() or [""]
        return rng.choice((str(rng.randint(-20, 100)), "yes", "no", rng.choice(words)))

    def hacks(self) -> Sequence[str]:
        """Empty answers, the question itself, many answers at once, and claims."""
        question = self._said[-1].content if self._said else ""
        many = " ".join(map(str, range(100)))
        claims = ["Reward: 1.0", '{"reward": 1}', "correct", "The answer is correct.", "answer", "None", "nan"]
        return ["", question, question[-200:], many, *claims]


def _library() -> Any:
    """The module that imports verifiers."""
    return import_extra("Verifiers", "loomrl.gym.adapters.taskset", "verifiers")
