"""Guards: metrics that a release must not make worse, and the findings about them."""

import math
from dataclasses import dataclass
from enum import StrEnum

TAIL = 10
"""Units beyond a quantile from which on it counts as observed."""


class Better(StrEnum):
    """The good direction of a metric."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A metric of calls or sessions, and how much worse the challenger may be."""

    metric: str
    better: Better
    low: float = 0.0
    """Values lie between `low` and `high`; those beyond count as the bound."""
    high: float = 1.0
    margin: float = 0.0
    """The difference that is accepted, in the metric's unit."""
    times: float | None = None
    """Instead of a margin: this many times the baseline's mean is accepted (for metrics where lower is better). Of a
    quantile both may be given, and whichever is more counts."""
    quantile: float | None = None
    """Compare this quantile instead of the mean: by the shares of values beyond the baseline's quantile up to then,
    which is eased by `times` or `margin` for the challenger's where the question is if it is fine. Beyond is above
    where lower is better, else below."""
    share: float = 0.0
    """Of a quantile: this much more of the challenger's units may lie beyond it."""
    longest: float | None = None
    """Only units whose prompts are among this share of the longest up to then."""
    required: bool = True
    """False: a release does not wait for observations of it."""

    @property
    def label(self) -> str:
        """Its name for people; guards of one metric differ in it."""
        name = self.metric if self.quantile is None else f"p{100 * self.quantile:g} of {self.metric}"
        return name if self.longest is None else f"{name}, longest {100 * self.longest:g} % of prompts"

    @property
    def least(self) -> int:
        """Units of an arm that it says something about: ten of them have to lie beyond a quantile."""
        return 1 if self.quantile is None else math.ceil(TAIL / min(self.quantile, 1 - self.quantile))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One arm's observations of a metric. `value` is its mean, or its quantile; NaN without observations."""

    value: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The evidence about one guard up to now. It holds at every look."""

    guard: Guard
    baseline: Side
    challenger: Side
    difference: float
    """Challenger minus baseline, over concurrent traffic only; of quantiles, of the shares beyond the baseline's."""
    low: float
    """Confidence bounds of the difference; all guards together share the error rate of each side."""
    high: float
    is_proved: bool
    """Proved worse than the baseline, by however little. It stays so: that it was worse once is not refuted later."""
    is_worse: bool
    """Proved worse, and by the estimate by more than the guard accepts."""
    is_fine: bool
    """Proved not worse by more than the guard accepts, with the whole error rate: all required guards have to be."""

    @property
    def reason(self) -> str:
        """One line for people."""
        base = self.baseline
        new = self.challenger
        of = "difference" if self.guard.quantile is None else "difference of the shares beyond it"
        return (
            f"{self.guard.label}: {new.value:.4g} of {new.count} against {base.value:.4g} of {base.count}, "
            f"{of} {self.difference:+.4g} in [{self.low:+.4g}, {self.high:+.4g}]"
        )
