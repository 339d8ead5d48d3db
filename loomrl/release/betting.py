"""Betting against hypotheses: capital that can hardly grow unless the hypothesis is false (test martingales).

A score of an observation has, given all before it, a mean of at most `weight * difference` under the hypothesis, and is
never below `-bound`. Who bets on higher scores multiplies the capital by `1 + bet * (score - weight * difference)`:
under the hypothesis it is a supermartingale, so the chance that it ever reaches 1/p is at most p, however often one
looks (Ville). Since the best bet is unknown, the capital is divided among several (Waudby-Smith & Ramdas, "Estimating
means of bounded random variables by betting").
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BETS: Floats = np.geomspace(0.1, 102.4, 11)
"""Each gets an equal part of the capital, and is twice the one before. It fits a difference of `bet * variance`."""
AT_STAKE = 0.9
"""The most that one observation can cost: a bet never loses all."""
CHUNK = 16
"""Factors multiplied before one logarithm is taken; far from underflow, since a factor is at least 0.1."""


def factors(score: Floats, weight: Floats, bound: Floats, difference: float, bets: Floats = BETS) -> Floats:
    """Growth of each bet's capital, bets along a new last axis; `bets` may differ between observations, too."""
    least = np.maximum(bound + weight * difference, 1e-12)[..., None]
    return 1 + np.minimum(bets, AT_STAKE / least) * (score - weight * difference)[..., None]


def log_mean_exp(logs: Floats) -> Floats:
    """Logarithm of the mean capital over bets, which are the last axis."""
    most = logs.max(-1, keepdims=True)
    mean: Floats = np.log(np.exp(logs - most).mean(-1)) + most[..., 0]
    return mean


def log_capital(score: Floats, weight: Floats, bound: Floats, difference: float, bets: Floats = BETS) -> Floats:
    """Logarithm of the whole capital after each observation."""
    return log_mean_exp(np.cumsum(np.log(factors(score, weight, bound, difference, bets)), axis=-2))


class Capital:
    """The capital against one hypothesis, with its history's maximum; equal however observations are batched."""

    def __init__(self, difference: float) -> None:
        self._difference = difference
        self._logs = np.zeros(len(BETS))
        self.log_now = 0.0
        self.log_most = 0.0

    def grow(self, score: Floats, weight: Floats, bound: Floats) -> None:
        """Bet on these observations, in order."""
        if not len(score):
            return
        steps = np.log(factors(score, weight, bound, self._difference))
        logs = np.cumsum(np.concatenate([self._logs[None], steps]), axis=0)[1:]
        whole = log_mean_exp(logs)
        self._logs = logs[-1]
        self.log_now = float(whole[-1])
        self.log_most = max(self.log_most, float(whole.max()))


def least_difference(score: Floats, weight: Floats, bound: Floats, error_rate: float, bets: Floats = BETS) -> float:
    """The lower confidence bound of the difference, between -1 and 1: all below it are refuted."""
    enough = math.log(1 / error_rate)

    def excess(difference: float) -> float:
        grown = factors(score, weight, bound, difference, bets)
        padded = np.concatenate([grown, np.ones((-len(grown) % CHUNK, grown.shape[-1]))])
        logs = np.log(padded.reshape(-1, CHUNK, grown.shape[-1]).prod(1)).sum(0)
        return float(log_mean_exp(logs)) - enough

    return root_of_falling(excess, -1.0, 1.0)


def root_of_falling(function: Callable[[float], float], low: float, high: float) -> float:
    """The argument at which a falling function crosses zero; the nearer end if it does not."""
    from scipy.optimize import brentq  # type: ignore[import-untyped,unused-ignore]

    if function(low) <= 0:
        return low
    if function(high) >= 0:
        return high
    return float(brentq(function, low, high, xtol=1e-7))
