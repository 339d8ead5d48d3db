"""Environments that any correct learner of control masters in seconds, and some that misbehave."""

import os
import signal
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from ray.tune.registry import register_env

ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=1),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2,)),
}


class Identity(gymnasium.Env[Any, Any]):
    """Do what you see. A choice earns 1 in all where it is right; real numbers lose their distance."""

    def __init__(self, kind: str = "discrete", steps: int = 8) -> None:
        self.observation_space, self.action_space = deepcopy(ACTIONS[kind]), ACTIONS[kind]
        self._steps = steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self._taken = 0
        self._asked = self.observation_space.sample()
        return self._asked, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        asked = np.asarray(self._asked, float)
        gap = np.abs(asked - action)
        right = 1.0 - float(gap.mean()) if isinstance(self.action_space, spaces.Box) else float((gap == 0).mean())
        self._asked = self.observation_space.sample()
        self._taken += 1
        return self._asked, right, False, self._taken >= self._steps, {}


class Echo(Identity):
    """Do what you saw a step before, and at first the first choice: nobody can without a memory."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        begun = super().reset(seed=seed)
        self._before = 1
        return begun

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        shown, self._asked = self._asked, self._before
        self._before = shown
        return super().step(action)


class Countdown(gymnasium.Env[Any, Any]):
    """Shows how many steps are left, pays the same for each; ends, or is cut short, at 0. All is known exactly."""

    observation_space = spaces.Box(0, 100, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, steps: int = 3, truncates: bool = False, price: float = 1.0) -> None:
        self._length, self._truncates, self._price = steps, truncates, price

    def _seen(self) -> Any:
        return np.array([self._left], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = self._length
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._left -= 1
        over = self._left == 0
        return self._seen(), self._price, over and not self._truncates, over and self._truncates, {}


class Pictures(gymnasium.Env[Any, Any]):
    """One quarter of the picture is bright: say which."""

    observation_space = spaces.Box(0, 255, (12, 12, 1), np.uint8)
    action_space = spaces.Discrete(4)

    def _seen(self) -> Any:
        self._quarter = int(self.np_random.integers(4))
        picture = np.zeros((12, 12, 1), np.uint8)
        row, column = divmod(self._quarter, 2)
        picture[row * 6 : row * 6 + 6, column * 6 : column * 6 + 6] = 255
        return picture

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._taken = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = float(action == self._quarter)
        self._taken += 1
        return self._seen(), right, False, self._taken >= 8, {}


class Misbehaving(Countdown):
    """Raises, says NaN, or shows the wrong shape, in its third step."""

    def __init__(self, how: str = "raises") -> None:
        super().__init__(steps=8)
        self._how = how

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = super().step(action)
        if self._left == 5:
            if self._how == "raises":
                raise ValueError("the bridge is out")
            if self._how == "nan":
                reward = float("nan")
            if self._how == "shape":
                seen = np.zeros(3, np.float32)
        return seen, reward, terminated, truncated, info


class Mortal(Identity):
    """Ends the process of one runner, once: whoever makes the file `marker` dies of it."""

    def __init__(self, marker: str) -> None:
        super().__init__("discrete")
        self._marker = Path(marker)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if os.environ.get("RAY_WORKER_MODE") != "driver" and self._taken == 5 and self._is_first():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)

    def _is_first(self) -> bool:
        try:
            self._marker.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def register() -> None:
    """Make these known to RLlib, by their names and with `env_config` for keywords."""
    for made in (Identity, Echo, Countdown, Pictures, Misbehaving, Mortal):
        register_env(made.__name__, partial(_create, made))


def _create(made: type[gymnasium.Env[Any, Any]], context: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    return made(**dict(context))
