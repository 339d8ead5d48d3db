"""Environments of several objectives whose best policies are known by heart."""

from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from ray.tune.registry import register_env

from tests.algorithms.control_envs import Small, _create

ARMS = np.array([[1.0, 0.0], [0.4, 0.4], [0.0, 1.0]])
"""The pay of each choice. The one in the middle is on the front, and below the line between the others."""


class Arms(Small):
    """Choose once. `how`: honest, nan, or constant in the second objective; or paying by parts of a number."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(3)

    def __init__(self, how: str = "honest") -> None:
        super().__init__(1, ends=True)
        self._how = how
        if how != "parts":
            self.reward_space = spaces.Box(-1, 1, (2,))

    def _pay(self, action: Any) -> tuple[Any, dict[str, Any]]:
        paid = ARMS[action].copy()
        if self._how == "constant":
            paid[1] = 0.5
        if self._how == "nan" and self.np_random.random() < 0.1:
            paid[1] = np.nan
        parts = {"left": float(paid[0]), "right": float(paid[1])}
        return float(paid.sum()) if self._how == "parts" else paid, {"parts": parts}


WAYS = {"fast": (1.0, 0.0, -1.0), "careful": (0.6, 0.5, -0.1), "wait": (0.0, 0.0, 0.0)}
"""Each way's earnings in progress, style and harm: the best is the worst, and the safe one is worth nothing."""


class Road(Small):
    """Choose a way in each of `steps` steps. Pays parts of a number."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(3)

    def __init__(self, steps: int = 1) -> None:
        super().__init__(steps, ends=True)

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        paid = [*WAYS.values()][action]
        return sum(paid), {"parts": dict(zip(("progress", "style", "harm"), paid, strict=True))}


def register() -> None:
    """Make these known to RLlib, by their names and with `env_config` for keywords."""
    for made in (Arms, Road):
        register_env(made.__name__, partial(_create, made))
