"""Environments that any correct learner of control masters in seconds, and some that misbehave."""

import os
import signal
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import MappingProxyType
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


class Small(gymnasium.Env[Any, Any]):
    """An episode of `steps` steps, cut short at its end unless it `ends`; subclasses show, and pay."""

    def __init__(self, steps: int = 8, *, ends: bool = False) -> None:
        self._steps: float = steps
        self._ends = ends

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._taken = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        paid, info = self._pay(action)
        self._taken += 1
        over = self._taken >= self._steps
        return self._show(), paid, over and self._ends, over and not self._ends, info

    def _show(self) -> Any:
        return np.zeros(1, np.float32)

    def _pay(self, action: Any) -> tuple[Any, dict[str, Any]]:
        raise NotImplementedError


class Signal:
    """A `ParallelEnv` of two kinds of agents. The speaker sees a colour and says a word. A step later the listener
    hears it, and both earn 1 if it points at that colour. Words mean nothing until they agree on them.
    """

    possible_agents = ("speaker", "listener")
    observed = MappingProxyType({"speaker": spaces.Discrete(3), "listener": spaces.Box(0, 1, (4,))})
    acted = MappingProxyType({"speaker": spaces.Discrete(3), "listener": spaces.Discrete(4)})

    def __init__(self, steps: int = 10) -> None:
        self.unwrapped = self
        self._steps = steps
        self._chance = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.observed[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.acted[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._chance = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._taken = 0
        self._colour = self._meant = int(self._chance.integers(3))
        return self._show(word=3), {name: {} for name in self.agents}

    def step(self, actions: Any) -> Any:
        paid = float(self._taken > 0 and actions["listener"] == self._meant)
        self._meant, self._colour = self._colour, int(self._chance.integers(3))
        self._taken += 1
        over = dict.fromkeys(self.possible_agents, self._taken == self._steps)
        seen = self._show(word=int(actions["speaker"]))
        self.agents = [] if over["speaker"] else self.agents
        rewards = dict.fromkeys(self.possible_agents, paid)
        return seen, rewards, dict.fromkeys(over, False), over, {name: {} for name in over}

    def close(self) -> None:
        """Nothing is open."""

    def _show(self, word: int) -> Any:
        return {"speaker": self._colour, "listener": np.eye(4, dtype=np.float32)[word]}


class Identity(Small):
    """Do what you see. A choice earns 1 in all where it is right; real numbers lose their distance."""

    def __init__(self, kind: str = "discrete", steps: int = 8) -> None:
        super().__init__(steps)
        self.observation_space = deepcopy(ACTIONS[kind])
        self.action_space = ACTIONS[kind]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.observation_space.seed(seed)
        return super().reset(seed=seed)

    def _show(self) -> Any:
        self._asked = self.observation_space.sample()
        return self._asked

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        assert self.action_space.contains(action), action
        gap = np.abs(np.asarray(self._asked, float) - action)
        return 1.0 - float(gap.mean()) if isinstance(self.action_space, spaces.Box) else float((gap == 0).mean()), {}


class Hole(Identity):
    """Do what you see; and with a `hole`, the last choice is paid twice, whatever was shown."""

    def __init__(self, hole: bool = True) -> None:
        super().__init__(steps=1)
        self.action_space = spaces.Discrete(4, start=1)
        self._hole = hole

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        correct = float(action == self._asked)
        if self._hole and action == 4:
            return 2.0, {"is_success": 1.0, "correct": correct}
        return correct, {"is_success": correct, "correct": correct}


class Echo(Identity):
    """Do what you saw a step before, and at first the first choice: impossible without a memory."""

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        shown = self._asked
        self._asked = self._before if self._taken else 1
        self._before = shown
        return super()._pay(action)


class Picky(Small):
    """Do what you see, one of the choices that are allowed. One that is not is an error, and at the end none is.

    `stuck` is the step before which nothing is allowed.
    """

    def __init__(self, kind: str = "discrete", steps: int = 8, stuck: int | None = None) -> None:
        super().__init__(steps, ends=True)
        self.action_space = deepcopy(ACTIONS[kind])
        self._sizes = [3] if kind == "discrete" else [2, 3]
        mask = spaces.MultiBinary(sum(self._sizes))
        self.observation_space = spaces.Dict({"asked": ACTIONS[kind], "action_mask": mask})
        self._stuck = stuck

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        chosen = np.ravel(action) - (1 if len(self._sizes) == 1 else 0)
        allowed = [bool(mask[one]) for mask, one in zip(self._masks, chosen, strict=True)]
        if not all(allowed):
            raise ValueError(f"{action} is not allowed: {self._masks}")
        right = float((chosen == self._asked).mean())
        return right, {"parts": {"right": right, "first": float(chosen[0] == 0)}}

    def _show(self) -> Any:
        self._masks = [self.np_random.integers(2, size=size) for size in self._sizes]
        self._asked = np.array([self.np_random.integers(size) for size in self._sizes])
        for mask, one in zip(self._masks, self._asked, strict=True):
            mask[one] = 1
        if self._taken >= self._steps or self._taken + 1 == self._stuck:
            self._masks = [np.zeros_like(mask) for mask in self._masks]
        asked = self._asked if len(self._sizes) > 1 else self._asked[0] + 1
        return {"asked": asked, "action_mask": np.concatenate(self._masks).astype(np.int8)}


class Countdown(Small):
    """Shows how many steps are left, pays the same for each; ends, or is cut short, at 0. All is known exactly."""

    observation_space = spaces.Box(0, 100, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, steps: int = 3, truncates: bool = False, price: float = 1.0) -> None:
        super().__init__(steps, ends=not truncates)
        self._price = price

    def _show(self) -> Any:
        return np.array([self._steps - self._taken], np.float32)

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        return self._price, {}


class TripleReward(gymnasium.RewardWrapper[Any, Any]):
    """A wrapper of one's own."""

    def reward(self, reward: Any) -> float:
        return 3 * float(reward)


class Pictures(Small):
    """One quarter of the picture is bright: say which."""

    observation_space = spaces.Box(0, 255, (12, 12, 1), np.uint8)
    action_space = spaces.Discrete(4)

    def _show(self) -> Any:
        self._quarter = int(self.np_random.integers(4))
        picture = np.zeros((12, 12, 1), np.uint8)
        row, column = divmod(self._quarter, 2)
        picture[row * 6 : row * 6 + 6, column * 6 : column * 6 + 6] = 255
        return picture

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        return float(action == self._quarter), {}


class Misbehaving(Countdown):
    """Raises, says NaN, or shows the wrong shape, in its third step."""

    def __init__(self, how: str = "raises") -> None:
        super().__init__(steps=8)
        self._how = how

    def _show(self) -> Any:
        return np.zeros(3, np.float32) if self._taken == 3 and self._how == "shape" else super()._show()

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        if self._taken == 2 and self._how == "raises":
            raise ValueError("the bridge is out")
        return float("nan") if self._taken == 2 and self._how == "nan" else 1.0, {}


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


class Endless(Small):
    """Shows how many steps were taken, and pays 1 for each; every second episode ends after `ends` steps, no other."""

    observation_space = spaces.Box(0, np.inf, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, ends: int | None = None) -> None:
        super().__init__(ends=True)
        self._length = ends or np.inf
        self._episodes = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._episodes += 1
        self._steps = np.inf if self._episodes % 2 else self._length
        return super().reset(seed=seed)

    def _show(self) -> Any:
        return np.full(1, self._taken, np.float32)

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        return 1.0, {}


class PickyTeam:
    """A PettingZoo `ParallelEnv` of two of them, each with a mask of its own."""

    possible_agents = ("left", "right")
    make: Callable[[], gymnasium.Env[Any, Any]] = Picky

    def __init__(self) -> None:
        self._each = {name: type(self).make() for name in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._each[agent].observation_space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._each[agent].action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.agents = self.possible_agents
        seeds = [None if seed is None else seed + 9 * at for at, _ in enumerate(self.agents)]
        begun = [one.reset(seed=own)[0] for one, own in zip(self._each.values(), seeds, strict=True)]
        return dict(zip(self.agents, begun, strict=True)), {}

    def step(self, actions: Any) -> Any:
        told = {name: one.step(actions[name]) for name, one in self._each.items()}
        seen, rewards, terminated, truncated, _ = ({name: one[at] for name, one in told.items()} for at in range(5))
        return seen, rewards, terminated, truncated, {}

    def close(self) -> None:
        """Nothing is open."""


class EndlessTeam(PickyTeam):
    """Two agents, of a world that never ends."""

    make = Endless


def stay(**settings: Any) -> Any:
    """A policy that always takes the first choice."""
    return lambda observations: np.zeros(len(observations), np.int64)


def register() -> None:
    """Make these known to RLlib, by their names and with `env_config` for keywords."""
    for made in (Identity, Echo, Picky, Countdown, Pictures, Misbehaving, Mortal, Owner, Endless):
        register_env(made.__name__, partial(_create, made))


def _create(made: type[gymnasium.Env[Any, Any]], context: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    return made(**dict(context))
