"""The number of units that an A/B test needs, found beforehand by simulating it."""

import math
from dataclasses import dataclass

import numpy as np

from loomrl.errors import ConfigError
from loomrl.release.betting import BETS, Floats, factors, log_mean_exp
from loomrl.release.comparison import Mean, score

MOST_UNITS = 400_000
"""Maximum units of both arms; effects that need more are refused."""
TESTS = 200
"""Simulated tests: the power is accurate to 0.06."""
CHUNK = 1000
"""Units simulated at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A difference that a test should find: of a metric within [0, 1] with this mean and deviation."""

    mean: float
    difference: float
    """Challenger minus baseline, in either direction."""
    deviation: float | None = None
    """Standard deviation of both arms; None for a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSize:
    """Units until the effect is found with the wanted power."""

    baseline: int
    challenger: int
    median: int
    """Units of the challenger until half of the tests have found it."""


def plan_size(effect: Effect, *, share: float = 0.5, error_rate: float = 0.05, power: float = 0.8) -> SampleSize:
    """The units per arm until a comparison that is looked at all the time proves the direction of this effect.

    `share` is the challenger's among units of the two arms; `error_rate` is that of one direction of one guard.
    """
    _check(effect, share, power)
    needed = np.sort(_simulate(effect, share, error_rate))
    units = needed[math.ceil(power * TESTS) - 1]
    if not math.isfinite(units):
        raise ConfigError(
            f"difference={effect.difference}: {MOST_UNITS} units do not find it with power {power}. "
            "Ask for a larger difference or a share closer to 0.5."
        )
    return SampleSize(
        baseline=math.ceil(units * (1 - share)),
        challenger=math.ceil(units * share),
        median=math.ceil(needed[TESTS // 2] * share),
    )


def _check(effect: Effect, share: float, power: float) -> None:
    """A ConfigError for an effect that cannot be planned for."""
    after = effect.mean + effect.difference
    if not (0 < effect.mean < 1 and 0 < after < 1) or not effect.difference:
        raise ConfigError(
            f"mean={effect.mean}, difference={effect.difference}: both means must lie between 0 and 1, and differ."
        )
    most = math.sqrt(min(mean * (1 - mean) for mean in (effect.mean, after)))
    if effect.deviation is not None and not 0 < effect.deviation < most:
        raise ConfigError(f"deviation={effect.deviation}: must be above 0 and below {most:.3g} for these means.")
    if not 0 < share < 1:
        raise ConfigError(f"share={share}: must lie between 0 and 1.")
    if not 0 < power < 1:
        raise ConfigError(f"power={power}: must lie between 0 and 1, for example 0.8.")


def _simulate(effect: Effect, share: float, error_rate: float) -> Floats:
    """Units of both arms until each of `TESTS` tests found the effect; infinite for those that did not."""
    rng = np.random.default_rng(0)
    needed = np.full(TESTS, math.inf)
    open_tests = np.arange(TESTS)
    done = 0
    before = Mean()
    logs = np.zeros((TESTS, len(BETS)))
    while len(open_tests) and done < MOST_UNITS:
        shape = (len(open_tests), CHUNK)
        is_challenger = (rng.random(shape) < share).astype(np.float64)
        values = _draw(rng, effect, is_challenger)
        harm = values if effect.difference > 0 else 1 - values
        found, after = score(harm, is_challenger, np.full(shape, share), before)
        grown = logs[:, None] + np.cumsum(np.log(factors(found.score, found.weight, found.below, 0.0)), axis=1)
        reached = log_mean_exp(grown) >= -math.log(error_rate)
        ended = reached.any(1)
        needed[open_tests[ended]] = done + 1 + reached[ended].argmax(1)
        before = Mean(np.asarray(after.total)[~ended], after.count)
        open_tests = open_tests[~ended]
        logs = grown[~ended, -1]
        done = done + CHUNK
    return needed


def _draw(rng: np.random.Generator, effect: Effect, is_challenger: Floats) -> Floats:
    mean = effect.mean + effect.difference * is_challenger
    if effect.deviation is None:
        return (rng.random(mean.shape) < mean).astype(np.float64)
    weight = mean * (1 - mean) / effect.deviation**2 - 1
    return rng.beta(mean * weight, (1 - mean) * weight)
