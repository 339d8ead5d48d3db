"""An environment that leaves what it is told, and a way to open the one that remembers for good."""

from loomrl.envs.memory import MemoryBufferEnvironment
from loomrl.gym.base import BaseEnvironment, Step
from loomrl.types import Message, Reward


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
