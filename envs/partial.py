"""Environments that show only a part of their state, which a policy without a memory cannot master.

Importing this makes `LoomBlindCartPole-v0`, `LoomTMaze-v0` and `LoomKeys-v0` known to Gymnasium.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from loomrl.control.space import ACTION_MASK

BLIND = "LoomBlindCartPole-v0"
MAZE = "LoomTMaze-v0"
KEYS = "LoomKeys-v0"
POSITIONS = [0, 2]
"""Where CartPole's observation has the position of the cart and the angle of the pole; the others are velocities."""

Seen = NDArray[np.float32]


def _positions(space: spaces.Space[Any]) -> spaces.Box:
    assert isinstance(space, spaces.Box)
    return spaces.Box(space.low[POSITIONS], space.high[POSITIONS])


class BlindCartPole(CartPoleEnv):
    """CartPole without velocities."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.observation_space = _positions(self.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode."""
        seen, info = super().reset(seed=seed, options=options)
        return seen[POSITIONS], info

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Push the cart once."""
        seen, *rest = super().step(action)  # type: ignore[no-untyped-call]
        return (seen[POSITIONS], *rest)


class BlindCartPoles(CartPoleVectorEnv):
    """Many of them at once, in Gymnasium's own vector form."""

    def __init__(self, num_envs: int = 1, **settings: Any) -> None:
        super().__init__(num_envs, **settings)
        self.single_observation_space = _positions(self.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin all episodes."""
        seen, info = super().reset(seed=seed, options=options)
        return seen[:, POSITIONS], info

    def step(self, action: Any) -> tuple[Seen, Any, Any, Any, dict[str, Any]]:
        """Push every cart once."""
        seen, *rest = super().step(action)
        return (seen[:, POSITIONS], *rest)  # type: ignore[return-value]


class ShowOnly(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Shows only the numbers of an observation at these places."""

    def __init__(self, env: gymnasium.Env[Any, Any], places: Sequence[int]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, spaces.Box)
        self._places = list(places)
        self.observation_space = spaces.Box(space.low[self._places], space.high[self._places])

    def observation(self, observation: Any) -> Seen:
        """The shown numbers."""
        shown: Seen = observation[self._places]
        return shown


class TMaze(gymnasium.Env[Seen, np.int64]):
    """A corridor with a sign at its beginning that says where to turn at its end, `length` steps later (Bakker, 2001).

    The right turn pays 1, the wrong one nothing, and a step against a wall costs 0.1: without a memory a policy gets
    0.5 at best. Observations are one of four: either sign, the corridor, the junction.
    """

    observation_space = spaces.Box(0.0, 1.0, (4,))
    action_space = spaces.Discrete(3)
    """Onward, to the left, to the right."""

    def __init__(self, length: int = 20) -> None:
        if length < 1:
            raise ValueError(f"length={length}: a corridor has at least one step")
        self._length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode with either sign."""
        super().reset(seed=seed)
        self._place = 0
        self._taken = 0
        self._right = int(self.np_random.integers(2))
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Go on, or turn; `is_success` says of the last step whether the turn was right."""
        self._taken += 1
        is_at_end = self._place == self._length
        if (action != 0) == is_at_end:  # no wall in the way
            if is_at_end:
                is_right = action == 1 + self._right
                return self._observe(), float(is_right), True, False, {"is_success": float(is_right)}
            self._place += 1
            paid = 0.0
        else:
            paid = -0.1
        is_late = self._taken >= 4 * self._length + 20
        return self._observe(), paid, False, is_late, {"is_success": 0.0} if is_late else {}

    def _observe(self) -> Seen:
        shown = self._right if not self._place else 3 if self._place == self._length else 2
        seen: Seen = np.eye(4, dtype=np.float32)[shown]
        return seen


class KeyDoors(gymnasium.Env[Any, np.int64]):
    """Doors in a row, each opened by one of many keys. The right ones are shown one after the other at the beginning.

    Action 0 looks at the next key shown, and is the only action allowed there; at a door every unused key is allowed.
    A used key breaks, right or wrong, and the door is passed; the right one pays its share of 1. Without a memory no
    observation tells which key is right. An action that is not allowed costs 0.05 and a step; with `is_masked: false`
    the observation does not say which are allowed.
    """

    def __init__(self, keys: int = 8, doors: int = 3, is_masked: bool = True) -> None:
        if not 1 <= doors <= keys:
            raise ValueError(f"doors={doors}: there must be one at least, and keys={keys} for all of them")
        self._keys = keys
        self._doors = doors
        self._is_masked = is_masked
        self.action_space = spaces.Discrete(keys + 1)
        shown: spaces.Space[Any] = spaces.Box(0.0, 1.0, (keys + doors,))
        if is_masked:
            shown = spaces.Dict({"observation": shown, ACTION_MASK: spaces.MultiBinary(keys + 1)})
        self.observation_space = shown

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode with other keys."""
        super().reset(seed=seed)
        self._right = self.np_random.permutation(self._keys)[: self._doors]
        self._looked = 0
        self._passed = 0
        self._opened = 0
        self._steps = 0
        self._is_left = np.ones(self._keys, bool)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Look, or use a key; `is_success` says of the last step what share of the doors was opened."""
        self._steps += 1
        paid = 0.0
        if not self._mask()[action]:
            paid = -0.05
        elif action == 0:
            self._looked += 1
        else:
            self._is_left[action - 1] = False
            is_right = action - 1 == self._right[self._passed]
            paid = is_right / self._doors
            self._opened += is_right
            self._passed += 1
        is_over = self._passed == self._doors
        is_late = self._steps >= 8 * self._doors
        info = {"is_success": self._opened / self._doors} if is_over or is_late else {}
        return self._observe(), float(paid), is_over, is_late and not is_over, info

    def _mask(self) -> NDArray[np.bool_]:
        is_looking = self._looked < self._doors
        return np.array([is_looking, *(self._is_left & (not is_looking) & (self._passed < self._doors))])

    def _observe(self) -> Any:
        """The key that is shown, or the door in front."""
        shown = np.zeros(self._keys + self._doors, np.float32)
        if self._looked < self._doors:
            shown[self._right[self._looked]] = 1
        elif self._passed < self._doors:
            shown[self._keys + self._passed] = 1
        return {"observation": shown, ACTION_MASK: self._mask().astype(np.int8)} if self._is_masked else shown


gymnasium.register(
    BLIND,
    entry_point="loomrl.envs.partial:BlindCartPole",
    vector_entry_point="loomrl.envs.partial:BlindCartPoles",
    max_episode_steps=500,
    reward_threshold=475.0,
)
gymnasium.register(MAZE, entry_point="loomrl.envs.partial:TMaze")
gymnasium.register(KEYS, entry_point="loomrl.envs.partial:KeyDoors")
