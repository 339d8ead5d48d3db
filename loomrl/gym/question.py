"""Environments that ask one question and judge one answer between tags."""

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, Self

from pydantic import Field, model_validator

from loomrl.gym.answer import ANSWER_FORMAT, REMINDER, TaggedAnswer, parse_submission
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.types import Message, Observation, Reward, Task

WRONG = "That is not right. Answer again."


class QuestionSettings(EnvironmentSettings):
    """Settings of an environment that asks one question."""

    max_steps: int = Field(2, ge=1)
    """Replies that the policy has: one without an answer between tags gets a reminder."""
    retry: float | None = Field(None, gt=0, le=1)
    """A wrong answer is told, and the policy may answer again within `max_steps`; each wrong answer before multiplies
    the reward by this. None: the first answer is the last."""

    @model_validator(mode="after")
    def _retry_has_steps(self) -> Self:
        if self.retry is not None and self.max_steps < 2:
            raise ValueError("retry: with max_steps=1 there is no second answer. Set max_steps=2 or more.")
        return self


class QuestionEnvironment(BaseEnvironment):
    """Asks once. A complete answer terminates, or only a right one with `retry`; an incomplete one gets a reminder."""

    settings_class: ClassVar[type[EnvironmentSettings]] = QuestionSettings
    sources: ClassVar[tuple[str, ...]] = ("loomrl.gym.answer", "loomrl.gym.question")

    settings: QuestionSettings
    _attempts = 0
    _wrong = 0

    @abstractmethod
    def ask(self, task: Task) -> str:
        """The question of this task; keeps the data needed to judge the answer."""

    @abstractmethod
    async def judge(self, submission: TaggedAnswer) -> Reward:
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
        task = self.task_or_random(task)
        self._attempts = self._wrong = 0
        return (Message("user", f"{self.ask(task)}\n\n{self.prompt}"),)

    async def step(self, action: str) -> Step:
        """Judge an answer, or send a reminder."""
        self._attempts += 1
        is_last = self._attempts >= self.settings.max_steps
        retry = self.settings.retry
        submission = parse_submission(action)
        if submission is None:
            return Step.say(REMINDER, truncated=is_last)
        reward = await self.judge(submission)
        if retry is not None and reward.success < 1 and not is_last:
            self._wrong += 1
            return Step.say(WRONG)._replace(info=self.explain())
        if retry is not None:
            worth = retry**self._wrong
            parts = {name: worth * part for name, part in reward.parts.items()}
            reward = replace(reward, total=worth * reward.total, parts=parts)
        return Step.end(reward, **self.explain())

    def explain(self) -> dict[str, str]:
        """Details of the last step for people; the policy does not see them."""
        return {}
