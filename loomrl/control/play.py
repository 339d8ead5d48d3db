"""Whole episodes of a control policy, as it is judged: greedily, without RLlib."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from gymnasium.vector import VectorEnv

from loomrl.errors import EpisodeError


class Acts(Protocol):
    """Decides for all environments at once."""

    def begin(self, environments: VectorEnv[Any, Any, Any], *, seed: int) -> None:
        """Make ready for these; a ConfigError where their spaces are others."""

    def act_batch(self, observations: Any) -> Any:
        """Actions, as the environments take them."""


class RandomPolicy:
    """Every action alike: what any other policy is measured by."""

    def begin(self, environments: VectorEnv[Any, Any, Any], *, seed: int) -> None:
        """See Acts."""
        self._space = environments.action_space
        self._space.seed(seed)

    def act_batch(self, observations: Any) -> Any:
        """See Acts."""
        return self._space.sample()


class Scripted:
    """A function from observations to actions."""

    def __init__(self, call: Callable[[Any], Any]) -> None:
        self.act_batch = call

    def begin(self, environments: VectorEnv[Any, Any, Any], *, seed: int) -> None:
        """See Acts."""


def play(
    policy: Acts, environments: VectorEnv[Any, Any, Any], episodes: int, *, seed: int
) -> tuple[list[float], list[int]]:
    """Returns and lengths of so many episodes; every environment plays its share, so that short ones count no more."""
    policy.begin(environments, seed=seed)
    count = environments.num_envs
    left_N = np.full(count, episodes // count) + (np.arange(count) < episodes % count)
    earned_N, steps_N, over_N = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, bool)
    returns: list[float] = []
    lengths: list[int] = []
    observations, _ = environments.reset(seed=seed)
    while (left_N > 0).any():
        observations, rewards, terminated, truncated, _ = environments.step(policy.act_batch(observations))
        if not np.isfinite(rewards).all():
            raise EpisodeError(f"the environment gave a reward of {rewards}: nothing can be judged by it.")
        earned_N += np.where(over_N, 0.0, rewards)  # a step after an end only begins anew
        steps_N += ~over_N
        over_N = np.asarray(terminated) | np.asarray(truncated)
        for n in np.flatnonzero(over_N):
            if left_N[n] > 0:
                returns.append(float(earned_N[n]))
                lengths.append(int(steps_N[n]))
            left_N[n] -= 1
            earned_N[n], steps_N[n] = 0.0, 0
    return returns, lengths
