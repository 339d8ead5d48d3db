"""The curves of a report: the metrics of each chart, and the order of charts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from loomrl.telemetry.curve import (
    Curve,
    Form,
    Point,
    Unit,
    amount,
    figure,
    line_chart,
    percent,
    smooth,
    stacked_chart,
    strip,
)
from loomrl.telemetry.metric import PHASES, Metric
from loomrl.telemetry.sink import STEP, TIME

History = Sequence[Mapping[str, float]]

COLORS = 8
SMOOTHED = 20
"""A thick line is the mean over this fraction of the run …"""
LONGEST_WINDOW = 25
"""… and over this many values at most."""
SPARSE = (Metric.RETURN_EVALUATED, Metric.RETURN_IDLE, Metric.EVALUATED, Metric.EVALUATED_REWARD)
"""Metrics measured at intervals: their points are joined."""
MEANS = (*SPARSE, Metric.RETURN, Metric.EPISODE_STEPS, Metric.STAGE)
"""Metrics drawn without a running mean."""
SPLIT = tuple(metric.of("") for metric in (Metric.SUCCESS, Metric.EVALUATED, Metric.LEVEL, Metric.REWARD_PART))
"""Prefixes of names that appear as rows or as parts of another chart."""


SUCCESS_NOTE = "Share of attempts that did what was asked."


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: its title, a description, its metrics by their labels."""

    title: str
    note: str
    names: Mapping[str, str]
    span: tuple[float, float] | None = None
    form: Form = figure


def curves(history: History, unit: Unit = "updates") -> str:
    """All charts, under one heading per question. Missing metrics have no chart."""
    names = _names(history)
    sections = {
        "Does it learn?": _learning(names),
        "How does the policy move?": _policy(),
        "Is the optimizer well?": _optimizer(),
        "What does it cost?": _effort(),
    }
    cards = {title: [_chart(panel, history, unit) for panel in panels] for title, panels in sections.items()}
    cards["What does it cost?"].append(_phases(history, unit))
    panels = [panel for several in sections.values() for panel in several]
    shown = {name for panel in panels for name in panel.names.values()} | {*PHASES}
    return (
        "".join(_section(title, charts) for title, charts in cards.items())
        + _strips("Success of each family", Metric.SUCCESS, history)
        + _strips("Level of each family", Metric.LEVEL, history)
        + _others(history, [name for name in names if name not in shown and not name.startswith(SPLIT)], unit)
    )


def _names(history: History) -> list[str]:
    """The names of the run's metrics. A constant stage is left out."""
    left_out = {STEP, TIME}
    if len({row[Metric.STAGE] for row in history if Metric.STAGE in row}) < 2:
        left_out.add(Metric.STAGE)
    return list(dict.fromkeys(name for row in history for name in row if name not in left_out))


def window(history: History) -> int:
    """The window of the thick curves."""
    return max(1, min(LONGEST_WINDOW, len(history) // SMOOTHED))


def series(history: History, name: str) -> list[Point]:
    """The points of one metric; NaN for rows without it, except for metrics measured at intervals."""
    points = ((row.get(STEP, index), row.get(name, math.nan)) for index, row in enumerate(history, 1))
    return [point for point in points if name not in SPARSE or math.isfinite(point[1])]


def _panel(title: str, metric: Metric, form: Form = figure) -> Panel:
    return Panel(title, metric.meaning, {title: metric}, form=form)


def _learning(names: Sequence[str]) -> list[Panel]:
    parts = Metric.REWARD_PART.parts(names)[: COLORS - 1]
    rewards = {"total": str(Metric.REWARD_TOTAL), **{part: Metric.REWARD_PART.of(part) for part in parts}}
    returns: dict[str, str] = {"training": Metric.RETURN, "evaluation": Metric.RETURN_EVALUATED}
    note = "Mean of the latest 100 episodes of training; of the greedy policy, where it was evaluated."
    successes: dict[str, str] = {"success": Metric.SUCCESS}
    if Metric.EVALUATED in names:
        successes = {"training": Metric.SUCCESS, "held-out tasks": Metric.EVALUATED}
    if Metric.RETURN_IDLE in names:
        returns["doing nothing"] = Metric.RETURN_IDLE
    return [
        Panel("Return", note, returns, form=amount),
        _panel("Episode length", Metric.EPISODE_STEPS, amount),
        *([_panel("Stage", Metric.STAGE)] if Metric.STAGE in names else []),
        Panel("Success", SUCCESS_NOTE, successes, (0, 1), percent),
        Panel("Reward", "Mean of an attempt, and the parts it is made of.", rewards),
        Panel("Level", "Mean of the tasks attempted, 1 to 10.", {"level": Metric.LEVEL}),
    ]


def _policy() -> list[Panel]:
    return [
        _panel("KL from the reference policy", Metric.POLICY_KL),
        _panel("Distance of one update", Metric.POLICY_STEP_KL),
        _panel("Entropy", Metric.POLICY_ENTROPY),
        _panel("Clip fraction", Metric.POLICY_CLIP_FRACTION, percent),
        _panel("Engine–learner drift", Metric.POLICY_DRIFT),
        _panel("Groups without signal", Metric.GROUPS_WITHOUT_SIGNAL, percent),
    ]


def _optimizer() -> list[Panel]:
    explained = Metric.VALUE_EXPLAINED_VARIANCE
    return [
        _panel("Policy loss", Metric.POLICY_LOSS),
        _panel("Gradient norm", Metric.GRADIENT_NORM),
        _panel("Learning rate", Metric.LEARNING_RATE),
        _panel("Value loss", Metric.VALUE_LOSS),
        Panel("Explained variance", explained.meaning, {"value function": explained}, (-1, 1)),
        _panel("Gradients shortened", Metric.GRADIENT_CLIPPED, percent),
    ]


def _effort() -> list[Panel]:
    speeds: dict[str, str] = {"engine": Metric.ENGINE_TOKENS_PER_S, "learner": Metric.LEARNER_TOKENS_PER_S}
    lengths: dict[str, str] = {"written": Metric.LENGTH_ACTION, "read": Metric.LENGTH_PROMPT}
    return [
        _panel("Environment steps per second", Metric.ENV_STEPS_PER_S),
        Panel("Tokens per second", "Generated while attempting, learnt from while learning.", speeds),
        Panel("Tokens of an attempt", "Written by the policy, and read by it.", lengths),
    ]


def _chart(panel: Panel, history: History, unit: Unit) -> str:
    """A card with the chart, or nothing if the run has none of its metrics."""
    present = {shown: name for shown, name in panel.names.items() if any(name in row for row in history)}
    if not present:
        return ""
    curves = [
        Curve(shown, series(history, name), color, is_mean=name in MEANS)
        for color, (shown, name) in enumerate(present.items(), 1)
    ]
    chart = line_chart(curves, window=window(history), span=panel.span, form=panel.form, unit=unit)
    return _card(panel.title, panel.note, chart, _legend(curves) if len(curves) > 1 else "")


def _phases(history: History, unit: Unit) -> str:
    """Time by phase, for phases that took any."""
    present = [phase for phase in PHASES if any(row.get(phase) for row in history)]
    if not present:
        return ""
    curves = [
        Curve(phase.removeprefix("time/"), series(history, phase), COLORS if phase is Metric.TIME_IDLE else color)
        for color, phase in enumerate(present, 1)
    ]
    totals = [sum(value for _, value in curve.points if math.isfinite(value)) for curve in curves]
    shares = [percent(total / (sum(totals) or 1)) for total in totals]
    chart = stacked_chart(curves, form=lambda value: f"{figure(value)} s", unit=unit)
    title = "Seconds of an update" if unit == "updates" else "Seconds between measurements"
    return _card(title, "Phase upon phase; shares of the whole run.", chart, _legend(curves, shares))


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


def _strips(title: str, metric: Metric, history: History) -> str:
    """One row per family, from the first updates to the last."""
    form, color = (percent, 1) if metric is Metric.SUCCESS else (figure, 5)
    curves = {part: series(history, metric.of(part)) for part in metric.parts(name for row in history for name in row)}
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


def _others(history: History, names: Sequence[str], unit: Unit) -> str:
    meanings = {str(metric): metric.meaning for metric in Metric}
    cards = [_chart(Panel(name, meanings.get(name, ""), {name: name}), history, unit) for name in sorted(names)]
    if not cards:
        return ""
    summary = "<summary>Everything else that was measured</summary>"
    return f'<details>{summary}<div class="grid">{"".join(cards)}</div></details>'
