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
        self.observation_space = deepcopy(ACTIONS[kind])
        self.action_space = ACTIONS[kind]
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
    """Do what you saw a step before, and at first the first choice: impossible without a memory."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        begun = super().reset(seed=seed)
        self._before = 1
        return begun

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        shown = self._asked
        self._asked = self._before
        self._before = shown
        return super().step(action)


class Picky(gymnasium.Env[Any, Any]):
    """Do what you see, one of the choices that are allowed. One that is not is an error, and at the end none is.

    `stuck` is the step before which nothing is allowed.
    """

    def __init__(self, kind: str = "discrete", steps: int = 8, stuck: int | None = None) -> None:
        self.action_space = deepcopy(ACTIONS[kind])
        self._sizes = [3] if kind == "discrete" else [2, 3]
        mask = spaces.MultiBinary(sum(self._sizes))
        self.observation_space = spaces.Dict({"asked": ACTIONS[kind], "action_mask": mask})
        self._steps = steps
        self._stuck = stuck

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._taken = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen = np.ravel(action) - (1 if len(self._sizes) == 1 else 0)
        allowed = [bool(mask[one]) for mask, one in zip(self._masks, chosen, strict=True)]
        if not all(allowed):
            raise ValueError(f"{action} is not allowed: {self._masks}")
        right = float((chosen == self._asked).mean())
        self._taken += 1
        is_over = self._taken >= self._steps
        parts = {"right": right, "first": float(chosen[0] == 0)}
        return self._seen(is_over=is_over), right, is_over, False, {"parts": parts}

    def _seen(self, *, is_over: bool = False) -> Any:
        self._masks = [self.np_random.integers(2, size=size) for size in self._sizes]
        self._asked = np.array([self.np_random.integers(size) for size in self._sizes])
        for mask, one in zip(self._masks, self._asked, strict=True):
            mask[one] = 1
        if is_over or self._taken + 1 == self._stuck:
            self._masks = [np.zeros_like(mask) for mask in self._masks]
        asked = self._asked if len(self._sizes) > 1 else self._asked[0] + 1
        return {"asked": asked, "action_mask": np.concatenate(self._masks).astype(np.int8)}


class PickyTeam:
    """A PettingZoo `ParallelEnv` of two of them, each with a mask of its own."""

    possible_agents = ("left", "right")

    def __init__(self) -> None:
        self._each = {name: Picky() for name in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._each[agent].observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._each[agent].action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents = self.possible_agents
        begun = {
            name: one.reset(seed=None if seed is None else seed + 9 * at)
            for at, (name, one) in enumerate(self._each.items())
        }
        return {name: seen for name, (seen, _) in begun.items()}, {}

    def step(self, actions: Any) -> Any:
        told = {name: one.step(actions[name]) for name, one in self._each.items()}
        seen, rewards, terminated, truncated, _ = ({name: one[at] for name, one in told.items()} for at in range(5))
        return seen, rewards, terminated, truncated, {}

    def close(self) -> None:
        """Nothing is open."""


class Countdown(gymnasium.Env[Any, Any]):
    """Shows how many steps are left, pays the same for each; ends, or is cut short, at 0. All is known exactly."""

    observation_space = spaces.Box(0, 100, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, steps: int = 3, truncates: bool = False, price: float = 1.0) -> None:
        self._length = steps
        self._truncates = truncates
        self._price = price

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


class TripleReward(gymnasium.RewardWrapper[Any, Any]):
    """A wrapper of one's own."""

    def reward(self, reward: Any) -> float:
        return 3 * float(reward)


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
    """Ends the process of one runner, once: the first to make the file `marker` dies."""

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


class Owner(Countdown):
    """Owns something that is gone once it is closed, as a process or a window is."""

    is_closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._refuse_closed()
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._refuse_closed()
        return super().step(action)

    def close(self) -> None:
        self.is_closed = True

    def _refuse_closed(self) -> None:
        if self.is_closed:
            raise RuntimeError("closed")


class Endless(gymnasium.Env[Any, Any]):
    """Shows how many steps were taken, and pays 1 for each; every second episode ends after `ends` steps, no other."""

    observation_space = spaces.Box(0, np.inf, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, ends: int | None = None) -> None:
        self._ends = ends
        self._episodes = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._taken = 0
        self._episodes = self._episodes + 1
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._taken += 1
        over = self._episodes % 2 == 0 and self._taken == self._ends
        return np.full(1, self._taken, np.float32), 1.0, over, False, {}


class EndlessTeam:
    """Two agents, of a world that never ends."""

    possible_agents = agents = ("a", "b")

    def observation_space(self, agent: str) -> Any:
        return Endless.observation_space

    def action_space(self, agent: str) -> Any:
        return Endless.action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self._taken = 0
        return self._each(np.zeros(1, np.float32)), self._each({})

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        self._taken += 1
        seen = self._each(np.full(1, self._taken, np.float32))
        return seen, self._each(1.0), self._each(False), self._each(False), self._each({})

    def close(self) -> None:
        """Nothing is open."""

    def _each(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)


def stay(**settings: Any) -> Any:
    """A policy that always takes the first choice."""
    return lambda observations: np.zeros(len(observations), np.int64)


def register() -> None:
    """Make these known to RLlib, by their names and with `env_config` for keywords."""
    for made in (Identity, Echo, Picky, Countdown, Pictures, Misbehaving, Mortal, Owner, Endless):
        register_env(made.__name__, partial(_create, made))


def _create(made: type[gymnasium.Env[Any, Any]], context: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    return made(**dict(context))
