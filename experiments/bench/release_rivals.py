"""Rules that roll a version back, as others have them: what `loomrl bench release` compares ours with.

Each takes harms of releases `R` by units `N`, and answers at which unit it rolls back; N if never.
"""

import numpy as np
from numpy.typing import NDArray

from loomrl.release.betting import Floats
from loomrl.release.comparison import Mean, score

Ints = NDArray[np.int64]

LEAST_UNITS = 20
"""Units of both arms before a z-test looks for the first time."""
BURN_IN = 50
"""Units of the challenger before the asymptotic bounds hold well enough."""
WINDOW = 100
"""Units in five minutes, at 20 a minute."""
FAILED_CHECKS = 5
"""Flagger's `threshold` in its own examples."""


def first(alarms_RN: NDArray[np.bool_]) -> Ints:
    """The place of each row's first True; the length of the row without one."""
    return np.where(alarms_RN.any(1), alarms_RN.argmax(1), alarms_RN.shape[1])


def peeking(harm_RN: Floats, is_challenger_RN: Floats, error_rate: float) -> Ints:
    """A one-sided z-test of the two means over all units so far, looked at after every unit."""
    from scipy.stats import norm  # type: ignore[import-untyped,unused-ignore]

    new = _moments(harm_RN, is_challenger_RN)
    old = _moments(harm_RN, 1 - is_challenger_RN)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(new[2] / new[0] + old[2] / old[0])
        z = (new[1] - old[1]) / error
    ready = (np.minimum(new[0], old[0]) >= LEAST_UNITS) & (error > 0)
    return first(ready & (z > norm.isf(error_rate)))


def _moments(harm_RN: Floats, taken_RN: Floats) -> tuple[Floats, Floats, Floats]:
    """Count, mean and variance so far."""
    count = np.cumsum(taken_RN, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.cumsum(harm_RN * taken_RN, axis=1) / count
        variance = np.cumsum(harm_RN**2 * taken_RN, axis=1) / count - mean**2
    return count, mean, np.maximum(variance, 0)


def asymptotic(harm_RN: Floats, is_challenger_RN: Floats, chance_N: Floats, error_rate: float) -> Ints:
    """The one-sided asymptotic confidence sequence (Waudby-Smith et al.) of the scores that ours bets on."""
    found, _ = score(harm_RN, is_challenger_RN, chance_N, Mean())
    total = np.cumsum(found.score, axis=1)
    spent = np.cumsum(found.score**2, axis=1)
    units = np.cumsum(is_challenger_RN, axis=1)
    spread = float((chance_N * (1 - chance_N))[0] * 0.25 * BURN_IN / chance_N[0])
    inside = (spent + spread) * 2 * np.log(1 + np.sqrt((spent + spread) / spread) / (2 * error_rate))
    return first((units >= BURN_IN) & (total > np.sqrt(inside)))


def thresholds(harm_RN: Floats, is_challenger_RN: Floats, limit: float) -> Ints:
    """Flagger's rule: every five minutes the challenger's mean of these five minutes is held against a fixed limit;
    the fifth failed check rolls back.
    """
    releases, units = harm_RN.shape
    windows = units // WINDOW
    shape = (releases, windows, WINDOW)
    taken = is_challenger_RN[:, : windows * WINDOW].reshape(shape)
    count = taken.sum(2)
    with np.errstate(invalid="ignore"):
        mean = (harm_RN[:, : windows * WINDOW].reshape(shape) * taken).sum(2) / count
    failed = np.cumsum((count > 0) & (mean > limit), axis=1) >= FAILED_CHECKS
    window = first(failed)
    return np.where(window < windows, window * WINDOW + WINDOW - 1, units)
