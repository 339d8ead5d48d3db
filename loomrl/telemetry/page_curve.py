"""The curves of a report, drawn as `loomrl.telemetry.panel` declares them."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from loomrl.telemetry.curve import (
    Curve,
    Point,
    Unit,
    figure,
    line_chart,
    percent,
    smooth,
    stacked_chart,
    strip,
)
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.panel import COLORS, FAMILIES, OTHERS, Panel, phases, sections
from loomrl.telemetry.sink import STEP

History = Sequence[Mapping[str, float]]

SMOOTHED = 20
"""A thick line is the mean over this fraction of the run …"""
LONGEST_WINDOW = 25
"""… and over this many values at most."""
SPARSE = (Metric.RETURN_EVALUATED, Metric.RETURN_IDLE, Metric.EVALUATED, Metric.EVALUATED_REWARD)
"""Metrics measured at intervals: their points are joined."""
MEANS = (*SPARSE, Metric.RETURN, Metric.EPISODE_STEPS, Metric.STAGE)
"""Metrics drawn without a running mean."""


def curves(history: History, unit: Unit = "updates") -> str:
    """All charts, under one heading per question. Missing metrics have no chart."""
    shown = ""
    for title, panels in sections(_names(history), unit=unit).items():
        if title in FAMILIES:
            shown += _strips(title, FAMILIES[title], panels, history)
        elif title == OTHERS:
            cards = "".join(_chart(panel, history, unit) for panel in panels)
            shown += f'<details><summary>{OTHERS}</summary><div class="grid">{cards}</div></details>'
        else:
            shown += _section(title, [_chart(panel, history, unit) for panel in panels])
    return shown


def _names(history: History) -> list[str]:
    """The names of the run's metrics. A constant stage is left out."""
    is_constant = len({row[Metric.STAGE] for row in history if Metric.STAGE in row}) < 2
    return [
        name
        for name in dict.fromkeys(name for row in history for name in row)
        if name != Metric.STAGE or not is_constant
    ]


def window(history: History) -> int:
    """The window of the thick curves."""
    return max(1, min(LONGEST_WINDOW, len(history) // SMOOTHED))


def series(history: History, name: str) -> list[Point]:
    """The points of one metric; NaN for rows without it, except for metrics measured at intervals."""
    points = ((row.get(STEP, index), row.get(name, math.nan)) for index, row in enumerate(history, 1))
    return [point for point in points if name not in SPARSE or math.isfinite(point[1])]


def _chart(panel: Panel, history: History, unit: Unit) -> str:
    """A card with the chart."""
    if panel.title == phases(unit).title:
        return _phases(panel, history, unit)
    curves = [
        Curve(shown, series(history, name), color, is_mean=name in MEANS)
        for color, (shown, name) in enumerate(panel.names.items(), 1)
    ]
    chart = line_chart(curves, window=window(history), span=panel.span, form=panel.form, unit=unit)
    return _card(panel.title, panel.note, chart, _legend(curves) if len(curves) > 1 else "")


def _phases(panel: Panel, history: History, unit: Unit) -> str:
    """Time by phase, stacked, for phases that took any."""
    present = {label: name for label, name in panel.names.items() if any(row.get(name) for row in history)}
    if not present:
        return ""
    curves = [
        Curve(label, series(history, name), COLORS if name == Metric.TIME_IDLE else color)
        for color, (label, name) in enumerate(present.items(), 1)
    ]
    totals = [sum(value for _, value in curve.points if math.isfinite(value)) for curve in curves]
    shares = [percent(total / (sum(totals) or 1)) for total in totals]
    chart = stacked_chart(curves, form=lambda value: f"{figure(value)} s", unit=unit)
    return _card(
        panel.title, f"{panel.note} Phase upon phase; shares of the whole run.", chart, _legend(curves, shares)
    )


def _legend(curves: Sequence[Curve], values: Sequence[str] | None = None) -> str:
    items = zip(curves, values or [""] * len(curves), strict=True)
    return "".join(
        f'<li><i class="b{curve.color}"></i>{escape(curve.name)} <b>{escape(value)}</b></li>' for curve, value in items
    )


def _card(title: str, note: str, chart: str, legend: str) -> str:
    key = f'<ul class="legend">{legend}</ul>' if legend else ""
    return f'<figure class="card"><h4>{escape(title)}</h4><p class="note">{escape(note)}</p>{chart}{key}</figure>'


def _section(title: str, cards: Sequence[str], *, kind: str = "grid") -> str:
    shown = "".join(cards)
    return f'<h3>{escape(title)}</h3><div class="{kind}">{shown}</div>' if shown else ""


def _strips(title: str, metric: Metric, panels: Sequence[Panel], history: History) -> str:
    """One row per family, from the first updates to the last."""
    form, color = (percent, 1) if metric is Metric.SUCCESS else (figure, 5)
    curves = {panel.title: series(history, metric.of(panel.title)) for panel in panels}
    values = [value for points in curves.values() for _, value in points if math.isfinite(value)]
    if not values:
        return ""
    top = 1.0 if metric is Metric.SUCCESS else max(values)
    rows = ""
    for family, points in curves.items():
        ends = [form(value) for _, value in smooth(points, window(history)) if math.isfinite(value)] or ["–"]
        cells = strip(points, span=(0.0, top), color=color, form=form)
        rows += f"<span>{escape(family)}</span>{cells}<b>{escape(ends[0])} → {escape(ends[-1])}</b>"
    note = f"First update left, last update right; the fuller the colour, the higher (full: {escape(form(top))})."
    return _section(title, [f'<p class="note">{note}</p><div class="strips">{rows}</div>'], kind="card")
