"""Environments that show only a part of their state, which a policy without a memory cannot master.

Importing this makes `LoomBlindCartPole-v0` and `LoomTMaze-v0` known to Gymnasium.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

BLIND, MAZE = "LoomBlindCartPole-v0", "LoomTMaze-v0"
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
        self._place, self._taken = 0, 0
        self._right = int(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Go on, or turn; `is_success` says of the last step whether the turn was right."""
        self._taken += 1
        is_at_end = self._place == self._length
        if (action != 0) == is_at_end:  # no wall in the way
            if is_at_end:
                is_right = action == 1 + self._right
                return self._seen(), float(is_right), True, False, {"is_success": float(is_right)}
            self._place += 1
            paid = 0.0
        else:
            paid = -0.1
        is_late = self._taken >= 4 * self._length + 20
        return self._seen(), paid, False, is_late, {"is_success": 0.0} if is_late else {}

    def _seen(self) -> Seen:
        shown = self._right if not self._place else 3 if self._place == self._length else 2
        seen: Seen = np.eye(4, dtype=np.float32)[shown]
        return seen


gymnasium.register(
    BLIND,
    entry_point="loomrl.envs.partial:BlindCartPole",
    vector_entry_point="loomrl.envs.partial:BlindCartPoles",
    max_episode_steps=500,
    reward_threshold=475.0,
)
gymnasium.register(MAZE, entry_point="loomrl.envs.partial:TMaze")
