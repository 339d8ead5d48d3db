"""Environments that ask one question and judge one answer between tags."""

from abc import abstractmethod
from random import Random
from typing import ClassVar

from pydantic import Field

from loomrl.gym.answer import ANSWER_FORMAT, REMINDER, Submission, parse_submission
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.types import Message, Observation, Reward, Task


class QuestionSettings(EnvironmentSettings):
    """Settings of an environment that asks one question."""

    max_steps: int = Field(2, ge=1)
    """Attempts at the format: an action without an answer gets a reminder, until this many were made."""


class QuestionEnvironment(BaseEnvironment):
    """Asks once. A complete answer, right or wrong, terminates; without one there is a reminder."""

    settings_class: ClassVar[type[EnvironmentSettings]] = QuestionSettings
    sources: ClassVar[tuple[str, ...]] = ("loomrl.gym.answer", "loomrl.gym.question")

    _attempts = 0

    @abstractmethod
    def ask(self, task: Task) -> str:
        """Make the question of this task, and keep what is needed to judge its answer."""

    @abstractmethod
    async def judge(self, submission: Submission) -> Reward:
        """What the answer earns."""

    @property
    def prompt(self) -> str:
        """What follows every question: the format that the answer must have."""
        return ANSWER_FORMAT

    @property
    def at_once(self) -> bool:
        """Whether no reminder was needed."""
        return self._attempts == 1

    async def reset(self, task: Task | None = None) -> Observation:
        """The question, with the format that the answer must have."""
        task = task or self.sample_task(Random().getrandbits(31))
        self._attempts = 0
        return (Message("user", f"{self.ask(task)}\n\n{self.prompt}"),)

    async def step(self, action: str) -> Step:
        """Judge an answer, or ask for one."""
        self._attempts += 1
        submission = parse_submission(action)
        if submission is None:
            truncated = self._attempts >= self.settings.max_steps
            return Step((Message("user", REMINDER),), Reward(), False, truncated, {})
        return Step((), await self.judge(submission), True, False, self.told())

    def told(self) -> dict[str, str]:
        """What the last step says beside its reward, for people; the policy does not see it."""
        return {}
