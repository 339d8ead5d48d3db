"""Shared shapes: one question and one answer, or turns of one command each."""

import random
import re
from abc import abstractmethod

from loomrl.gym import BaseEnvironment, Message, Reward, Step
from loomrl.types import Observation, Task

WHOLE = re.compile(r"[+-]?[0-9]{1,9}")


def whole(text: str) -> int | None:
    """The whole number that the text is, of nine digits at most."""
    return int(text) if WHOLE.fullmatch(text.strip()) else None


class Seeded(BaseEnvironment):
    """Begins each task from its own random numbers."""

    reward_range = (0.0, 1.0)
    reward_parts = ("correctness",)

    async def reset(self, task: Task | None = None) -> Observation:
        task = self.task_or_random(task)
        rng = random.Random(f"{type(self).__name__} {task.family} {task.level} {task.seed}")
        return (Message("user", self.begin(rng, task.family, task.level)),)

    @abstractmethod
    def begin(self, rng: random.Random, family: str, level: int) -> str:
        """Draw the task, and ask for it."""


class Question(Seeded):
    """One question, one answer."""

    said = ""

    async def step(self, action: str) -> Step:
        self.said = action
        score = self.grade(action)
        return Step.end(Reward(score, {"correctness": score}, score))

    @abstractmethod
    def grade(self, action: str) -> float:
        """The success of an answer."""


class Commands(Seeded):
    """Turns of one command each: a verb and its words."""

    async def step(self, action: str) -> Step:
        verb, *words = action.split()[:6] or [""]
        return self.act(verb.lower(), words)

    @abstractmethod
    def act(self, verb: str, words: list[str]) -> Step:
        """Carry out a command."""

    def end(self, success: float) -> Step:
        return Step.end(self.pay(success, correctness=success))
