"""Small charts as SVG text. Colours are classes (`c1` … `c8`) from the page's style sheet, for light and dark mode.

A point is (update, value), or (step, value) if `unit` is "steps"; NaN leaves a gap in the curve.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from statistics import fmean
from typing import Literal, TypeVar

Point = tuple[float, float]
Form = Callable[[float], str]
Unit = Literal["updates", "steps"]
"""Unit of the horizontal axis."""
T = TypeVar("T")

WIDTH = 360.0
HEIGHT = 156.0
LEFT = 40.0
RIGHT = 308.0
TOP = 20.0
BOTTOM = 136.0
"""Edges of the plot; final values are to the right of it, hovered values above it."""
LABEL_HEIGHT = 12.0
LETTER = 6.2
"""Width of a digit or letter, generously."""
ROOM = 6
"""Letters that fit beside the plot."""
MOST_POINTS = 300
"""Maximum points of a drawn curve. Longer ones keep the lowest and the highest point of every section."""
MOST_BANDS = 100
"""Sections of the horizontal axis that react to the pointer."""
MOST_CELLS = 50
"""Cells of a strip, and columns of a stack."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A named series; `color` is 1 … 8."""

    name: str
    points: Sequence[Point]
    color: int = 1
    is_mean: bool = False
    """True if its values are means already, or few: no running mean is drawn."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The canvas positions of updates or steps and of values. Values outside are drawn on the edge."""

    first: float
    last: float
    ticks: Sequence[float]
    """Numbers on the vertical axis; the lowest and the highest are its ends."""

    def x(self, step: float) -> float:
        """The position from the left edge (the run's start) to the right one."""
        return LEFT + (RIGHT - LEFT) * (step - self.first) / ((self.last - self.first) or 1)

    def y(self, value: float) -> float:
        """The position from the bottom (low) to the top (high)."""
        low, high = self.ticks[0], self.ticks[-1]
        share = (min(max(value, low), high) - low) / (high - low)
        return BOTTOM - (BOTTOM - TOP) * share


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


def round_span(low: float, high: float) -> tuple[float, float]:
    """The nearest round numbers around both."""
    margin = 0.0 if high > low else abs(low) / 2 or 1.0
    ticks = round_ticks(low - margin, high + margin)
    return ticks[0], ticks[-1]


def smooth(points: Sequence[Point], window: int) -> list[Point]:
    """Every point replaced by the mean of the last `window` finite ones; gaps stay gaps."""
    seen: list[float] = []
    means = []
    for step, value in points:
        if math.isfinite(value):
            seen.append(value)
        means.append((step, fmean(seen[-window:]) if math.isfinite(value) else math.nan))
    return means


def line_chart(
    curves: Sequence[Curve],
    *,
    window: int = 1,
    span: tuple[float, float] | None = None,
    form: Form = figure,
    unit: Unit = "updates",
) -> str:
    """Lines over updates or steps: values thin, running means thick, with the last number at the end.

    `span` fixes the vertical axis; otherwise it follows the values.
    """
    drawn = [curve for curve in curves if any(math.isfinite(value) for _, value in curve.points)]
    if not drawn:
        return '<p class="empty">No values.</p>'
    means = [curve if curve.is_mean else replace(curve, points=smooth(curve.points, window)) for curve in drawn]
    axes = _axes(drawn, span, sure=[value for curve in means for value in _sure(curve)])
    raw = [_path(curve.points, axes, f"raw c{curve.color}") for curve in drawn if window > 1 and not curve.is_mean]
    thick = [_path(curve.points, axes, f"mean c{curve.color}") for curve in means]
    grid = _grid(axes, form, unit)
    above = _above(drawn, axes, form)
    parts = [*grid, *raw, *thick, *above, *_ends(means, axes, form), *_bands(drawn, axes, form, unit)]
    return _svg(parts, "; ".join(f"{curve.name}: {form(_end(curve.points)[1])} at the end" for curve in means))


def stacked_chart(curves: Sequence[Curve], *, form: Form = figure, unit: Unit = "updates") -> str:
    """Columns over updates or steps with stacked values; neighbours share a column as their mean.

    If one curve has a value, another without one counts as 0.
    """
    steps = sorted({step for curve in curves for step, value in curve.points if math.isfinite(value)})
    if not steps:
        return '<p class="empty">No values.</p>'
    tables = [dict(curve.points) for curve in curves]
    stretches = list(_stretches(steps, MOST_CELLS))
    columns = [[_sum_over(table, stretch) / len(stretch) for table in tables] for stretch in stretches]
    ticks = round_ticks(0.0, max(sum(column) for column in columns) or 1.0)
    axes = Axes(0, len(columns), ticks)
    parts = [*_grid(Axes(steps[0], steps[-1], ticks), form, unit)]
    for index, (column, stretch) in enumerate(zip(columns, stretches, strict=True)):
        left = axes.x(index)
        width = (RIGHT - LEFT) / len(columns)
        parts += _column(column, [curve.color for curve in curves], axes, left=left, width=width)
        shown = [(curve.color, form(value)) for curve, value in zip(curves, column, strict=True)]
        parts.append(_band(_between(stretch, unit), shown, left=left, width=width, rule=None))
    total = sum(columns[-1])
    parts.append(_number(axes.y(total), _short(total, form)))
    return _svg(parts, ", ".join(curve.name for curve in curves))


def strip(points: Sequence[Point], *, span: tuple[float, float], color: int, form: Form) -> str:
    """One row of cells over updates, filled by value; a section without values stays empty."""
    steps = [step for step, _ in points]
    table = dict(points)
    stretches = list(_stretches(steps, MOST_CELLS))
    cells = []
    for index, stretch in enumerate(stretches):
        values = [table[step] for step in stretch if math.isfinite(table[step])]
        if values:
            share = min(max((fmean(values) - span[0]) / (span[1] - span[0]), 0.0), 1.0)
            cells.append(
                f'<rect class="f{color}" x="{index}" width="1" height="1" fill-opacity="{0.05 + 0.95 * share:.2f}">'
                f"<title>{_between(stretch)}: {escape(form(fmean(values)))}</title></rect>"
            )
    shape = f'viewBox="0 0 {len(stretches)} 1" preserveAspectRatio="none" shape-rendering="crispEdges"'
    return f"<svg {shape}>{''.join(cells)}</svg>"


def _svg(parts: Iterable[str], label: str) -> str:
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _axes(curves: Sequence[Curve], span: tuple[float, float] | None, *, sure: Sequence[float]) -> Axes:
    steps = [step for curve in curves for step, _ in curve.points]
    values = sorted(value for curve in curves for _, value in curve.points if math.isfinite(value))
    return Axes(min(steps), max(steps), round_ticks(*(span or _reach(values, sure))))


def _sure(curve: Curve) -> Iterator[float]:
    """Values that must be drawn in place: individual ones, and the one whose number is written."""
    yield _end(curve.points)[1]
    if curve.is_mean:
        yield from (value for _, value in curve.points if math.isfinite(value))


def _reach(values: Sequence[float], sure: Sequence[float]) -> tuple[float, float]:
    """Lowest and highest of sorted values, down to zero if that is near; lone peaks are left out, unless `sure`."""
    low, high = values[0], values[-1]
    usual = values[int(0.98 * (len(values) - 1))]
    if high > 4 * usual > 0:
        high = max(1.5 * usual, *sure)
    if 0 <= low < 0.6 * high:
        low = 0.0
    if low == high:
        margin = abs(low) / 2 or 1.0
        return (low - margin, high + margin) if low else (0.0, margin)
    return low, high


def round_ticks(low: float, high: float, *, parts: int = 3) -> list[float]:
    """Round numbers from `low` or below to `high` or above, about `parts` intervals apart."""
    rough = (high - low) / parts
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _grid(axes: Axes, form: Form, unit: Unit) -> Iterator[str]:
    for tick in axes.ticks:
        y = axes.y(tick)
        kind = "base" if tick == axes.ticks[0] else "grid"
        yield f'<path class="{kind}" d="M{LEFT:g} {y:.1f}H{RIGHT:g}"/>'
        yield f'<text x="{LEFT - 6:g}" y="{y + 3.5:.1f}" text-anchor="end">{escape(_short(tick, form))}</text>'
    yield from _along(axes, unit)


def _along(axes: Axes, unit: Unit) -> Iterator[str]:
    """The horizontal axis: the run's start and end, and round numbers between if there is room."""
    yield f'<text x="{LEFT:g}" y="{HEIGHT - 5:g}">{axes.first:,.0f}</text>'
    if axes.last <= axes.first:
        return
    end = at(axes.last, unit)
    yield f'<text x="{RIGHT:g}" y="{HEIGHT - 5:g}" text-anchor="end">{end}</text>'
    taken = LEFT + LETTER * len(f"{axes.first:,.0f}") + LETTER
    free = RIGHT - LETTER * len(end) - LETTER
    for tick in round_ticks(axes.first, axes.last, parts=4):
        x = axes.x(tick)
        half = LETTER * len(f"{tick:,.0f}") / 2
        if axes.first < tick < axes.last and tick == round(tick):
            yield f'<path class="base" d="M{x:.1f} {BOTTOM:g}v3"/>'
            if taken <= x - half and x + half <= free:
                yield f'<text x="{x:.1f}" y="{HEIGHT - 5:g}" text-anchor="middle">{tick:,.0f}</text>'
                taken = x + half + LETTER


def _above(curves: Sequence[Curve], axes: Axes, form: Form) -> Iterator[str]:
    """A note on values above the upper edge."""
    highest = max(value for curve in curves for _, value in curve.points if math.isfinite(value))
    if highest > axes.ticks[-1]:
        yield f'<text x="{RIGHT:g}" y="{TOP + 11:g}" text-anchor="end">highest {escape(form(highest))}</text>'


def _path(points: Sequence[Point], axes: Axes, kind: str) -> str:
    """One path with gaps for non-finite numbers. A lone point becomes a dot: its curve has round ends."""
    pieces: list[list[Point]] = [[]]
    for step, value in points:
        if math.isfinite(value):
            pieces[-1].append((step, value))
        elif pieces[-1]:
            pieces.append([])
    drawn = ""
    for piece in filter(None, pieces):
        spots = [f"{axes.x(step):.1f} {axes.y(value):.1f}" for step, value in _thin(piece)]
        drawn += "M" + "L".join(spots) + ("h0" if len(spots) == 1 else "")
    return f'<path class="{kind}" d="{drawn}"/>'


def _thin(points: Sequence[Point]) -> list[Point]:
    if len(points) <= MOST_POINTS:
        return list(points)
    kept: set[Point] = {points[0], points[-1]}
    for stretch in _stretches(points, MOST_POINTS // 2):
        kept |= {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
    return sorted(kept)


def _end(points: Sequence[Point]) -> Point:
    return next((step, value) for step, value in reversed(points) if math.isfinite(value))


def _ends(curves: Sequence[Curve], axes: Axes, form: Form) -> Iterator[str]:
    """A dot and a number where each curve ends; numbers that would overlap move apart."""
    ends = sorted(((axes.y(_end(curve.points)[1]), curve) for curve in curves), key=lambda end: end[0])
    lowest = TOP
    heights = []
    for index, (y, _) in enumerate(ends):
        below = (len(ends) - index - 1) * LABEL_HEIGHT
        lowest = max(min(y, BOTTOM - below), lowest)
        heights.append(lowest)
        lowest += LABEL_HEIGHT
    for (y, curve), height in zip(ends, heights, strict=True):
        step, value = _end(curve.points)
        yield f'<circle class="dot f{curve.color}" cx="{axes.x(step):.1f}" cy="{y:.1f}" r="3.5"/>'
        yield _number(height, _short(value, form))


def _short(value: float, form: Form) -> str:
    """In its form, or shorter if there is no room beside the plot."""
    text = form(value)
    return text if len(text) <= ROOM else figure(value)


def _number(y: float, text: str) -> str:
    return f'<text class="end" x="{RIGHT + 8:g}" y="{y + 4:.1f}">{escape(text)}</text>'


def _bands(curves: Sequence[Curve], axes: Axes, form: Form, unit: Unit) -> Iterator[str]:
    """Vertical bands that show their last numbers under the pointer."""
    tables = [dict(curve.points) for curve in curves]
    steps = sorted({step for table in tables for step in table})
    stretches = list(_stretches(steps, MOST_BANDS))
    width = (RIGHT - LEFT) / len(stretches)
    for index, stretch in enumerate(stretches):
        step = stretch[-1]
        shown = [(curve.color, form(_last_in(table, stretch))) for curve, table in zip(curves, tables, strict=True)]
        yield _band(at(step, unit), shown, left=LEFT + index * width, width=width, rule=axes.x(step))


def _band(title: str, shown: Sequence[tuple[int, str]], *, left: float, width: float, rule: float | None) -> str:
    numbers = "".join(f' <tspan class="f{color}">■</tspan> {escape(text)}' for color, text in shown)
    curve = "" if rule is None else f'<path d="M{rule:.1f} {TOP:g}V{BOTTOM:g}"/>'
    return (
        f'<g class="band"><rect x="{left:.1f}" y="{TOP:g}" width="{width:.2f}" height="{BOTTOM - TOP:g}"/>'
        f'{curve}<text x="{LEFT:g}" y="10">{title} {numbers}</text></g>'
    )


def _column(values: Sequence[float], colors: Sequence[int], axes: Axes, *, left: float, width: float) -> Iterator[str]:
    gap = min(1.5, 0.25 * width)
    below = 0.0
    for value, color in zip(values, colors, strict=True):
        y = axes.y(below + value)
        height = axes.y(below) - axes.y(below + value)
        if height >= 0.05:
            yield (
                f'<rect class="f{color}" x="{left + gap / 2:.1f}" y="{y:.1f}" '
                f'width="{width - gap:.2f}" height="{max(height - 0.6, 0.4):.1f}"/>'
            )
        below += value


def _last_in(table: dict[float, float], steps: Sequence[float]) -> float:
    return next((table[step] for step in reversed(steps) if step in table), math.nan)


def _sum_over(table: dict[float, float], steps: Sequence[float]) -> float:
    return math.fsum(value for step in steps if math.isfinite(value := table.get(step, math.nan)))


def at(step: float, unit: Unit) -> str:
    """`update 30`, `step 30,720`."""
    return f"{unit.removesuffix('s')} {step:,.0f}"


def _between(steps: Sequence[float], unit: Unit = "updates") -> str:
    return at(steps[0], unit) if len(steps) == 1 else f"{unit} {steps[0]:,.0f} to {steps[-1]:,.0f}"


def _stretches(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """`items` cut into at most `most` sections of equal length, except for the last."""
    size = max(1, math.ceil(len(items) / most))
    return (items[start : start + size] for start in range(0, len(items), size))
