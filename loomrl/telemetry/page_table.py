"""The tables of a report: evaluations before and after training, with confidence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from loomrl.evaluation.report import failures_in
from loomrl.telemetry.curve import Form, amount, figure, percent, round_span

Row = Mapping[str, Any]
"""A `loomrl.evaluation.report.Score` or `loomrl.evaluation.returns.ReturnScore` as plain data."""
Interval = Mapping[str, Any]
"""`loomrl.evaluation.statistics.Interval` as plain data; infinite bounds are None."""
ABOUT_EPISODES = ("deviation", "least", "greatest", "steps", "episodes")
"""Fields of a `ReturnScore` that are shown beside the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One kind of evaluation, before and after training: `as_dict()` of both reports.

    For a language policy they are `loomrl.evaluation.report.Report`, for a control policy
    `loomrl.evaluation.returns.ReturnReport`.
    """

    name: str
    """`greedy`, `sampled at temperature 1`."""
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def comparison_table(comparison: Comparison) -> str:
    """The evaluations before and after, with intervals and the difference."""
    before, after = comparison.before, comparison.after
    table = _returns if _is_control(comparison) else _successes
    level = f"{after['confidence']:.0%}".replace("%", " %")
    return (
        f'<section class="card"><h4>{escape(comparison.name)}</h4>'
        '<p class="note"><i class="key before"></i> before <i class="key after"></i> after, '
        f"each with its {level} confidence interval</p>{table(before, after)}</section>"
    )


def _is_control(comparison: Comparison) -> bool:
    """True if it is about returns, which need a scale, instead of success."""
    return "success" not in comparison.after["overall"]


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of a table's bars, and the format of its numbers."""

    low: float
    high: float
    form: Form
    bounds: Callable[[float, float], str]
    change: Form

    def at(self, value: float) -> float:
        """The position of a value, in percent."""
        return 100 * (value - self.low) / (self.high - self.low)


SUCCESS = Scale(
    0.0,
    1.0,
    form=percent,
    bounds=lambda low, high: f"{100 * low:.0f}–{100 * high:.0f}",
    change=lambda change: f"{100 * change:+.0f}".replace("-", "−"),
)


def _return_scale(intervals: Sequence[Interval]) -> Scale:
    """Round numbers around all known values."""
    known = [interval[key] for interval in intervals for key in ("mean", "low", "high")]
    numbers = [number for number in known if number is not None] or [0.0]
    low, high = round_span(min(numbers), max(numbers))
    return Scale(
        low,
        high,
        form=amount,
        bounds=lambda low, high: f"{amount(low)} to {amount(high)}",
        change=lambda change: f"{'+' if change >= 0 else ''}{amount(change)}",
    )


def _table(title: str, ends: tuple[str, str, str], body: str, *, kind: str = "") -> str:
    marks = "".join(f"<span>{escape(end)}</span>" for end in ends)
    return (
        f'<table class="{kind}"><thead><tr><th scope="col">{escape(title)}</th><th class="range">{marks}</th>'
        '<th scope="col">before</th><th scope="col">after</th><th scope="col">change</th></tr>'
        f"</thead>{body}</table>"
    )


def _successes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Success per family and per level."""
    body = _rows("all tasks", {"": before["overall"]}, {"": after["overall"]})
    if len(after["by_environment"]) > 1:
        body += _rows("by environment", before["by_environment"], after["by_environment"])
    body += _rows("by family", before["by_family"], after["by_family"])
    body += _rows("by level", *(_by_level(report["by_level"]) for report in (before, after)))
    body += _rows("several attempts at a task", *(_by_attempts(report.get("several")) for report in (before, after)))
    missing = ", ".join(after.get("left_out", ()))
    note = f'<p class="note">Not judged, as there were too few episodes: {escape(missing)}</p>' if missing else ""
    return _table("Success in %", ("0", "50", "100"), body) + note + _failures(before, after)


def _returns(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Mean return on its own scale, with figures of the episodes."""
    first, last = before["overall"], after["overall"]
    scale = _return_scale([first["reward"], last["reward"]])
    ends = (amount(scale.low), amount((scale.low + scale.high) / 2), amount(scale.high))
    mean = _row("mean", _known(first["reward"]), _known(last["reward"]), scale)
    about = "".join(_plain_row(name, first[name], last[name]) for name in ABOUT_EPISODES)
    return _table("Return", ends, f"<tbody>{mean}</tbody><tbody>{about}</tbody>", kind="returns")


def _plain_row(name: str, before: float | None, after: float | None) -> str:
    cells = "".join(f"<td>{'–' if value is None else escape(amount(value))}</td>" for value in (before, after))
    return f'<tr><th scope="row">{escape(name)}</th><td class="range"></td>{cells}<td></td></tr>'


def _rows(title: str, before: Mapping[str, Row], after: Mapping[str, Row]) -> str:
    names = sorted({*before, *after})
    if not names:
        return ""
    head = "" if names == [""] else f'<tr class="head"><th colspan="5" scope="rowgroup">{escape(title)}</th></tr>'
    rows = (_row(name or title, _success(before.get(name)), _success(after.get(name)), SUCCESS) for name in names)
    return f"<tbody>{head}{''.join(rows)}</tbody>"


def _by_level(rows: Mapping[str, Row]) -> dict[str, Row]:
    """`Math/05` as `Math, level  5`, so that levels stay in order."""
    parted = ((name.rpartition("/"), row) for name, row in rows.items())
    return {f"{environment}, level {int(level):2}": row for (environment, _, level), row in parted}


def _by_attempts(several: Mapping[str, Any] | None) -> dict[str, Row]:
    """Doubling numbers of attempts, of which one is right; and the most frequent answer."""
    if several is None:
        return {}
    rows = {f"one of {k:2} right": {"success": several["pass_at"][k - 1]} for k in _doubling(len(several["pass_at"]))}
    return rows | (
        {} if several["majority"] is None else {"the most frequent answer": {"success": several["majority"]}}
    )


def _doubling(most: int) -> list[int]:
    return [*(1 << power for power in range((most - 1).bit_length())), most]


def _success(row: Row | None) -> Interval | None:
    """The interval, or None without attempts."""
    return None if row is None else _known(row["success"])


def _known(interval: Interval) -> Interval | None:
    return None if interval["mean"] is None else interval


def _row(name: str, before: Interval | None, after: Interval | None, scale: Scale) -> str:
    marks = _mark(before, "before", scale) + _mark(after, "after", scale)
    return (
        f'<tr><th scope="row">{escape(name)}</th><td class="range"><div>{marks}</div></td>'
        f"<td>{_cell(before, scale)}</td><td>{_cell(after, scale)}</td><td>{_change(before, after, scale)}</td></tr>"
    )


def _mark(interval: Interval | None, kind: str, scale: Scale) -> str:
    if interval is None:
        return ""
    dot = f'<i class="at {kind}" style="left:{scale.at(interval["mean"]):.1f}%"></i>'
    if interval["low"] is None:
        return dot
    low, high = scale.at(interval["low"]), scale.at(interval["high"])
    return f'<i class="ci {kind}" style="left:{low:.1f}%;width:{high - low:.1f}%"></i>{dot}'


def _cell(interval: Interval | None, scale: Scale) -> str:
    if interval is None:
        return "–"
    mean = escape(scale.form(interval["mean"]))
    low = interval["low"]
    high = interval["high"]
    return f"<b>{mean}</b>" + ("" if low is None else f"<small>{scale.bounds(low, high)}</small>")


def _change(before: Interval | None, after: Interval | None, scale: Scale) -> str:
    """The difference; faint if the intervals overlap, or are unknown."""
    if before is None or after is None:
        return "–"
    is_known = before["low"] is not None and after["low"] is not None
    apart = is_known and (before["high"] < after["low"] or after["high"] < before["low"])
    kind = "apart" if apart else "chance"
    return f'<span class="{kind}">{scale.change(after["mean"] - before["mean"])}</span>'


def _failures(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The number and causes of failed attempts, if any."""
    told = [
        f"{when}: " + ", ".join(failures_in(report))
        for when, report in (("before", before), ("after", after))
        if report["failures"]
    ]
    return f'<p class="note">Failed attempts, left out: {escape("; ".join(told))}.</p>' if told else ""


def tiles(comparisons: Sequence[Comparison]) -> list[str]:
    """The headline of each comparison: success or return, before and after."""
    return [(_return_tile if _is_control(comparison) else _success_tile)(comparison) for comparison in comparisons]


def _success_tile(comparison: Comparison) -> str:
    before, after = comparison.before, comparison.after
    counted = " → ".join(_counted(report["overall"]) for report in (before, after) if _any_failed(before, after))
    attempts = counted or f"{after['overall']['success']['count']} attempts"
    note = f"held-out tasks, {attempts}; reward {_reward(before)} → {_reward(after)}"
    ends = [_success(report["overall"]) for report in (before, after)]
    return tile(f"Success, {comparison.name}", _headline(ends, percent), note)


def _any_failed(*reports: Mapping[str, Any]) -> bool:
    return any(report["overall"]["failures"] for report in reports)


def _counted(score: Row) -> str:
    """Counts of usable and of failed attempts."""
    return f"{score['success']['count']} attempts and {score['failures']} failed"


def _return_tile(comparison: Comparison) -> str:
    last = comparison.after["overall"]
    interval = comparison.after["overall"]["reward"]
    level = f"{comparison.after['confidence']:.0%}".replace("%", " %")
    sure = "" if interval["low"] is None else f"; {amount(interval['low'])} to {amount(interval['high'])} at {level}"
    played = "one episode" if last["episodes"] == 1 else f"{last['episodes']} episodes"
    ends = [_known(report["overall"]["reward"]) for report in (comparison.before, comparison.after)]
    return tile(f"Return, {comparison.name}", _headline(ends, amount), f"{played}{sure}")


def tile(label: str, value: str, note: str) -> str:
    """A figure with its name above and a note below. `value` is HTML already."""
    return f'<div class="tile"><span>{escape(label)}</span><strong>{value}</strong><small>{escape(note)}</small></div>'


def _headline(ends: Sequence[Interval | None], form: Form) -> str:
    first, last = ("–" if interval is None else form(interval["mean"]) for interval in ends)
    return f"<em>{escape(first)} →</em> {escape(last)}"


def _reward(report: Mapping[str, Any]) -> str:
    reward = report["overall"]["reward"]
    return "–" if reward is None else figure(reward)
