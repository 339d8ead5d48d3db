"""Vector environments of one's own, with arrays, in every way of beginning ended episodes anew."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class Clocks(VectorEnv[Any, Any, Any]):
    """Place n shows its step and its number; episode k of it ends, or is cut, after `steps + (n + k) % 3` steps, each
    of which pays 1. All is known exactly, and written into the same memory every time.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's declaration

    def __init__(self, num_envs: int, steps: int = 3, truncates: bool = True, mode: Any = "NextStep") -> None:
        self.metadata = {} if mode is None else {"autoreset_mode": AutoresetMode(mode)}
        self._mode = AutoresetMode(mode or "NextStep")
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 100, (2,))
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._length = steps
        self._truncates = truncates
        self._places = np.arange(num_envs)
        self._seen = np.zeros((num_envs, 2), np.float32)
        self._ended = np.zeros(num_envs, bool)
        self._rewards = np.zeros(num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        chosen = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if chosen.all():
            self._episodes = np.full(self.num_envs, -1)
        self._begin(chosen)
        return self._seen, {}

    def step(self, actions: Any) -> Any:
        assert actions.shape == (self.num_envs,)
        over = self._ended.copy()
        assert self._mode is not AutoresetMode.DISABLED or not over.any()
        acted = ~over if self._mode is AutoresetMode.NEXT_STEP else np.ones_like(over)
        self._begin(over & ~acted)
        self._seen[:, 0] += acted
        self._rewards[:] = acted
        ended = acted & (self._seen[:, 0] >= self._length + (self._places + self._episodes) % 3)
        self._ended[:] = ended
        info = {"is_success": self._seen[:, 0] > self._length}
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            info = {"final_obs": self._seen.copy(), "final_info": info}
            self._begin(ended)
        never = np.zeros_like(ended)
        ends = (never, ended) if self._truncates else (ended, never)
        return self._seen, self._rewards, *ends, info

    def _begin(self, chosen: Any) -> None:
        self._episodes[chosen] += 1
        self._seen[chosen, 0] = 0
        self._seen[:, 1] = self._places
        self._ended[chosen] = False


class Muted(Clocks):
    """Begins anew at once, and keeps the last observations to itself. Its `spec` is its own, as EnvPool's."""

    spec: Any = "seven places"

    def __init__(self, num_envs: int, **settings: Any) -> None:
        super().__init__(num_envs, mode="SameStep", **settings)

    def step(self, actions: Any) -> Any:
        assert self.spec == "seven places"
        *told, _ = super().step(actions)
        return *told, {}


def make_clocks(**settings: Any) -> VectorEnv[Any, Any, Any]:
    """A function as `envpool.make_gymnasium` is one."""
    return Clocks(**{"num_envs": 1, **settings})
