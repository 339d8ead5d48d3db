"""Fronts as a standalone SVG picture: a panel per pair of objectives, and rows of panels per policy.

A point is the mean return of a preference, filled if it is on the front, with bars for its intervals. Its colour is the
preference, mixed from the objectives' colours. For two objectives the front is connected, and the area between it and
the reference is the hypervolume. All policies share their axes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations

import numpy as np

from loomrl.evaluation.front import FrontReport, Steered
from loomrl.telemetry.curve import amount, figure, round_ticks

COLOURS = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#4a3aa7", "#e87ba4", "#007d7d", "#8a6d3b")
"""Colours of the objectives, in order."""
ABREAST = 3
"""Panels in a row."""
HEAD = 62.0
FOOT = 34.0
LEFT = 74.0
RIGHT = 18.0
TOP = 10.0
BOTTOM = 52.0
"""Margins of a panel's plot."""
FAR = 2.0
"""A reference within this many widths of all points is drawn in place; beyond, at the edge."""
STYLE = """
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:#55544f}
.page{fill:#fff}.title{font-size:16px;font-weight:600;fill:#14140f}.grid{stroke:#e6e5de}.bar{stroke-width:1.5}
.stairs{fill:none;stroke:#85837b;stroke-width:1.5}.area{fill:#85837b;fill-opacity:.14}
.key{stroke:#85837b}
.reference{stroke:#14140f;stroke-width:1.5;fill:none}
@media(prefers-color-scheme:dark){text{fill:#c3c2b7}.page{fill:#1a1a19}.title{fill:#f4f4ef}.grid{stroke:#33332f}
.reference{stroke:#f4f4ef}}
"""


@dataclass(frozen=True, slots=True)
class Axis:
    """One objective along an edge of a panel, from `first` on the canvas to `last`."""

    objective: int
    name: str
    ticks: Sequence[float]
    first: float
    last: float

    def at(self, value: float) -> float:
        """The position of a return; values outside are on the edge."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.first + (self.last - self.first) * (min(max(value, low), high) - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Spot:
    """A point, and every preference that leads to it."""

    steered: Steered
    preferences: Sequence[Sequence[float]]

    @property
    def means(self) -> list[float]:
        """Its return, by objective."""
        return _means(self.steered)

    @property
    def colour(self) -> str:
        """The colour of its mean preference."""
        return mixed(np.mean(self.preferences, axis=0).tolist())


def mixed(preference: Sequence[float]) -> str:
    """The objectives' colours, mixed by weight."""
    parts = np.array(
        [[int(COLOURS[h % len(COLOURS)][i : i + 2], 16) for i in (1, 3, 5)] for h in range(len(preference))]
    )
    light = np.asarray(preference) @ (parts / 255.0) ** 2.2  # colours mix as light does
    return "#" + "".join(f"{round(255 * share):02x}" for share in light.clip(0, 1) ** (1 / 2.2))


def draw_fronts(reports: Sequence[FrontReport]) -> str:
    """The picture of policies evaluated on the same two or more objectives."""
    pairs = list(combinations(range(len(reports[0].objectives)), 2))
    wide, high = (640.0, 400.0) if len(pairs) == 1 else (400.0, 300.0)
    rows = math.ceil(len(pairs) / ABREAST)
    ticks = [_ticks(reports, objective) for objective in range(len(reports[0].objectives))]
    parts: list[str] = []
    top = 0.0
    for report in reports:
        parts += _head(report, top)
        for index, pair in enumerate(pairs):
            left = wide * (index % ABREAST)
            above = top + HEAD + high * (index // ABREAST)
            x = Axis(pair[0], report.objectives[pair[0]], ticks[pair[0]], left + LEFT, left + wide - RIGHT)
            y = Axis(pair[1], report.objectives[pair[1]], ticks[pair[1]], above + high - BOTTOM, above + TOP)
            parts += _panel(report, x, y)
        top += HEAD + high * rows
    parts += _legend(reports, top)
    width, height = wide * min(len(pairs), ABREAST), top + FOOT
    shape = (
        f'xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    )
    page = f'<rect class="page" width="{width:g}" height="{height:g}"/>'
    return f'<svg {shape} role="img"><style>{STYLE}</style>{page}{"".join(parts)}</svg>\n'


def _ticks(reports: Sequence[FrontReport], objective: int) -> Sequence[float]:
    """Round numbers around all points and their intervals, and the reference unless it is far."""
    told = [steered.returns[objective] for report in reports for steered in report.by_preference]
    edges = [edge for interval in told for edge in (interval.mean, interval.low, interval.high) if edge is not None]
    low, high = min(filter(math.isfinite, edges)), max(filter(math.isfinite, edges))
    reference = reports[0].reference
    if reference is not None and low - reference[objective] <= FAR * (high - low):
        low, high = min(low, reference[objective]), max(high, reference[objective])
    margin = 0.0 if high > low else abs(low) / 2 or 1.0
    return round_ticks(low - margin, high + margin, parts=5)


def _head(report: FrontReport, top: float) -> Iterator[str]:
    said = [f"{len(report.front)} points on the front", f"expected utility {amount(report.expected_utility)}"]
    said.append(f"sparsity {amount(report.sparsity)}")
    if report.hypervolume is not None and report.reference is not None:
        said.insert(0, f"hypervolume {amount(report.hypervolume)} from ({_numbers(report.reference)})")
    yield f'<text class="title" x="20" y="{top + 28:g}">{escape(report.policy)}</text>'
    yield f'<text x="20" y="{top + 48:g}">{escape(", ".join(said))}</text>'


def _panel(report: FrontReport, x: Axis, y: Axis) -> Iterator[str]:
    yield from _grid(x, y)
    if len(report.objectives) == 2:
        yield from _stairs(report, x, y)
    if report.reference is not None:
        yield from _reference(report.reference, x, y)
    for spot in sorted(_spots(report), key=lambda spot: spot.steered.is_on_front):
        yield from _mark(spot, report.objectives, x, y)


def _grid(x: Axis, y: Axis) -> Iterator[str]:
    for tick in x.ticks:
        yield f'<path class="grid" d="M{x.at(tick):.1f} {y.first:.1f}V{y.last:.1f}"/>'
        yield f'<text x="{x.at(tick):.1f}" y="{y.first + 17:.1f}" text-anchor="middle">{figure(tick)}</text>'
    for tick in y.ticks:
        yield f'<path class="grid" d="M{x.first:.1f} {y.at(tick):.1f}H{x.last:.1f}"/>'
        yield f'<text x="{x.first - 8:.1f}" y="{y.at(tick) + 4:.1f}" text-anchor="end">{figure(tick)}</text>'
    yield f'<text x="{(x.first + x.last) / 2:.1f}" y="{y.first + 38:.1f}" text-anchor="middle">{escape(x.name)}</text>'
    edge = x.first - 54
    middle = (y.first + y.last) / 2
    turned = f'transform="rotate(-90 {edge:.1f} {middle:.1f})"'
    yield f'<text x="{edge:.1f}" y="{middle:.1f}" text-anchor="middle" {turned}>{escape(y.name)}</text>'


def _stairs(report: FrontReport, x: Axis, y: Axis) -> Iterator[str]:
    """The edge of the dominated region; down to the reference it is the hypervolume."""
    points = sorted((point[x.objective], point[y.objective]) for point in report.front)
    drawn = f"M{x.at(points[0][0]):.1f} {y.at(points[0][1]):.1f}"
    drawn += "".join(f"V{y.at(high):.1f}H{x.at(far):.1f}" for far, high in points[1:])
    yield f'<path class="stairs" d="{drawn}"/>'
    if report.reference is None:
        return
    begin = [report.reference[axis.objective] for axis in (x, y)]
    above = [(far, high) for far, high in points if far > begin[0] and high > begin[1]]
    if above:
        corner = f"M{x.at(begin[0]):.1f} {y.at(begin[1]):.1f}"
        steps = "".join(f"V{y.at(high):.1f}H{x.at(far):.1f}" for far, high in above)
        yield f'<path class="area" d="{corner}{steps}V{y.at(begin[1]):.1f}Z"/>'


def _reference(reference: Sequence[float], x: Axis, y: Axis) -> Iterator[str]:
    """A cross; one outside is on the edge, with a note."""
    values = [reference[axis.objective] for axis in (x, y)]
    left = x.at(values[0])
    top = y.at(values[1])
    is_outside = any(
        value < axis.ticks[0] or value > axis.ticks[-1] for value, axis in zip(values, (x, y), strict=True)
    )
    words = f"reference ({_numbers(values)}), farther out" if is_outside else "reference"
    yield f'<path class="reference" d="M{left - 5:.1f} {top - 5:.1f}l10 10m0 -10l-10 10"/>'
    yield f'<text x="{left + 10:.1f}" y="{top - 6:.1f}">{words}</text>'


def _mark(spot: Spot, objectives: Sequence[str], x: Axis, y: Axis) -> Iterator[str]:
    colour = spot.colour
    intervals = spot.steered.returns
    left = x.at(spot.means[x.objective])
    top = y.at(spot.means[y.objective])
    across = intervals[x.objective]
    along = intervals[y.objective]
    bars = ""
    if across.low < across.high < math.inf:
        bars += f"M{x.at(across.low):.1f} {top:.1f}H{x.at(across.high):.1f}"
    if along.low < along.high < math.inf:
        bars += f"M{left:.1f} {y.at(along.low):.1f}V{y.at(along.high):.1f}"
    faint = "" if spot.steered.is_on_front else ' opacity="0.75"'
    if bars:
        yield f'<path class="bar" stroke="{colour}"{faint} d="{bars}"/>'
    filled = f'r="5" fill="{colour}"' if spot.steered.is_on_front else f'r="4" fill="none" stroke="{colour}"{faint}'
    told = "; ".join(f"{name} {amount(mean)}" for name, mean in zip(objectives, spot.means, strict=True))
    by = f"preference {_weights(spot.preferences[0])}"
    if len(spot.preferences) > 1:
        by += f" to {_weights(spot.preferences[-1])}, {len(spot.preferences)} of them"
    yield f'<circle cx="{left:.1f}" cy="{top:.1f}" {filled}><title>{escape(f"{told}; {by}")}</title></circle>'


def _spots(report: FrontReport) -> list[Spot]:
    """Every distinct point."""
    found: dict[tuple[float, ...], list[Steered]] = {}
    for steered in report.by_preference:
        found.setdefault(tuple(_means(steered)), []).append(steered)
    return [Spot(each[0], [steered.preference for steered in each]) for each in found.values()]


def _legend(reports: Sequence[FrontReport], top: float) -> Iterator[str]:
    """The meaning of colours and marks."""
    objectives = reports[0].objectives
    left = 20.0
    y = top + 18
    every = [steered for report in reports for steered in report.by_preference]
    words = [("", "by preference:")]
    for objective, name in enumerate(objectives):
        words.append((mixed([float(h == objective) for h in range(len(objectives))]), name))
    if any(not steered.is_on_front for steered in every):
        words.append(("none", "not on the front"))
    if any(interval.count > 1 for steered in every for interval in steered.returns):
        words.append(("", f"bars: {reports[0].confidence:.0%} confidence"))
    for fill, text in words:
        if fill:
            yield f'<circle class="key" cx="{left + 5:g}" cy="{y - 4:g}" r="4.5" fill="{fill}"/>'
            left += 15
        yield f'<text x="{left:g}" y="{y:g}">{escape(text)}</text>'
        left += 6.4 * len(text) + 18


def _means(steered: Steered) -> list[float]:
    return [interval.mean or 0.0 for interval in steered.returns]


def _weights(preference: Sequence[float]) -> str:
    return " ".join(f"{weight:.2f}" for weight in preference)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(map(figure, values))
