"""Sums of floats against thresholds: rounding decides nothing. The one comparison of this kind that there is.

0.7 + 0.2 + 0.1 is 0.9999999999999999, and ten times 0.1 is not 1 either; both reach 1.
"""

from dataclasses import dataclass
from typing import Any

DOUBLE = 1e-12
"""Share of its size by which rounding may have lowered a sum: thousands of times what a sum of floats loses."""
SINGLE = 2.0**-23
"""The same where what was added up had been float32."""


def reaches(value: float, needed: float, *, added: float = 0.0, rounding: float = DOUBLE) -> bool:
    """Whether `value` is at least `needed`, rounding aside.

    `added` is the sum of the magnitudes that were added up. It matters where they cancel: -0.1 - 0.2 + 0.3 reaches 0.
    """
    return bool(value >= needed - rounding * max(abs(needed), added))


def as_written(number: Any) -> float:
    """The float that a float32 stands for: its 0.1 is 0.1, not 0.10000000149."""
    import numpy as np  # whoever only reads an experiment goes without

    is_short = isinstance(number, np.floating) and not isinstance(number, float)
    return float(str(number)) if is_short else float(number)


@dataclass(slots=True)
class Tally:
    """A sum to be compared. However many values it has, its own rounding stays that of one addition (Neumaier)."""

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
        """Whether the sum is at least `needed`, rounding aside."""
        return reaches(self.total, needed, added=self.added)
