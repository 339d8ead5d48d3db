"""Evaluations before and after training as tables and as headlines of a run's page."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loomrl.evaluation.report import failures_in
from loomrl.store.runs import Run
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.number import Form, Unit, amount, at, figure, percent, round_ticks
from loomrl.telemetry.report import Comparison, Interval, values_of
from loomrl.telemetry.sink import STEP

ABOUT_EPISODES = ("deviation", "least", "greatest", "steps", "episodes")
"""Fields of a `ReturnScore` that are shown beside the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A headline: a value, possibly with an earlier one, and a note."""

    label: str
    value: str
    before: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A line of a comparison. `is_apart`: the intervals do not overlap."""

    name: str
    marks: tuple[Interval | None, Interval | None]
    """Means with their intervals, drawn on the scale of the table."""
    scale: "Scale"
    before: tuple[str, str]
    """A value and its interval, as text."""
    after: tuple[str, str]
    change: str = ""
    is_apart: bool = False


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """One kind of evaluation: rows by title."""

    name: str
    what: str
    confidence: str
    groups: Mapping[str, Sequence[ComparisonRow]]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of a table's marks, and the format of its numbers."""

    low: float
    high: float
    form: Form
    bounds: Callable[[float, float], str]
    change: Form


SUCCESS = Scale(
    0.0,
    1.0,
    form=percent,
    bounds=lambda low, high: f"{100 * low:.0f}–{100 * high:.0f}",
    change=lambda change: f"{100 * change:+.0f}".replace("-", "−"),
)


def comparison_table(comparison: Comparison) -> ComparisonTable:
    """The evaluations before and after, with intervals and the difference."""
    before, after = comparison.before, comparison.after
    level = percent(after["confidence"])
    if comparison.is_control:
        return ComparisonTable(comparison.name, "Return", level, _returns(before, after), ())
    groups = {title: rows for title, rows in _successes(before, after).items() if rows}
    left_out = ", ".join(after.get("left_out", ()))
    notes = [f"Not judged, as there were too few episodes: {left_out}"] if left_out else []
    failed = [
        f"{when}: {', '.join(failures_in(report))}"
        for when, report in (("before", before), ("after", after))
        if report["failures"]
    ]
    notes += [f"Failed attempts, left out: {'; '.join(failed)}."] if failed else []
    return ComparisonTable(comparison.name, "Success", level, groups, notes)


def _successes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[ComparisonRow]]:
    """Success in all, per environment, family and level, and of several attempts at a task."""
    groups = {"": ({"all tasks": before["overall"]}, {"all tasks": after["overall"]})}
    if len(after["by_environment"]) > 1:
        groups["by environment"] = (before["by_environment"], after["by_environment"])
    groups["by family"] = (before["by_family"], after["by_family"])
    groups["by level"] = (_by_level(before["by_level"]), _by_level(after["by_level"]))
    groups["several attempts at a task"] = (_by_attempts(before.get("several")), _by_attempts(after.get("several")))
    return {
        title: [
            _row(name, _success(first.get(name)), _success(last.get(name)), SUCCESS) for name in sorted({*first, *last})
        ]
        for title, (first, last) in groups.items()
    }


def _returns(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[ComparisonRow]]:
    """Mean return on its own scale, with figures of the episodes."""
    first, last = before["overall"], after["overall"]
    intervals = [first["reward"], last["reward"]]
    edges = [each[key] for each in intervals for key in ("mean", "low", "high") if each[key] is not None] or [0.0]
    margin = 0.0 if max(edges) > min(edges) else abs(min(edges)) / 2 or 1.0
    ticks = round_ticks(min(edges) - margin, max(edges) + margin)
    scale = Scale(
        ticks[0],
        ticks[-1],
        form=amount,
        bounds=lambda low, high: f"{amount(low)} to {amount(high)}",
        change=lambda change: f"{'+' if change >= 0 else ''}{amount(change)}",
    )
    mean = _row("mean", _interval_or_none(first["reward"]), _interval_or_none(last["reward"]), scale)
    about = [
        ComparisonRow(name, (None, None), SUCCESS, (_amount(first[name]), ""), (_amount(last[name]), ""))
        for name in ABOUT_EPISODES
    ]
    return {"": [mean, *about]}


def _amount(value: float | None) -> str:
    return "–" if value is None else amount(value)


def _by_level(rows: Mapping[str, Any]) -> dict[str, Any]:
    """`Math/05` as `Math, level  5`, so that levels stay in order."""
    parted = ((name.rpartition("/"), row) for name, row in rows.items())
    return {f"{environment}, level {int(level):2}": row for (environment, _, level), row in parted}


def _by_attempts(several: Mapping[str, Any] | None) -> dict[str, Any]:
    """Success if one of 1, 2, 4, … attempts is right; and of the most frequent answer."""
    if several is None:
        return {}
    most = len(several["pass_at"])
    doubling = [*(1 << power for power in range((most - 1).bit_length())), most]
    rows = {f"one of {k:2} right": {"success": several["pass_at"][k - 1]} for k in doubling}
    majority = several["majority"]
    return rows | ({} if majority is None else {"the most frequent answer": {"success": majority}})


def _success(score: Mapping[str, Any] | None) -> Interval | None:
    return None if score is None else _interval_or_none(score["success"])


def _interval_or_none(interval: Interval) -> Interval | None:
    """The interval, or None without attempts."""
    return None if interval["mean"] is None else interval


def _row(name: str, before: Interval | None, after: Interval | None, scale: Scale) -> ComparisonRow:
    change = ""
    is_apart = False
    if before is not None and after is not None:
        change = scale.change(after["mean"] - before["mean"])
        is_known = before["low"] is not None and after["low"] is not None
        is_apart = is_known and (before["high"] < after["low"] or after["high"] < before["low"])
    return ComparisonRow(name, (before, after), scale, _cell(before, scale), _cell(after, scale), change, is_apart)


def _cell(interval: Interval | None, scale: Scale) -> tuple[str, str]:
    if interval is None:
        return "–", ""
    low, high = interval["low"], interval["high"]
    return scale.form(interval["mean"]), "" if low is None or high is None else scale.bounds(low, high)


def headlines(
    run: Run, comparisons: Sequence[Comparison], history: Sequence[Mapping[str, float]], unit: Unit
) -> list[Tile]:
    """Success or return before and after, how long the run was, and where its own curves began and end."""
    tiles = [(_return_tile if each.is_control else _success_tile)(each) for each in comparisons]
    if history:
        tiles.append(Tile(label=unit, value=f"{history[-1][STEP]:,.0f}", note="done"))
    if run.kind != "train":
        return tiles
    for metric, label, form, note in (
        (Metric.SUCCESS, "Success in training", percent, "sampled, at the levels that were trained"),
        (Metric.LEVEL, "Level of tasks", figure, "mean of those attempted"),
        (Metric.RETURN, "Return in training", amount, "mean of the latest 100 episodes"),
    ):
        values = values_of(history, metric)
        if values:
            count = max(1, min(25, len(values) // 20)) if metric is not Metric.RETURN else 1
            first, last = sum(values[:count]) / count, sum(values[-count:]) / count
            tiles.append(Tile(label=label, before=form(first), value=form(last), note=note))
    losses = values_of(history, Metric.EVALUATED_LOSS)
    if losses:
        note = f"nats per token; the lowest was {figure(min(losses))}"
        tiles.append(Tile(label="Held-out loss", before=figure(losses[0]), value=figure(losses[-1]), note=note))
    return [*tiles, *_best_evaluations(history, unit)]


def _success_tile(comparison: Comparison) -> Tile:
    before, after = comparison.before["overall"], comparison.after["overall"]
    attempts = f"{after['success']['count']} attempts"
    if before["failures"] or after["failures"]:
        counts = [f"{score['success']['count']} attempts and {score['failures']} failed" for score in (before, after)]
        attempts = " → ".join(counts)
    rewards = " → ".join("–" if score["reward"] is None else figure(score["reward"]) for score in (before, after))
    return _tile(
        f"Success, {comparison.name}",
        (_success(before), _success(after)),
        percent,
        f"held-out tasks, {attempts}; reward {rewards}",
    )


def _return_tile(comparison: Comparison) -> Tile:
    before, after = comparison.before["overall"], comparison.after["overall"]
    interval = after["reward"]
    level = percent(comparison.after["confidence"])
    sure = "" if interval["low"] is None else f"; {amount(interval['low'])} to {amount(interval['high'])} at {level}"
    played = "one episode" if after["episodes"] == 1 else f"{after['episodes']} episodes"
    ends = (_interval_or_none(before["reward"]), _interval_or_none(interval))
    return _tile(f"Return, {comparison.name}", ends, amount, f"{played}{sure}")


def _tile(label: str, ends: tuple[Interval | None, Interval | None], form: Form, note: str) -> Tile:
    first, last = ("–" if interval is None else form(interval["mean"]) for interval in ends)
    return Tile(label=label, before=first, value=last, note=note)


def _best_evaluations(history: Sequence[Mapping[str, float]], unit: Unit) -> Iterator[Tile]:
    """The best evaluation on the way. Where nothing succeeded in any, none is the best."""
    for metric, label, form in (
        (Metric.RETURN_EVALUATED, "Return in evaluation", amount),
        (Metric.EVALUATED, "Success on held-out tasks", percent),
    ):
        points = [(row[metric], row[STEP]) for row in history if math.isfinite(row.get(metric, math.nan))]
        if not points:
            continue
        best, step = max(points, key=lambda point: point[0])
        times = f"{len(points)} evaluations" if len(points) > 1 else "one evaluation"
        is_none = metric is Metric.EVALUATED and best <= 0
        yield Tile(
            label=label, value=form(best), note=f"in {times}" if is_none else f"best of {times}, at {at(step, unit)}"
        )
