"""A picture of a release from its record: the new version's share of the traffic, and its evidence, over time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from loomrl.files import write_whole
from loomrl.release.controller import Look, past
from loomrl.release.guard import Better, Finding
from loomrl.release.passage import PlanStep, steps_of
from loomrl.store import LoomDB
from loomrl.store.releases import ReleaseRow
from loomrl.telemetry.curve import figure, round_ticks

WIDE = 680.0
LEFT = 64.0
PLOT_WIDE = 590.0
PLOT_HIGH = 120.0
HEAD = 96.0
GAP = 62.0
SEEN = 0.5
"""Differences beyond this, or eight margins, are at the edge."""
STYLE = """
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:#55544f}
.page{fill:#fff}.title{font-size:14px;font-weight:600;fill:#14140f}.head{font-size:16px}.grid{stroke:#e6e5de}
.zero{stroke:#14140f}.share{fill:#2a78d6;fill-opacity:.3;stroke:#2a78d6}.mean{fill:none;stroke:#14140f}
.interval{fill:#2a78d6;fill-opacity:.3;stroke:#2a78d6}.margin{stroke:#eb6834;stroke-dasharray:5 4}
.margin-word{fill:#eb6834}.end{stroke:#14140f;stroke-dasharray:2 3}
@media(prefers-color-scheme:dark){text{fill:#c3c2b7}.page{fill:#1a1a19}.title{fill:#f4f4ef}.grid{stroke:#33332f}
.zero,.mean,.end{stroke:#f4f4ef}.margin-word{fill:#eb6834}}
"""


@dataclass(frozen=True, slots=True)
class Plot:
    """A panel from the time `since` to `until`, and from the lowest tick to the highest."""

    since: float
    until: float
    ticks: Sequence[float]
    top: float

    def x(self, at: float) -> float:
        """The position of a time."""
        return LEFT + PLOT_WIDE * (at - self.since) / (self.until - self.since)

    def y(self, value: float) -> float:
        """The position of a value; values outside are at the edge."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.top + PLOT_HIGH * (high - min(max(value, low), high)) / (high - low)

    def line(self, points: Sequence[tuple[float, float]]) -> str:
        """A path through points."""
        return "L".join(f"{self.x(at):.1f} {self.y(value):.1f}" for at, value in points)


def draw(file: Path, look: Look, rows: Sequence[ReleaseRow], db: LoomDB) -> None:
    """Write the picture of a release that is open or has ended."""
    since = rows[0].created_at
    end = rows[-1].created_at
    is_open = look.release.passage.is_open
    until = max(look.now if is_open else end + 0.06 * (end - since), since + 1e-3)
    moments = past(db, look.release, since=since, until=until)
    # A guard that has samples of one side only has no difference to draw.
    measured = [
        [(each.at, found) for each in moments if math.isfinite((found := each.findings[place]).difference)]
        for place in range(len(look.evidence.findings))
    ]
    first = _ticks([0.0, 1.0])
    parts = [*_title(look), *_ramp(Plot(since, until, first, HEAD), look, rows)]
    top = HEAD + PLOT_HIGH + GAP
    for findings in filter(None, measured):
        parts += _evidence(findings, since=since, until=until, top=top)
        if not is_open:
            x = Plot(since, until, first, top).x(end)
            parts.append(f'<path class="end" d="M{x:.1f} {top:g}V{top + PLOT_HIGH:g}"/>')
        top += PLOT_HIGH + GAP
    parts += _clock(Plot(since, until, first, top - GAP - PLOT_HIGH))
    size = f'width="{WIDE:g}" height="{top:g}"'
    shape = f'xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDE:g} {top:g}"'
    page = f'<rect class="page" {size}/>'
    write_whole(file, f'<svg {shape} role="img"><style>{STYLE}</style>{page}{"".join(parts)}</svg>\n'.encode())


def _title(look: Look) -> Iterator[str]:
    release = look.release
    names = [Path(key).name if key.startswith("/") else key for key in (release.challenger, release.baseline)]
    state = release.row.state.replace("_", " ")
    yield f'<text class="title head" x="20" y="28">{escape(f"{names[0]} against {names[1]}: {state}")}</text>'
    reason = release.row.reason
    yield f'<text x="20" y="50">{escape(reason if len(reason) < 105 else reason[:104] + "…")}</text>'


def _ramp(plot: Plot, look: Look, rows: Sequence[ReleaseRow]) -> Iterator[str]:
    """The share of the new version."""
    yield f'<text class="title" x="{LEFT:g}" y="{plot.top - 12:g}">Share of the new version</text>'
    for tick in (0.0, 0.5, 1.0):
        yield _across(plot, "zero" if tick == 0 else "grid", tick, f"{100 * tick:g} %")
    steps = steps_of(look.release.plan)
    points = [(plot.since, 0.0)]
    share = 0.0
    labels = []
    for row in rows:
        now = _share(row, steps)
        points += [(row.created_at, share), (row.created_at, now)]
        if now != share and row.state == "open":
            labels.append((row.created_at, now))
        share = now
    points += [(plot.until, share), (plot.until, 0.0)]
    yield f'<path class="share" d="M{plot.line(points)}Z"/>'
    for at, value in labels:
        y = plot.y(value) + (14 if value > 0.9 else -5)
        yield f'<text x="{plot.x(at) + 4:.1f}" y="{y:.1f}">{100 * value:g} %</text>'


def _share(row: ReleaseRow, steps: Sequence[PlanStep]) -> float:
    """Of the traffic, from this row on."""
    at: int = row.content["passage"]["step"]
    if row.state == "done":
        return 0.0 if steps[-1].is_shadow else 1.0
    if row.state != "open" or at < 0 or steps[at].is_shadow:
        return 0.0
    return steps[at].share


def _evidence(there: Sequence[tuple[float, Finding]], *, since: float, until: float, top: float) -> Iterator[str]:
    """The difference of one metric, its interval, and what is accepted."""
    accepted = _accepted(there[-1][1])
    most = SEEN if accepted is None else min(SEEN, 8 * abs(accepted))
    edges = [value for _, each in there for value in (each.low, each.high) if math.isfinite(value)]
    ticks = _ticks([0.0, *(min(max(edge, -most), most) for edge in edges)])
    plot = Plot(since, until, ticks, top)
    last = there[-1][1]
    name = last.guard.label
    units = f"new minus stable, {last.challenger.count:,} and {last.baseline.count:,} units"
    yield f'<text class="title" x="{LEFT:g}" y="{top - 12:g}">{escape(name)}</text>'
    yield f'<text x="{LEFT + PLOT_WIDE:g}" y="{top - 12:g}" text-anchor="end">{units}</text>'
    for tick in plot.ticks:
        yield _across(plot, "zero" if abs(tick) < 1e-12 else "grid", tick, ("+" if tick > 0 else "") + figure(tick))
    high = [(at, each.high) for at, each in there]
    low = [(at, each.low) for at, each in reversed(there)]
    yield f'<path class="interval" d="M{plot.line([*high, *low])}Z"/>'
    yield f'<path class="mean" d="M{plot.line([(at, each.difference) for at, each in there])}"/>'
    if accepted:
        y = plot.y(accepted)
        yield f'<path class="margin" d="M{LEFT:g} {y:.1f}H{LEFT + PLOT_WIDE:g}"/>'
        word = y - 4 if accepted > 0 else y + 13
        yield f'<text class="margin-word" x="{LEFT + 4:g}" y="{word:.1f}">accepted</text>'


def _accepted(finding: Finding) -> float | None:
    """The worst difference that the guard accepts; None where that depends on the stable version."""
    guard = finding.guard
    if guard.times is not None or guard.quantile is not None:
        return None
    return guard.margin if guard.better is Better.LOWER else -guard.margin


def _across(plot: Plot, kind: str, tick: float, word: str) -> str:
    y = plot.y(tick)
    line = f'<path class="{kind}" d="M{LEFT:g} {y:.1f}H{LEFT + PLOT_WIDE:g}"/>'
    return f'{line}<text x="{LEFT - 8:g}" y="{y + 4:.1f}" text-anchor="end">{escape(word)}</text>'


def _clock(plot: Plot) -> Iterator[str]:
    """The time since the release began, below the last panel."""
    lasts = plot.until - plot.since
    size, unit = next((each for each in ((3600.0, "h"), (60.0, "min")) if lasts > 3 * each[0]), (1.0, "s"))
    for tick in round_ticks(0.0, lasts / size, parts=6):
        if tick * size <= lasts:
            x, y = plot.x(plot.since + tick * size), plot.top + PLOT_HIGH + 18
            yield f'<text x="{x:.1f}" y="{y:g}" text-anchor="middle">{figure(tick)} {unit}</text>'


def _ticks(values: Sequence[float]) -> list[float]:
    return round_ticks(min(values), max(max(values), min(values) + 1e-3), parts=4)
