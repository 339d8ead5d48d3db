"""Noise of actions that goes on from step to step.

Axes: `_T` steps, `_K` parts of the noise, `_N` environments, `_D` numbers in one action.
"""

import math

import torch
from torch import Tensor

STEPS = (1, 4, 16, 64, 256, 1024)
"""Steps over which a part fades: each has as much power, so that the sum's spectrum falls as 1/f."""


class PinkNoise:
    """Standard normal numbers whose spectrum is nearly 1/f, from one call to the next."""

    def __init__(self) -> None:
        self._kept_K11 = (-1 / torch.tensor(STEPS)).exp()[:, None, None]
        self._new_K11 = (1 - self._kept_K11.square()).sqrt()
        self.state: Tensor | None = None
        """The parts at the latest step; None before the first."""

    def draw(self, steps: int, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """`[T, N, D]` for `shape` (N, D)."""
        parts_KND = torch.randn(len(STEPS), *shape, generator=generator) if self.state is None else self.state
        noise_TND = torch.empty(steps, *shape)
        for noise_ND in noise_TND:
            fresh_KND = torch.randn(parts_KND.shape, generator=generator)
            parts_KND = parts_KND * self._kept_K11 + fresh_KND * self._new_K11
            torch.sum(parts_KND, 0, out=noise_ND)
        self.state = parts_KND
        return noise_TND / math.sqrt(len(STEPS))
