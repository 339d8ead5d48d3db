"""The steps of a filmed episode as they are kept beside its film. It is read without torch, as by the console."""

import math
from typing import Literal

from loomrl.schema import Config

GIF = "film.gif"
STEPS = "film.json"
"""The files of a film: its frames, and its steps, which are written last."""
NUMBERS = 12
"""Numbers of an observation that are kept."""


class FilmedEpisode(Config):
    """The steps of an episode, in columns. Of agents that share a policy it is the first one's."""

    environment: str
    seed: int
    greedy: bool
    ending: Literal["terminated", "truncated", "cut"]
    """`cut`: it had not ended after as many steps as were allowed."""
    rewards: tuple[float, ...]
    values: tuple[float, ...] | None
    """The value function's estimate before each step; None without one."""
    actions: tuple[tuple[float, ...], ...]
    observations: tuple[tuple[float, ...], ...]
    """The first numbers of each; empty for pictures."""
    frames: tuple[int, ...] = ()
    """The steps before which the film's frames were taken; the last one shows the end."""
    delays_ms: tuple[int, ...] = ()
    """How long each frame is shown."""

    @property
    def total(self) -> float:
        """The return."""
        return math.fsum(self.rewards)
