"""Exact bounds and tests for samples of a fixed size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats  # type: ignore[import-untyped,unused-ignore]

from loomrl.release.guard import Better, Guard
from loomrl.release.paired import compare_pairs

RESAMPLES = 9_999
_SUCCESS = Guard(metric="success", better=Better.HIGHER)


@dataclass(frozen=True, slots=True)
class Bounded:
    """A mean with one-sided confidence bounds."""

    mean: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} in [{self.low:.3f}, {self.high:.3f}] over {self.count}"


def share(total: float, count: int, *, error_rate: float) -> Bounded:
    """The mean of `count` outcomes in 0..1 that sum to `total`, each bound at this error rate (Clopper and Pearson).

    Exact for zeros and ones. Outcomes in between vary less than coins of the same mean.
    """
    low = float(stats.beta.ppf(error_rate, total, count - total + 1)) if total > 0 else 0.0
    high = float(stats.beta.ppf(1 - error_rate, total + 1, count - total)) if total < count else 1.0
    return Bounded(total / count, low, high, count)


def difference(pairs: Sequence[tuple[float, float]], *, error_rate: float) -> Bounded:
    """The mean of challenger minus baseline over pairs (baseline, challenger), each bound at this error rate."""
    found = compare_pairs(_SUCCESS, pairs, error_rate=error_rate, planned=len(pairs))
    return Bounded(found.difference + 0.0, found.low, found.high, len(pairs))


def worse(differences: Sequence[float], *, seed: int = 0) -> float:
    """P-value against "both directions are as likely", if the mean is negative (sign flips; for successes and
    failures McNemar's exact test). Of a fixed number of pairs it proves more than bounds that hold at any number.
    """
    values = np.asarray(differences, float)
    values = values[values != 0]
    if not len(values):
        return 1.0
    if len(set(np.abs(values).tolist())) == 1:
        return float(stats.binomtest(int((values < 0).sum()), len(values), 0.5, alternative="greater").pvalue)
    found = stats.permutation_test(
        (values,),
        np.mean,
        permutation_type="samples",
        alternative="less",
        n_resamples=RESAMPLES,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def more_than_half(hits: int, count: int) -> float:
    """P-value against "at most half of the population are hits"."""
    return float(stats.binomtest(hits, count, 0.5, alternative="greater").pvalue)
