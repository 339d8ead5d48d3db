"""Confidence intervals of means: of outcomes in 0..1, and of unbounded values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence bounds. Without observations the mean is None and the bounds carry no information."""

    mean: float | None
    low: float
    high: float
    count: int


def wilson(outcomes_sum: float, count: int, *, confidence: float = 0.95, independent: float | None = None) -> Interval:
    """Wilson score interval for the mean of `count` outcomes in 0..1, worth so many independent ones.

    Meant for successes and failures; for outcomes in between (half a point for a draw) it is conservative, since
    nothing in 0..1 has a larger variance than a coin of the same mean.
    """
    if not 0 <= outcomes_sum <= count:
        raise ValueError(f"outcomes_sum={outcomes_sum} must lie between 0 and count={count}.")
    if count == 0:
        return Interval(None, 0.0, 1.0, 0)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    mean = outcomes_sum / count
    worth = independent or count
    centre = (mean + z * z / (2 * worth)) / (1 + z * z / worth)
    half = z / (1 + z * z / worth) * math.sqrt(mean * (1 - mean) / worth + z * z / (4 * worth * worth))
    return Interval(mean, max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half)), count)


def wilson_of_groups(groups: Sequence[Sequence[float]], *, confidence: float = 0.95) -> Interval:
    """Wilson score interval for the mean of outcomes in 0..1, of which those of a group are alike.

    They are worth as many independent outcomes as have a mean that varies like this one does between groups, but no
    fewer than there are groups.
    """
    known = [group for group in groups if group]
    count = sum(map(len, known))
    total = math.fsum(map(math.fsum, known))
    if len(known) in (0, 1, count):
        return wilson(total, count, confidence=confidence, independent=len(known))
    mean = total / count
    apart = math.fsum((math.fsum(group) - mean * len(group)) ** 2 for group in known)
    variance = apart * len(known) / (len(known) - 1) / count**2
    worth = _independent(mean, variance, least=len(known), most=count)
    return wilson(total, count, confidence=confidence, independent=worth)


def wilson_of_shares(shares: Sequence[float], of: int, *, confidence: float = 0.95) -> Interval:
    """The same for the mean of shares, each found in a group of so many outcomes."""
    count = len(shares)
    total = math.fsum(shares)
    spread = deviation(shares)
    if spread is None:
        return wilson(total, count, confidence=confidence)
    worth = _independent(total / count, spread**2 / count, least=count, most=count * of)
    return wilson(total, count, confidence=confidence, independent=worth)


def _independent(mean: float, variance: float, *, least: int, most: int) -> float:
    """The number of independent outcomes in 0..1 whose mean has this variance, within bounds."""
    return min(max(mean * (1 - mean) / variance, least), most) if variance else least


def mean_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Student's interval for the mean of the distribution of `values`.

    A single value gives a mean with infinite bounds.
    """
    if not all(map(math.isfinite, values)):
        raise ValueError(f"values={list(values)} must be finite.")
    count = len(values)
    spread = deviation(values)
    mean = math.fsum(values) / count if count else None
    if mean is None or spread is None:
        return Interval(mean, -math.inf, math.inf, count)
    from scipy.special import stdtrit  # type: ignore[import-untyped,unused-ignore]

    half = float(stdtrit(count - 1, (1 + confidence) / 2)) * spread / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation of `values`; None for fewer than two."""
    count = len(values)
    if count < 2:
        return None
    mean = math.fsum(values) / count
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
