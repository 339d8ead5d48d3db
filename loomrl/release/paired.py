"""The comparison of two policies on the same tasks: differences within pairs need far fewer samples."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from loomrl.errors import ConfigError
from loomrl.release.betting import BETS, Floats, least_difference, log_capital
from loomrl.release.comparison import check_guard
from loomrl.release.guard import Better, Finding, Guard, Side

EFFECTS = 10.0
"""Variance of the effect sizes of `bound_mean`: large ones, so that three values can be enough."""


def compare_pairs(
    guard: Guard, pairs: Iterable[tuple[float, float]], *, error_rate: float = 0.05, planned: int | None = None
) -> Finding:
    """The evidence of pairs (baseline's value, challenger's value) of the same tasks, in an order known beforehand.

    It is valid at any number of pairs. Where the number is `planned`, the bets suit that number, which makes the
    bounds at it tighter. The error rate is this guard's alone: several divide it before.
    """
    check_guard(guard)
    if guard.quantile is not None:
        raise ConfigError(f"guard {guard.metric!r}: quantile={guard.quantile} of pairs is unknown. Compare the mean.")
    if not 0 < error_rate < 1 or (planned is not None and planned < 1):
        raise ConfigError(f"error_rate={error_rate}, planned={planned}: a share such as 0.05, and at least one pair.")
    values = np.asarray(list(pairs), np.float64).reshape(-1, 2)
    if not np.isfinite(values).all():
        place = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise ConfigError(f"guard {guard.metric!r}: pair {place} is {tuple(values[place].tolist())}, not finite.")
    span = guard.high - guard.low
    clipped = np.clip(values, guard.low, guard.high)
    harms = (clipped - guard.low if guard.better is Better.LOWER else guard.high - clipped) / span
    plain = harms[:, 1] - harms[:, 0]
    eased = harms[:, 1] / (guard.times or 1.0) - harms[:, 0]
    bets = BETS if planned is None else suited_bets(plain, planned, error_rate)
    weight = np.ones(len(plain))
    accepted = guard.margin / span
    low = least_difference(plain, weight, weight, error_rate, bets)
    high = -least_difference(-plain, weight, weight, error_rate, bets)
    is_proved = _is_refuted(plain, 0.0, error_rate, bets)
    difference = float(plain.mean()) if len(plain) else math.nan
    if guard.better is Better.HIGHER:
        difference, low, high = -difference, -high, -low
    old, new = clipped.mean(0).tolist() if len(clipped) else (math.nan, math.nan)
    return Finding(
        guard=guard,
        baseline=Side(value=old, count=len(clipped)),
        challenger=Side(value=new, count=len(clipped)),
        difference=difference * span,
        low=low * span,
        high=high * span,
        is_proved=is_proved,
        is_worse=is_proved and float(eased.mean()) > accepted,
        is_fine=_is_refuted(-eased, -accepted, error_rate, bets),
    )


def bound_mean(values: Sequence[float], *, error_rate: float = 0.05) -> tuple[float, float]:
    """Bounds of the mean of values without known limits, at any look: infinite until there are enough.

    The t-test by a mixture over effect sizes (Lai; Wang & Ramdas, "Anytime-valid t-tests"), for values that are about
    normal. Where all of them are equal, the mean is its own bound once a coin would hardly give so many of one sign.
    """
    count = len(values)
    deviation = float(np.std(values, ddof=1)) if count > 1 else 0.0
    if deviation == 0 and any(values) and 2.0 ** (1 - count) <= error_rate:
        return values[0], values[0]
    spread = 1.0 + EFFECTS * count
    grown = math.exp(2 / max(1, count) * (0.5 * math.log(spread) - math.log(error_rate)))
    if deviation == 0 or grown >= spread:
        return -math.inf, math.inf
    half = math.sqrt((count - 1) * (grown - 1) / (1 - grown / spread) / count) * deviation
    mean = float(np.mean(values))
    return mean - half, mean + half


def _is_refuted(score: Floats, difference: float, error_rate: float, bets: Floats) -> bool:
    """True if a mean of at most `difference` was refuted at any number of pairs."""
    ones = np.ones(len(score))
    return bool((log_capital(score, ones, ones, difference, bets) >= -math.log(error_rate)).any())


def suited_bets(differences: Floats, planned: int, error_rate: float) -> Floats:
    """The bet before each pair that suits the planned number and the variance until then."""
    before = np.arange(len(differences))
    sums = np.concatenate([[0.0], np.cumsum(differences)[:-1]])[: len(before)]
    squares = np.concatenate([[0.25], 0.25 + np.cumsum(differences**2)[:-1]])[: len(before)]
    variance = (squares - sums**2 / (before + 1)) / (before + 1)
    suited: Floats = np.sqrt(2 * math.log(1 / error_rate) / (planned * variance))
    return suited[:, None]
