"""Small complete environments that tests play in until and beside the real ones."""

import os
import random
import time
from collections.abc import Sequence

from loomrl.envs.memory import MemoryBufferEnvironment
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.types import Message, Observation, Reward, Task


class GuessSettings(EnvironmentSettings):
    hints: bool = True


class GuessEnvironment(BaseEnvironment):
    """Find a hidden number. `above` and `below` say from which side the range is told."""

    name = "Guess"
    version = "1.2.0"
    families = ("above", "below")
    settings_class = GuessSettings
    reward_range = (0.0, 1.1)
    guesses = 5

    def __init__(self, settings=None) -> None:
        super().__init__(settings)
        self.hints = bool(self.settings.model_dump()["hints"])
        self.hidden = 0
        self.left = 0

    async def reset(self, task: Task | None = None) -> Observation:
        task = task or self.sample_task(0)
        width = 500 * task.level
        rng = random.Random(f"{task.family} {task.level} {task.seed}")
        self.hidden = rng.randrange(width) * (1 if task.family == "above" else -1)
        self.left = self.guesses
        return (Message("user", f"I think of a whole number {task.family} 0, {width} away at most. Which one?"),)

    async def step(self, action: str) -> Step:
        self.left -= 1
        guess = self._parse(action)
        if guess == self.hidden:
            return Step((), Reward(1.1, {"correct": 1.0, "format": 0.1}, 1.0), True, False, {})
        hint = "higher" if guess is not None and guess < self.hidden else "lower"
        reply = "That is no whole number." if guess is None else f"It is {hint}." if self.hints else "No."
        return Step((Message("user", reply),), Reward(0.0, {"correct": 0.0}), self.left == 0, False, {})

    def oracle(self) -> str:
        return str(self.hidden)

    def hacks(self) -> Sequence[str]:
        return ("", " ".join(map(str, range(100))), "the hidden number")

    def _parse(self, action: str) -> int | None:
        text = action.strip()
        sign = -1 if text.startswith("-") else 1
        digits = text.removeprefix("-")
        return sign * int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None


class SlowToLoad(GuessEnvironment):
    """Loads something large before its first episode in a process, and dies of a text."""

    name = "SlowToLoad"
    loaded = False

    async def reset(self, task: Task | None = None) -> Observation:
        if not SlowToLoad.loaded:
            time.sleep(1.5)  # noqa: ASYNC251 - imports block, too
            SlowToLoad.loaded = True
        return await super().reset(task)

    async def step(self, action: str) -> Step:
        if action == "nan":
            os._exit(9)
        return await super().step(action)


def open_sample(name: str, settings) -> BaseEnvironment:
    """An environment of these test modules by the name of its class."""
    import broken_envs

    name = name.partition("@")[0]
    return getattr(broken_envs, name, None)(settings) if hasattr(broken_envs, name) else GuessEnvironment(settings)


class Remembering(BaseEnvironment):
    name = "Remembering"
    families = ("a",)

    def __init__(self, memory=None) -> None:
        super().__init__()
        self._memory = memory

    async def reset(self, task=None):
        return (Message("user", "?"),)

    async def step(self, action):
        return Step((), Reward(), True, False, {})

    def oracle(self):
        return "x"

    def memory(self):
        return self._memory


def open_remembering(name, settings):
    return MemoryBufferEnvironment(settings)
