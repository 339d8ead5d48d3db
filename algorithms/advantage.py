"""Advantages over arrays of steps, and how well values predict returns. Pure functions.

Axes: `_T` steps, `_N` environments.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

NO_SPREAD = 1e-8
"""Relative differences below this are rounding errors of equal rewards."""


def has_signal(rewards_G: Floats) -> bool:
    """True if the attempts' rewards differ, so that a comparison has a learning signal."""
    rewards = np.asarray(rewards_G, np.float64)
    return bool(rewards.size) and bool(np.ptp(rewards) > NO_SPREAD * max(1.0, float(np.abs(rewards).max())))


def gae(
    rewards_TN: Floats,
    values_TN: Floats,
    terminated_TN: NDArray[np.bool_],
    ended_TN: NDArray[np.bool_],
    *,
    gamma: float,
    lam: float,
) -> Floats:
    """Advantages; `values` has one more step, and after an episode's end it holds the value of the last state.

    A truncated episode would have continued, so that value counts; a terminated one would not.
    """
    ahead_TN = gamma * values_TN[1:] * ~terminated_TN
    delta_TN = rewards_TN + ahead_TN - values_TN[:-1]
    keep_TN = gamma * lam * ~ended_TN
    out_TN = np.empty_like(delta_TN)
    running_N = np.zeros(rewards_TN.shape[1], delta_TN.dtype)
    for t in range(len(rewards_TN) - 1, -1, -1):
        running_N = delta_TN[t] + keep_TN[t] * running_N
        out_TN[t] = running_N
    return out_TN


def explained_variance(values: Floats, returns: Floats) -> float:
    """Share of the returns' variance that the values predicted: 1 is perfect, 0 no better than a constant."""
    if not has_signal(returns):
        return 0.0
    return float(1.0 - np.var(returns - values) / np.var(returns))
