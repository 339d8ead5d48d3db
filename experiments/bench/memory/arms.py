"""Algorithms that are known for bandits, on the tasks that policies are judged by.

Axes: `_N` tasks, `_K` arms, `_T` pulls.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Chooses = Callable[[Array, Array, np.random.Generator], NDArray[np.int64]]
"""Arms from the pulls of every arm up to now, and what these paid."""


def ucb1(pulls_NK: Array, paid_NK: Array, chance: np.random.Generator) -> NDArray[np.int64]:
    """The arm whose upper confidence bound is highest (Auer et al., 2002); each one once at first."""
    total_N1 = np.maximum(pulls_NK.sum(1, keepdims=True), 1)
    tried_NK = np.maximum(pulls_NK, 1)
    bound_NK = paid_NK / tried_NK + np.sqrt(2 * np.log(total_N1) / tried_NK)
    return _best(np.where(pulls_NK == 0, np.inf, bound_NK))


def thompson(pulls_NK: Array, paid_NK: Array, chance: np.random.Generator) -> NDArray[np.int64]:
    """The best arm of a draw from the posterior, of a uniform prior."""
    return _best(chance.beta(1 + paid_NK, 1 + pulls_NK - paid_NK))


def greedy(pulls_NK: Array, paid_NK: Array, chance: np.random.Generator) -> NDArray[np.int64]:
    """The arm with the highest posterior mean."""
    return _best((1 + paid_NK) / (2 + pulls_NK))


def uniform(pulls_NK: Array, paid_NK: Array, chance: np.random.Generator) -> NDArray[np.int64]:
    """Any arm."""
    return chance.integers(pulls_NK.shape[1], size=len(pulls_NK))


def _best(worth_NK: Array) -> NDArray[np.int64]:
    best: NDArray[np.int64] = worth_NK.argmax(1)
    return best


KNOWN: dict[str, Chooses] = {"ucb1": ucb1, "thompson": thompson, "greedy": greedy, "uniform": uniform}


def pulled(choose: Chooses, chances_NK: Array, pulls: int, *, seed: int) -> Array:
    """Rewards `[N, T]` of an algorithm on bandits that pay with these probabilities."""
    chance = np.random.default_rng(seed)
    pulls_NK, paid_NK, rows = np.zeros_like(chances_NK), np.zeros_like(chances_NK), np.arange(len(chances_NK))
    rewards = np.zeros((len(chances_NK), pulls))
    for t in range(pulls):
        arm_N = choose(pulls_NK, paid_NK, chance)
        rewards[:, t] = chance.random(len(rows)) < chances_NK[rows, arm_N]
        pulls_NK[rows, arm_N] += 1
        paid_NK[rows, arm_N] += rewards[:, t]
    return rewards
