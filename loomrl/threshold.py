"""Sums of floats compared with thresholds, tolerant of rounding. The only such comparison in LoomRL.

0.7 + 0.2 + 0.1 is 0.9999999999999999, and ten times 0.1 is not 1 either; both reach 1.
"""

from dataclasses import dataclass
from typing import Any

DOUBLE = 1e-12
"""Relative rounding tolerance of a sum: thousands of times the error of a sum of floats."""
SINGLE = 2.0**-23
"""The tolerance for sums of float32 values."""


def reaches(value: float, needed: float, *, added: float = 0.0, rounding: float = DOUBLE) -> bool:
    """True if `value` is at least `needed`, within rounding.

    `added` is the sum of the magnitudes that were added up. It matters if they cancel: -0.1 - 0.2 + 0.3 reaches 0.
    """
    return bool(value >= needed - rounding * max(abs(needed), added))


def as_written(number: Any) -> float:
    """The float that a float32 was written as: its 0.1 is 0.1, not 0.10000000149."""
    import numpy as np  # not at the top: reading an experiment does not need it

    is_short = isinstance(number, np.floating) and not isinstance(number, float)
    return float(str(number)) if is_short else float(number)


@dataclass(slots=True)
class Tally:
    """A sum for comparison, with the rounding error of one addition for any number of values (Neumaier)."""

    added: float = 0.0
    _sum: float = 0.0
    _lost: float = 0.0

    def add(self, value: float) -> None:
        """Add one more value."""
        new = self._sum + value
        large, small = (self._sum, value) if abs(self._sum) >= abs(value) else (value, self._sum)
        self._lost += (large - new) + small
        self._sum = new
        self.added += abs(value)

    @property
    def total(self) -> float:
        """The sum so far."""
        return self._sum + self._lost

    def reaches(self, needed: float) -> bool:
        """True if the sum is at least `needed`, within rounding."""
        return reaches(self.total, needed, added=self.added)
