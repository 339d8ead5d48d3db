"""Trials as a standalone SVG picture: parallel coordinates, with an axis for every setting and one for the score.

A line is a trial, from its settings on the left to its score on the right. Better ones have a stronger colour; the best
one is wide. Numbers have a scale, logarithmic if they were searched so; anything else has a position per value.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any, Literal

from loomrl.telemetry.curve import figure, round_ticks

HIGH = 420.0
TOP = 96.0
BOTTOM = 372.0
LEFT = 104.0
BETWEEN = 190.0
RIGHT = 104.0
"""Margins around the axes, and the distance between them."""
WORST = (201, 206, 214)
BEST = (42, 120, 214)
"""Colours of the lowest and the highest rank; those between are mixed."""
NAME = 26
"""Maximum letters of an axis's name; the start of a longer path is cut."""
WORD = 16
"""Maximum letters of a tick's label: longer ones would reach the previous axis."""
FEW_POWERS = 3
"""With fewer powers of ten than this, there are ticks between them as well."""
STYLE = """
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:#55544f}
.page{fill:#fff}.title{font-size:16px;font-weight:600;fill:#14140f}.axis{stroke:#85837b}.tick{stroke:#85837b}
.name{font-weight:600;fill:#14140f}.halo{stroke:#fff;stroke-width:3;paint-order:stroke}
.trial{fill:none;stroke-opacity:.85}.trial:hover{stroke:#eb6834;stroke-width:4}
@media(prefers-color-scheme:dark){text{fill:#c3c2b7}.page{fill:#1a1a19}.title,.name{fill:#f4f4ef}.halo{stroke:#1a1a19}}
"""


@dataclass(frozen=True, slots=True)
class Axis:
    """A setting, or the score, on a vertical axis."""

    name: str
    x: float
    ticks: Sequence[tuple[float, str]]
    """Positions and labels; the first and the last are the ends."""
    scale: Literal["linear", "log", "words"] = "linear"

    def y(self, place: float) -> float:
        """The canvas coordinate of a position."""
        low, high = self.ticks[0][0], self.ticks[-1][0]
        return BOTTOM - (BOTTOM - TOP) * ((place - low) / (high - low) if high > low else 0.5)

    def at(self, value: Any) -> float:
        """The canvas coordinate of a value."""
        if self.scale == "words":
            return self.y(next(place for place, word in self.ticks if word == _word(value)))
        return self.y(math.log10(value) if self.scale == "log" else float(value))


def draw_parallel(
    title: str,
    trials: Sequence[Mapping[str, Any]],
    *,
    logarithmic: Collection[str] = (),
    best: Literal["max", "min"] = "max",
    style: str | None = STYLE,
) -> str:
    """The picture of trials with equal keys; the last key is the score, of which the `best` is sought.

    Without a `style` it is for a page whose own style has the same classes.
    """
    names = list(trials[0])
    axes = [
        _axis(name, LEFT + BETWEEN * index, [trial[name] for trial in trials], is_log=name in logarithmic)
        for index, name in enumerate(names)
    ]
    worst_first = sorted(trials, key=lambda trial: trial[names[-1]], reverse=best == "min")
    lines = [_line(axes, trial, rank / max(1, len(trials) - 1)) for rank, trial in enumerate(worst_first)]
    width = LEFT + BETWEEN * (len(names) - 1) + RIGHT
    shape = f'xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{HIGH:g}" viewBox="0 0 {width:g} {HIGH:g}"'
    page = f'<rect class="page" width="{width:g}" height="{HIGH:g}"/>'
    head = f'<text class="title" x="20" y="30">{escape(title)}</text>'
    drawn = "".join([*lines, *(part for index, axis in enumerate(axes) for part in _drawn(axis, lower=index % 2 == 1))])
    inside = "" if style is None else f"<style>{style}</style>{page}{head}"
    return f'<svg {shape} class="parallel" role="img" aria-label="{escape(title or "Trials")}">{inside}{drawn}</svg>\n'


def _axis(name: str, x: float, values: Sequence[Any], *, is_log: bool) -> Axis:
    if not all(map(_is_number, values)):
        words = sorted({_word(value) for value in values})
        return Axis(name, x, [(float(place), word) for place, word in enumerate(words)], "words")
    low, high = min(values), max(values)
    if is_log:
        first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
        last = max(last, first + 1)
        between = (1, 2, 5) if last - first < FEW_POWERS else (1,)
        values = [factor * 10.0**power for power in range(first, last) for factor in between] + [10.0**last]
        return Axis(name, x, [(math.log10(value), figure(value)) for value in values], "log")
    margin = 0.0 if high > low else abs(low) / 2 or 1.0
    return Axis(name, x, [(tick, figure(tick)) for tick in round_ticks(low - margin, high + margin, parts=5)])


def _line(axes: Sequence[Axis], trial: Mapping[str, Any], rank: float) -> str:
    """A smooth line through the trial's values; `rank` is from 0, the worst, to 1."""
    places = [(axis.x, axis.at(trial[axis.name])) for axis in axes]
    drawn = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    for (x, y), (then_x, then_y) in pairwise(places):
        bend = (then_x - x) * 0.4
        drawn += f"C{x + bend:.1f} {y:.1f} {then_x - bend:.1f} {then_y:.1f} {then_x:.1f} {then_y:.1f}"
    colour = "#" + "".join(f"{round(a + (b - a) * rank):02x}" for a, b in zip(WORST, BEST, strict=True))
    said = "; ".join(f"{axis.name} {_word(trial[axis.name])}" for axis in axes)
    return (
        f'<path class="trial" stroke="{colour}" stroke-width="{3.5 if rank == 1 else 1.8}" d="{drawn}">'
        f"<title>{escape(said)}</title></path>"
    )


def _drawn(axis: Axis, *, lower: bool) -> Iterator[str]:
    yield f'<path class="axis" d="M{axis.x:.1f} {TOP:g}V{BOTTOM:g}"/>'
    for place, word in axis.ticks:
        y = axis.y(place)
        yield f'<path class="tick" d="M{axis.x - 4:.1f} {y:.1f}h4"/>'
        shown = word if len(word) <= WORD else word[: WORD - 1] + "…"
        where = f'x="{axis.x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end"'
        yield f'<text class="halo" {where}>{escape(shown)}<title>{escape(word)}</title></text>'
    name = axis.name if len(axis.name) <= NAME else "…" + axis.name[-NAME:]
    where = f'x="{axis.x:.1f}" y="{TOP - (14 if lower else 32):g}" text-anchor="middle"'
    yield f'<text class="name" {where}>{escape(name)}<title>{escape(axis.name)}</title></text>'


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else figure(value) if _is_number(value) else json.dumps(value)
