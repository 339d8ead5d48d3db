"""Agreement of two judges: ranks, kappa, and intervals from the bootstrap."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from loomrl.evaluation.statistics import Interval

Numbers = NDArray[np.float64]
RESAMPLES = 1000
CONFIDENCE = 0.95


def rank_correlation(left: Numbers, right: Numbers) -> float:
    """Spearman's, with mean ranks for ties; NaN where all of one are alike."""
    return _correlation(ranks(left), ranks(right))


def ranks(values: Numbers) -> Numbers:
    """From 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray(((last - counts + 1 + last) / 2)[inverse], np.float64)


def kappa(left: Numbers, right: Numbers) -> float:
    """Cohen's kappa with squared weights: 1 for the same, 0 for chance; NaN where all of both are alike.

    Of two values it is the plain one.
    """
    observed = float(np.mean((left - right) ** 2))
    expected = float(left.var() + right.var() + (left.mean() - right.mean()) ** 2)  # of independent rows
    return 1 - observed / expected if expected else float("nan")


def mean(values: Numbers) -> float:
    """The mean."""
    return float(np.mean(values))


def resampled(statistic: Callable[..., float], *columns: Sequence[float], seed: int = 0) -> Interval:
    """A statistic of rows with the percentile interval of the bootstrap; a mean of None where it is not defined."""
    arrays = [np.asarray(column, np.float64) for column in columns]
    count = len(arrays[0])
    found = statistic(*arrays) if count else float("nan")
    if not np.isfinite(found):
        return Interval(None, -1.0, 1.0, count)
    rng = np.random.default_rng(seed)
    drawn = [statistic(*(array[rows] for array in arrays)) for rows in rng.integers(0, count, (RESAMPLES, count))]
    defined = [value for value in drawn if np.isfinite(value)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Interval(float(found), float(low), float(high), count)


def _correlation(left: Numbers, right: Numbers) -> float:
    left, right = left - left.mean(), right - right.mean()
    scale = float(np.sqrt((left**2).sum() * (right**2).sum()))
    return float((left * right).sum()) / scale if scale else float("nan")
