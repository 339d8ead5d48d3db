"""An environment that shows a key."""

from typing_extensions import override

from loomrl.types import Message, Observation, Task
from tests.algorithms.language_envs import AsciiEnvironment


class LeakyEnvironment(AsciiEnvironment):
    """Shows a key of a known form."""

    name = "Leaky"

    @override
    async def reset(self, task: Task | None = None) -> Observation:
        return (Message("user", "Say ghp_" + "k3Jx9Qw2Lm8Rt5Vb7Nz1Yc4Hd6Fs0Pa2Ge8u" + " back."),)
