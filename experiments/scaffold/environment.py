"""An environment of your own: letters in, letters out. Change the task, then check it again (docs/environments.md)."""

import random

from loomrl.gym import BaseEnvironment, EnvironmentSettings, Message, Reward, Step, Task

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class OwnSettings(EnvironmentSettings):
    """Settings of the environment; `loomrl train … environments.0.settings.letters=5` changes one."""

    letters: int = 3
    """In the easiest task."""


class OwnEnvironment(BaseEnvironment):
    """Some letters, to be turned around or put in order; one more with every level."""

    version = "0.1.0"
    families = ("backwards", "sorted")
    settings_class = OwnSettings
    reward_range = (0.0, 1.0)
    settings: OwnSettings

    async def reset(self, task: Task | None = None) -> tuple[Message, ...]:
        """Ask; everything follows from the task."""
        task = task or self.sample_task(0)
        rng = random.Random(f"{task.family} {task.level} {task.seed}")
        letters = rng.sample(ALPHABET, self.settings.letters + task.level)
        self._answer = "".join(letters[::-1] if task.family == "backwards" else sorted(letters))
        return (Message("user", f"Write these letters {task.family}: {''.join(letters)}"),)

    async def step(self, action: str) -> Step:
        """Compare; text of a policy is never evaluated, and never an exception."""
        right = float(action.strip() == self._answer)
        return Step((), Reward(right, {"correctness": right}, right), True, False, {})

    def oracle(self) -> str:
        """The answer."""
        return self._answer

    def random_action(self, rng: random.Random) -> str:
        """Letters without skill."""
        return "".join(rng.sample(ALPHABET, len(self._answer)))

    def hacks(self) -> tuple[str, ...]:
        """Ways to try for reward without solving the task; the checker sees that none works."""
        return (ALPHABET, f"{self._answer[::-1]} {self._answer}", "")
