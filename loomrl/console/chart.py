"""Charts of an answer as SVG, made on the server. Colours come from the style sheet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from loomrl.record import word
from loomrl.telemetry.curve import round_ticks

WIDE = 720.0
HIGH = 260.0
LEFT = 72.0
RIGHT = 708.0
TOP = 14.0
BOTTOM = 226.0
ROW = 20.0
LABEL = 180.0
LETTERS = 28
"""Of a bar's name."""


@dataclass(frozen=True, slots=True)
class Line:
    """A named series of points, in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Bars:
    """Named values, and how many were left out."""

    values: Sequence[tuple[str, float]]
    left_out: int = 0


def lines(
    every: Sequence[Line], *, x: str, y: str, is_time: bool, form: Callable[[float], str] = word.number
) -> Markup:
    """Series in the colours c1, c2, …; a single point is a dot."""
    points = [point for line in every for point in line.points]
    if not points:
        return Markup("")
    first, last = min(at for at, _ in points), max(at for at, _ in points)
    lowest = min(value for _, value in points)
    highest = max(value for _, value in points)
    ticks = round_ticks(lowest, highest if highest > lowest else lowest + (abs(lowest) or 1.0))
    low = ticks[0]
    top = ticks[-1]

    def place(at: float, value: float) -> str:
        across = LEFT + (RIGHT - LEFT) * ((at - first) / (last - first) if last > first else 0.5)
        return f"{across:.1f} {BOTTOM - (BOTTOM - TOP) * (value - low) / ((top - low) or 1):.1f}"

    parts = [_grid(form(tick), place(first, tick).split()[1]) for tick in ticks]
    for number, line in enumerate(every):
        spots = "L".join(place(*point) for point in line.points)
        parts.append(
            Markup('<path class="c{}" d="M{}{}"/>').format(number % 8 + 1, spots, "h0" if "L" not in spots else "")
        )
    ends = [(first, "start", LEFT), (last, "end", RIGHT)] if last > first else [(first, "middle", (LEFT + RIGHT) / 2)]
    for at, anchor, across in ends:
        said = f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M}" if is_time else word.number(at)
        parts.append(
            Markup('<text x="{:g}" y="{:g}" text-anchor="{}">{}</text>').format(across, HIGH - 18, anchor, said)
        )
    legend = Markup("").join(
        Markup('<li class="c{}">{}</li>').format(number % 8 + 1, word.visible(line.name))
        for number, line in enumerate(every)
        if line.name
    )
    named = Markup('<ul class="legend">{}</ul>').format(legend) if legend else Markup("")
    return named + _drawn(f"{y} along {x}", HIGH, parts)


def bars(drawn: Bars, *, y: str, form: Callable[[float], str] = word.number) -> Markup:
    """A bar a row, from zero."""
    if not drawn.values:
        return Markup("")
    low = min(0.0, *(value for _, value in drawn.values))
    span = max(0.0, *(value for _, value in drawn.values)) - low or 1.0
    room = WIDE - LABEL - 80

    parts = []
    for number, (name, value) in enumerate(drawn.values):
        top = 4 + ROW * number
        begin, end = sorted(LABEL + room * (edge - low) / span for edge in (0.0, value))
        parts.append(
            Markup(
                '<text x="{:g}" y="{:g}" text-anchor="end">{}</text><rect class="stick" x="{:.1f}" y="{:g}" '
                'width="{:.1f}" height="{:g}"/><text x="{:.1f}" y="{:g}">{}</text>'
            ).format(
                LABEL - 8,
                top + 13,
                word.visible(word.short(name, LETTERS)),
                begin,
                top + 3,
                max(end - begin, 0.5),
                ROW - 6,
                end + 6,
                top + 13,
                form(value),
            )
        )
    if drawn.left_out:
        parts.append(
            Markup('<text x="{:g}" y="{:g}">and {} more</text>').format(LABEL, 17 + ROW * len(parts), drawn.left_out)
        )
    return _drawn(y, ROW * len(parts) + 8, parts)


def _grid(tick: str, y: str) -> Markup:
    return Markup('<path class="grid" d="M{:g} {}H{:g}"/><text x="{:g}" y="{:.1f}" text-anchor="end">{}</text>').format(
        LEFT, y, RIGHT, LEFT - 8, float(y) + 4, tick
    )


def _drawn(title: str, high: float, parts: Sequence[Markup]) -> Markup:
    said = word.visible(title)
    drawn = Markup('<svg class="plot" viewBox="0 0 {:g} {:g}" role="img"><title>{}</title>{}</svg>')
    return Markup("<figure><figcaption>{}</figcaption>{}</figure>").format(
        said, drawn.format(WIDE, high, said, Markup("").join(parts))
    )
