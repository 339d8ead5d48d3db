"""Environments of several objectives whose best policies are known by heart."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from ray.tune.registry import register_env

from tests.algorithms.control_envs import _create

ARMS = np.array([[1.0, 0.0], [0.4, 0.4], [0.0, 1.0]])
"""The pay of each choice. The one in the middle is on the front, and below the line between the others."""


class Arms(gymnasium.Env[Any, Any]):
    """Choose once. `how`: honest, nan, or constant in the second objective; or paying by parts of a number."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(3)

    def __init__(self, how: str = "honest") -> None:
        self._how = how
        if how != "parts":
            self.reward_space = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._taken = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._taken += 1
        paid = ARMS[action].copy()
        if self._how == "constant":
            paid[1] = 0.5
        if self._how == "nan" and self.np_random.random() < 0.1:
            paid[1] = np.nan
        named = {"left": float(paid[0]), "right": float(paid[1])}
        reward = float(paid.sum()) if self._how == "parts" else paid
        return np.zeros(1, np.float32), reward, True, False, {"parts": named}


class Reach(gymnasium.Env[Any, Any]):
    """Two numbers within a disc of radius 1 pay for themselves: what is best for a preference is its direction."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Box(-2, 2, (2,))
    reward_space = spaces.Box(-4, 4, (2,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        far = float(np.linalg.norm(action))
        return np.zeros(1, np.float32), action - max(0.0, far - 1) * 2, True, False, {}


WAYS = {"fast": (1.0, 0.0, -1.0), "careful": (0.6, 0.5, -0.1), "wait": (0.0, 0.0, 0.0)}
"""Each way's earnings in progress, style and harm: the best is the worst, and the safe one is worth nothing."""


class Road(gymnasium.Env[Any, Any]):
    """Choose a way in each of `steps` steps. Pays parts of a number."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(3)

    def __init__(self, steps: int = 1) -> None:
        self._steps = steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._taken = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._taken += 1
        paid = [*WAYS.values()][action]
        parts = dict(zip(("progress", "style", "harm"), paid, strict=True))
        return np.zeros(1, np.float32), sum(paid), self._taken == self._steps, False, {"parts": parts}


class Crowd(gymnasium.Env[Any, Any]):
    """Choose once: two objectives are paid by the first choice, the third one by the other."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)
    reward_space = spaces.Box(0, 1, (3,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), np.array([1.0 - action, 1.0 - action, action]), True, False, {}


def register() -> None:
    """Make these known to RLlib, by their names and with `env_config` for keywords."""
    for made in (Arms, Reach, Road, Crowd):
        register_env(made.__name__, partial(_create, made))
