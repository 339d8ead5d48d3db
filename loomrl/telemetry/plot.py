"""Pictures as files, by matplotlib: the trials of a sweep, and the fronts of several objectives."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loomrl.evaluation.front import FrontReport, PreferenceReturns
from loomrl.telemetry.number import amount, figure, round_ticks
from loomrl.telemetry.parallel import parallel_axes

COLOURS = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#4a3aa7", "#e87ba4", "#007d7d", "#8a6d3b")
"""Colours of lines, and of objectives, in order."""
STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": "#14140f",
    "axes.labelcolor": "#55544f",
    "axes.edgecolor": "#c3c2b7",
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e6e5de",
    "xtick.color": "#55544f",
    "ytick.color": "#55544f",
    "legend.frameon": False,
    "text.parse_math": False,
}
"""Text stays text in SVG, and a name with two dollar signs is no formula."""
NAME = 26
WORD = 16
"""Maximum letters of an axis's name and of a tick's label."""
FEW = 40
"""Points of a line that are marked one by one."""
ABREAST = 3
"""Panels in a row."""
FAR = 2.0
"""A reference within this many widths of all points is drawn in place; beyond, at the edge."""


@contextmanager
def picture(file: Path, width: float, height: float) -> Iterator[Figure]:
    """An empty picture of this size in inches, saved as what the file's name ends in: .svg, .png, .pdf."""
    with mpl.rc_context(STYLE):
        drawn = Figure(figsize=(width, height), layout="constrained")
        yield drawn
        file.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def plot_curves(file: Path, lines: Mapping[str, Sequence[tuple[float, float]]], *, x: str, y: str) -> None:
    """Named lines of points; a line of few is marked."""
    with picture(file, 6.4, 3.2) as drawn:
        plot = drawn.add_subplot()
        plot.set_xlabel(x)
        plot.set_ylabel(y)
        for colour, (name, points) in zip(COLOURS, lines.items(), strict=False):
            if points:
                marker = "o" if len(points) <= FEW else ""
                plot.plot(*zip(*points, strict=True), color=colour, label=name, marker=marker, markersize=4)
        plot.legend()


def plot_trials(
    file: Path,
    title: str,
    trials: Sequence[Mapping[str, Any]],
    *,
    logarithmic: Collection[str] = (),
    best: Literal["max", "min"] = "max",
) -> None:
    """Trials on parallel axes, the best one wide."""
    axes, names = parallel_axes(trials, logarithmic=logarithmic, best=best)
    with picture(file, 2.0 * len(axes) + 0.6, 4.4) as drawn:
        plot = drawn.add_subplot()
        plot.set_title(title, loc="left")
        plot.grid(visible=False)
        plot.spines[:].set_visible(False)
        for rank, name in enumerate(names):
            strength = rank / max(1, len(names) - 1)
            is_best = rank == len(names) - 1
            plot.plot(
                range(len(axes)),
                [axis.places[rank] for axis in axes],
                color=COLOURS[0],
                alpha=0.2 + 0.8 * strength,
                linewidth=3.5 if is_best else 1.6,
                gid=name,
            )
        for index, axis in enumerate(axes):
            plot.axvline(index, color="#85837b", linewidth=1)
            for place, word in axis.ticks:
                label = word if len(word) <= WORD else word[: WORD - 1] + "…"
                plot.text(index - 0.05, place, label, ha="right", va="center", color="#55544f", in_layout=False)
        plot.set_yticks([])
        cut = [axis.name if len(axis.name) <= NAME else "…" + axis.name[-NAME:] for axis in axes]
        plot.set_xticks(range(len(axes)), [name + "\n" * (index % 2) for index, name in enumerate(cut)])
        plot.tick_params(axis="x", length=0, top=False, labeltop=True, labelbottom=False)
        plot.set_xlim(-0.7, len(axes) - 0.6)


def plot_fronts(file: Path, reports: Sequence[FrontReport]) -> None:
    """Policies evaluated on the same two or more objectives: rows of panels, a panel for every two objectives.

    A point is the mean return of a preference, filled if it is on the front, with bars for its intervals. Its colour is
    the preference, mixed from the objectives' colours. For two objectives the front is connected, and the area between
    it and the reference is the hypervolume. All policies share their axes.
    """
    objectives = reports[0].objectives
    pairs = list(combinations(range(len(objectives)), 2))
    columns = min(len(pairs), ABREAST)
    rows = math.ceil(len(pairs) / ABREAST)
    width, height = (6.4, 4.2) if len(pairs) == 1 else (4.0, 3.2)
    spans = [_span(reports, objective) for objective in range(len(objectives))]
    with picture(file, width * columns, (height * rows + 0.8) * len(reports)) as drawn:
        parts = drawn.subfigures(len(reports), 1, squeeze=False)[:, 0]
        for part, report in zip(parts, reports, strict=True):
            part.suptitle(f"{report.policy}\n{_summary(report)}", x=0.02, ha="left", fontsize=9)
            panels = part.subplots(rows, columns, squeeze=False).flat
            for panel, pair in zip(panels, pairs, strict=False):
                _front_panel(panel, report, pair, [spans[objective] for objective in pair])
            for unused in list(part.axes)[len(pairs) :]:
                unused.set_visible(False)
        _front_legend(drawn.axes[0], reports)


def mix_colours(preference: Sequence[float]) -> str:
    """The colour of a preference: those of its objectives, mixed as light is."""
    parts = np.array(
        [[int(COLOURS[h % len(COLOURS)][i : i + 2], 16) for i in (1, 3, 5)] for h in range(len(preference))]
    )
    light = np.asarray(preference) @ (parts / 255.0) ** 2.2
    return "#" + "".join(f"{round(255 * share):02x}" for share in light.clip(0, 1) ** (1 / 2.2))


def _span(reports: Sequence[FrontReport], objective: int) -> tuple[float, float]:
    """Round numbers around all points and their intervals, and the reference unless it is far."""
    intervals = [steered.returns[objective] for report in reports for steered in report.by_preference]
    edges = [edge for each in intervals for edge in (each.mean, each.low, each.high) if edge is not None]
    low, high = min(filter(math.isfinite, edges)), max(filter(math.isfinite, edges))
    reference = reports[0].reference
    if reference is not None and low - reference[objective] <= FAR * (high - low):
        low, high = min(low, reference[objective]), max(high, reference[objective])
    margin = 0.0 if high > low else abs(low) / 2 or 1.0
    ticks = round_ticks(low - margin, high + margin, parts=5)
    return ticks[0], ticks[-1]


def _summary(report: FrontReport) -> str:
    parts = [f"{len(report.front)} points on the front", f"expected utility {amount(report.expected_utility)}"]
    parts.append(f"sparsity {amount(report.sparsity)}")
    if report.hypervolume is not None and report.reference is not None:
        parts.insert(0, f"hypervolume {amount(report.hypervolume)} from ({_numbers(report.reference)})")
    return ", ".join(parts)


def _front_panel(panel: Axes, report: FrontReport, pair: tuple[int, int], spans: Sequence[tuple[float, float]]) -> None:
    across, along = pair
    panel.set_xlabel(report.objectives[across])
    panel.set_ylabel(report.objectives[along])
    reference = report.reference
    if len(report.objectives) == 2:
        points = sorted((point[across], point[along]) for point in report.front)
        panel.step(*zip(*points, strict=True), where="pre", color="#85837b", linewidth=1.2, gid="front")
        if reference is not None:
            above = [(x, y) for x, y in points if x > reference[across] and y > reference[along]]
            edge = [(reference[across], above[0][1]), *above] if above else []
            if edge:
                xs, ys = zip(*edge, strict=True)
                panel.fill_between(xs, ys, reference[along], step="pre", color="#85837b", alpha=0.14, gid="hypervolume")
    if reference is not None:
        _reference(panel, [reference[across], reference[along]], spans)
    for means, steered in _points(report).items():
        colour = mix_colours(steered[0].preference)
        is_on_front = steered[0].is_on_front
        bars = [_bar(steered[0], objective) for objective in pair]
        panel.errorbar(
            [means[across]],
            [means[along]],
            xerr=bars[0],
            yerr=bars[1],
            fmt="o",
            color=colour,
            markerfacecolor=colour if is_on_front else "none",
            markersize=6 if is_on_front else 5,
            alpha=1.0 if is_on_front else 0.75,
            zorder=3 if is_on_front else 2,
        )
    panel.set_xlim(*spans[0])
    panel.set_ylim(*spans[1])


def _bar(steered: PreferenceReturns, objective: int) -> list[list[float]] | None:
    """The distances from the mean to the ends of its interval; None where there is none."""
    interval = steered.returns[objective]
    mean = interval.mean or 0.0
    is_known = interval.low < interval.high < math.inf
    return [[mean - interval.low], [interval.high - mean]] if is_known else None


def _reference(panel: Axes, values: Sequence[float], spans: Sequence[tuple[float, float]]) -> None:
    """A cross; one outside is on the edge, with a note."""
    inside = [min(max(value, low), high) for value, (low, high) in zip(values, spans, strict=True)]
    words = "reference" if inside == list(values) else f"reference ({_numbers(values)}), farther out"
    panel.plot(*inside, marker="x", color="#14140f", markersize=8, clip_on=False)
    panel.annotate(words, (inside[0], inside[1]), xytext=(8, 6), textcoords="offset points", color="#55544f")


def _points(report: FrontReport) -> dict[tuple[float, ...], list[PreferenceReturns]]:
    """Every distinct point with the preferences that lead to it; those on the front last, so that they are on top."""
    found: dict[tuple[float, ...], list[PreferenceReturns]] = {}
    for steered in sorted(report.by_preference, key=lambda each: each.is_on_front):
        found.setdefault(tuple(interval.mean or 0.0 for interval in steered.returns), []).append(steered)
    return found


def _front_legend(panel: Axes, reports: Sequence[FrontReport]) -> None:
    """The meaning of colours and marks."""
    objectives = reports[0].objectives
    every = [steered for report in reports for steered in report.by_preference]
    marks: dict[str, dict[str, Any]] = {
        name: {"marker": "o", "color": mix_colours([float(h == objective) for h in range(len(objectives))])}
        for objective, name in enumerate(objectives)
    }
    if any(not steered.is_on_front for steered in every):
        marks["not on the front"] = {"marker": "o", "color": "#85837b", "markerfacecolor": "none"}
    if any(interval.count > 1 for steered in every for interval in steered.returns):
        marks[f"bars: {reports[0].confidence:.0%} confidence"] = {"marker": "|", "color": "#85837b"}
    for name, mark in marks.items():
        panel.plot([], [], linestyle="none", label=name, **mark)
    panel.figure.figure.legend(title="by preference", loc="outside lower left", ncols=len(marks))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(map(figure, values))
