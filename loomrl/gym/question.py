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
    """Attempts at the format: an answer without tags gets a reminder, up to this many attempts."""


class QuestionEnvironment(BaseEnvironment):
    """Asks once. A complete answer, right or wrong, terminates; an incomplete one gets a reminder."""

    settings_class: ClassVar[type[EnvironmentSettings]] = QuestionSettings
    sources: ClassVar[tuple[str, ...]] = ("loomrl.gym.answer", "loomrl.gym.question")

    _attempts = 0

    @abstractmethod
    def ask(self, task: Task) -> str:
        """The question of this task; keeps the data needed to judge the answer."""

    @abstractmethod
    async def judge(self, submission: Submission) -> Reward:
        """The reward of an answer."""

    @property
    def prompt(self) -> str:
        """The answer format, added to every question."""
        return ANSWER_FORMAT

    @property
    def at_once(self) -> bool:
        """True if no reminder was needed."""
        return self._attempts == 1

    async def reset(self, task: Task | None = None) -> Observation:
        """The question, with the format that the answer must have."""
        task = task or self.sample_task(Random().getrandbits(31))
        self._attempts = 0
        return (Message("user", f"{self.ask(task)}\n\n{self.prompt}"),)

    async def step(self, action: str) -> Step:
        """Judge an answer, or send a reminder."""
        self._attempts += 1
        submission = parse_submission(action)
        if submission is None:
            truncated = self._attempts >= self.settings.max_steps
            return Step((Message("user", REMINDER),), Reward(), False, truncated, {})
        return Step((), await self.judge(submission), True, False, self.told())

    def told(self) -> dict[str, str]:
        """Details of the last step for people; the policy does not see them."""
        return {}
