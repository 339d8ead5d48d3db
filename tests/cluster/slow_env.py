"""An environment that takes its time, so that something can happen meanwhile."""

import asyncio

from loomrl.gym.base import Step
from tests.algorithms.language_envs import AsciiEnvironment


class SlowEnvironment(AsciiEnvironment):
    """A third of a second a step."""

    name = "Slow"
    families = ("plain",)

    async def step(self, action: str) -> Step:
        await asyncio.sleep(0.3)
        return await super().step(action)
