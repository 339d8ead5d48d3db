"""Isotonic regression: the nearest map that never falls, by pooling adjacent violators."""

from collections.abc import Sequence

import numpy as np

from loomrl.feedback.calibration.agreement import Numbers

FOLDS = 5


def isotonic(scores: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Knots of the map from scores to values with the least squared error among all that never fall."""
    levels, inverse, counts = np.unique(np.asarray(scores, np.float64), return_inverse=True, return_counts=True)
    sums = np.bincount(inverse, weights=np.asarray(values, np.float64))
    pools: list[tuple[float, int, int, int]] = []
    """Of levels with one value: its sum, its count, the first and the last level."""
    for place in range(len(levels)):
        pool = (float(sums[place]), int(counts[place]), place, place)
        while pools and pools[-1][0] * pool[1] >= pool[0] * pools[-1][1]:
            total, count, first, _ = pools.pop()
            pool = (total + pool[0], count + pool[1], first, pool[3])
        pools.append(pool)
    knots = [(float(levels[end]), total / count) for total, count, *ends in pools for end in sorted(set(ends))]
    return [score for score, _ in knots], [min(max(value, 0.0), 1.0) for _, value in knots]


def errors(scores: Sequence[float], values: Sequence[float], *, seed: int = 0) -> dict[str, float]:
    """Mean squared error of the score itself, of the map, and of the mean value; the last two on rows left out."""
    score = np.asarray(scores, np.float64)
    value = np.asarray(values, np.float64)
    fold = np.random.default_rng(seed).permutation(len(score)) % FOLDS
    mapped = np.empty_like(value)
    constant = np.empty_like(value)
    for number in range(FOLDS):
        out = fold == number
        rest = fold != number
        mapped[out] = np.interp(score[out], *isotonic(score[rest].tolist(), value[rest].tolist()))
        constant[out] = value[rest].mean()
    return {name: _error(each, value) for name, each in (("judge", score), ("map", mapped), ("constant", constant))}


def _error(found: Numbers, value: Numbers) -> float:
    return float(np.mean((found - value) ** 2))
