"""Trials on parallel axes: an axis for every setting and one for the score, a line for every trial.

Numbers have a scale, logarithmic if they were searched so; anything else has a position per value.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loomrl.telemetry.number import figure, round_ticks

FEW_POWERS = 3
"""With fewer powers of ten than this, there are ticks between them as well."""


@dataclass(frozen=True, slots=True)
class ParallelAxis:
    """A setting, or the score."""

    name: str
    ticks: Sequence[tuple[float, str]]
    """Positions from 0, the lower end, to 1, and their labels."""
    places: Sequence[float]
    """The position of every trial's value."""


def parallel_axes(
    trials: Sequence[Mapping[str, Any]], *, logarithmic: Collection[str] = (), best: Literal["max", "min"] = "max"
) -> tuple[list[ParallelAxis], list[str]]:
    """The axes of trials whose last key is the score, and a sentence for each trial; the worst trial is first."""
    names = list(trials[0])
    worst_first = sorted(trials, key=lambda trial: trial[names[-1]], reverse=best == "min")
    axes = [_axis(name, [trial[name] for trial in worst_first], is_log=name in logarithmic) for name in names]
    return axes, ["; ".join(f"{name} {_word(trial[name])}" for name in names) for trial in worst_first]


def _axis(name: str, values: Sequence[Any], *, is_log: bool) -> ParallelAxis:
    if not all(map(_is_number, values)):
        words = sorted({_word(value) for value in values})
        return _scale_axis(name, [(float(place), word) for place, word in enumerate(words)],
                       [float(words.index(_word(value))) for value in values])  # fmt: skip
    if is_log:
        powers = [math.log10(value) for value in values]
        first = math.floor(min(powers) + 1e-9)
        last = max(math.ceil(max(powers) - 1e-9), first + 1)
        between = (1, 2, 5) if last - first < FEW_POWERS else (1,)
        ticks = [factor * 10.0**power for power in range(first, last) for factor in between] + [10.0**last]
        return _scale_axis(name, [(math.log10(tick), figure(tick)) for tick in ticks], powers)
    low, high = min(values), max(values)
    margin = 0.0 if high > low else abs(low) / 2 or 1.0
    ticks = round_ticks(low - margin, high + margin, parts=5)
    return _scale_axis(name, [(tick, figure(tick)) for tick in ticks], values)


def _scale_axis(name: str, ticks: Sequence[tuple[float, str]], values: Sequence[float]) -> ParallelAxis:
    low, high = ticks[0][0], ticks[-1][0]

    def place(value: float) -> float:
        return (value - low) / (high - low) if high > low else 0.5

    return ParallelAxis(name, [(place(tick), word) for tick, word in ticks], [place(value) for value in values])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else figure(value) if _is_number(value) else json.dumps(value)
