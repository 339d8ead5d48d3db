"""Numbers in few letters, and round numbers for axes."""

import math
from collections.abc import Callable
from typing import Literal

Form = Callable[[float], str]
Unit = Literal["updates", "steps"]
"""Unit of the horizontal axis of a run's curves."""


def figure(value: float) -> str:
    """A number with three significant digits: 0.912, 8.2k, 3e-4."""
    if not math.isfinite(value):
        return "–"
    if value < 0:
        return f"−{figure(-value)}"
    if 0 < value < 1e-3 or value >= 1e12:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa.removesuffix('.0')}e{int(exponent)}"
    value = float(f"{value:.3g}")  # 999.9 is 1k
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def amount(value: float) -> str:
    """A number with three significant digits, whole from a hundred to a million: 9.37, 476, −1,334."""
    whole = f"{value:,.0f}".replace("-", "−") if math.isfinite(value) else ""
    return whole if 100 <= abs(value) < 1e6 else figure(value)


def percent(value: float) -> str:
    """A share in percent, with a decimal below 10 unless it is 0."""
    if not math.isfinite(value):
        return "–"
    shown = f"{100 * value:.1f}".removesuffix(".0")
    return f"{shown if abs(value) < 0.1 else f'{100 * value:.0f}'} %"


def at(step: float, unit: Unit) -> str:
    """`update 30`, `step 30,720`."""
    return f"{unit.removesuffix('s')} {step:,.0f}"


def round_ticks(low: float, high: float, *, parts: int = 3) -> list[float]:
    """Round numbers from `low` or below to `high` or above, about `parts` intervals apart."""
    rough = (high - low) / parts
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]
