"""Simulated traffic of releases: who meets which version, and how it goes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loomrl.release.betting import Floats
from loomrl.release.comparison import beyond
from loomrl.release.guard import Better, Guard

UNITS_PER_MINUTE = 20
RAMP = ((1200, 0.10), (1200, 0.25), (2400, 0.50))
"""Units and share of each step: 60, 60 and 120 minutes."""
WHOLE = sum(units for units, _ in RAMP)
DAY = 1440 * UNITS_PER_MINUTE // 6
"""Units in a day; a sixth of one, so that a ramp of four hours sees a whole day pass."""


@dataclass(frozen=True, slots=True)
class Harm:
    """Observed harms of releases `R` in one metric, unit by unit: 0 is the best, 1 the worst."""

    guard: Guard
    plain_RN: Floats
    eased_RN: Floats
    """After what the guard accepts by `times`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A guard, and the distribution of its metric. `fault` is added to the challenger's mean."""

    guard: Guard
    mean: float
    fault: float = 0.0
    deviation: float | None = None
    """None for a rate; of the logarithm for latencies, whose mean is the logarithm's, too."""
    drift_N: Floats | float = 0.0
    """Added to both means."""

    def drawn(self, rng: np.random.Generator, is_challenger_RN: Floats) -> Harm:
        """The harm of units."""
        mean_RN = self.mean + self.drift_N + self.fault * is_challenger_RN
        if self.guard.quantile is not None:
            assert self.deviation is not None
            return _slow(self.guard, rng.lognormal(mean_RN, self.deviation), is_challenger_RN)
        if self.deviation is None:
            values = (rng.random(mean_RN.shape) < mean_RN).astype(np.float64)
        else:
            weight = mean_RN * (1 - mean_RN) / self.deviation**2 - 1
            values = rng.beta(mean_RN * weight, (1 - mean_RN) * weight)
        harm = 1 - values if self.guard.better is Better.HIGHER else values
        return Harm(self.guard, harm, np.where(is_challenger_RN == 1, harm / (self.guard.times or 1.0), harm))

    @property
    def usual(self) -> float:
        """The harm of a good version, where it is a mean."""
        return 1 - self.mean if self.guard.better is Better.HIGHER else self.mean


def _slow(guard: Guard, latencies_RN: Floats, is_challenger_RN: Floats) -> Harm:
    rows = [beyond(row, taken, guard, []) for row, taken in zip(latencies_RN, is_challenger_RN, strict=True)]
    plain, eased = (np.nan_to_num(np.stack(part)) for part in zip(*rows, strict=True))
    return Harm(guard, plain, eased)


def steps(parts: Sequence[tuple[int, float]]) -> Floats:
    """The challenger's share at every unit."""
    return np.concatenate([np.full(units, share) for units, share in parts])


def assigned(rng: np.random.Generator, releases: int, chance_N: Floats) -> Floats:
    """1 where a unit meets the challenger."""
    return (rng.random((releases, len(chance_N))) < chance_N).astype(np.float64)


def day(units: int, swing: float) -> Floats:
    """The cycle of a day."""
    cycle: Floats = swing * np.sin(2 * np.pi * np.arange(units) / DAY)
    return cycle


def against_the_day(units: int) -> Floats:
    """Shares that somebody raises to a half whenever the day is bad."""
    return np.where(day(units, 1.0) < 0, 0.5, 0.1)
