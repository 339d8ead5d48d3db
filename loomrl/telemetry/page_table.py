"""The tables of a report: what the policy was judged to be, before and after, with confidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from loomrl.telemetry.curve import figure, percent

Row = Mapping[str, Any]
"""A `loomrl.evaluation.report.Score` as plain data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One way of judging the policy, before and after: `loomrl.evaluation.report.Report.as_dict()` of both."""

    name: str
    """`greedy`, `sampled at temperature 1`."""
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def comparison_table(comparison: Comparison) -> str:
    """Success per family and per level: interval before, interval after, and the difference."""
    before, after = comparison.before, comparison.after
    body = _rows("all tasks", {"": before["overall"]}, {"": after["overall"]})
    body += _rows("by family", before["by_family"], after["by_family"])
    body += _rows("by level", *(_by_level(report["by_level"]) for report in (before, after)))
    level = f"{after['confidence']:.0%}".replace("%", " %")
    return (
        f'<section class="card"><h4>{escape(comparison.name)}</h4>'
        '<p class="note"><i class="key before"></i> before <i class="key after"></i> after, '
        f"each with its {level} confidence interval</p>"
        '<table><thead><tr><th scope="col">Success in %</th><th class="range"><span>0</span><span>50</span>'
        '<span>100</span></th><th scope="col">before</th><th scope="col">after</th><th scope="col">change</th></tr>'
        f"</thead>{body}</table>{_failures(before, after)}</section>"
    )


def _rows(title: str, before: Mapping[str, Row], after: Mapping[str, Row]) -> str:
    names = sorted({*before, *after})
    if not names:
        return ""
    head = "" if names == [""] else f'<tr class="head"><th colspan="5" scope="rowgroup">{escape(title)}</th></tr>'
    rows = (_row(name or title, _success(before.get(name)), _success(after.get(name))) for name in names)
    return f"<tbody>{head}{''.join(rows)}</tbody>"


def _by_level(rows: Mapping[str, Row]) -> dict[str, Row]:
    """`Math/05` as `Math, level  5`: so named that levels stay in order."""
    parted = ((name.rpartition("/"), row) for name, row in rows.items())
    return {f"{environment}, level {int(level):2}": row for (environment, _, level), row in parted}


def _success(row: Row | None) -> Mapping[str, Any] | None:
    """The interval, or None where nothing was attempted."""
    return row["success"] if row is not None and row["success"]["mean"] is not None else None


def _row(name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    marks = _mark(before, "before") + _mark(after, "after")
    return (
        f'<tr><th scope="row">{escape(name)}</th><td class="range"><div>{marks}</div></td>'
        f"<td>{_cell(before)}</td><td>{_cell(after)}</td><td>{_change(before, after)}</td></tr>"
    )


def _mark(interval: Mapping[str, Any] | None, kind: str) -> str:
    if interval is None:
        return ""
    low, high, mean = (100 * interval[key] for key in ("low", "high", "mean"))
    return (
        f'<i class="ci {kind}" style="left:{low:.1f}%;width:{high - low:.1f}%"></i>'
        f'<i class="at {kind}" style="left:{mean:.1f}%"></i>'
    )


def _cell(interval: Mapping[str, Any] | None) -> str:
    if interval is None:
        return "–"
    low, high = (f"{100 * interval[key]:.0f}" for key in ("low", "high"))
    return f"<b>{percent(interval['mean'])}</b><small>{low}–{high}</small>"


def _change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    """The difference in percentage points; faint where the intervals overlap."""
    if before is None or after is None:
        return "–"
    apart = before["high"] < after["low"] or after["high"] < before["low"]
    kind = "apart" if apart else "chance"
    change = f"{100 * (after['mean'] - before['mean']):+.0f}".replace("-", "−")
    return f'<span class="{kind}">{change}</span>'


def _failures(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """How many attempts failed and were left out, if any."""
    told = [
        f"{when}: " + ", ".join(f"{count} × {cause}" for cause, count in sorted(report["failures"].items()))
        for when, report in (("before", before), ("after", after))
        if report["failures"]
    ]
    return f'<p class="note">Failed attempts, left out: {escape("; ".join(told))}.</p>' if told else ""


def tiles(comparisons: Sequence[Comparison]) -> list[str]:
    """The headline of each comparison: success before and after."""
    return [
        tile(
            f"Success, {comparison.name}",
            _headline(comparison.before["overall"], comparison.after["overall"]),
            f"held-out tasks, {comparison.after['overall']['success']['count']} attempts; "
            f"reward {_reward(comparison.before)} → {_reward(comparison.after)}",
        )
        for comparison in comparisons
    ]


def tile(label: str, value: str, note: str) -> str:
    """A figure with its name above and what qualifies it below. `value` is HTML already."""
    return f'<div class="tile"><span>{escape(label)}</span><strong>{value}</strong><small>{escape(note)}</small></div>'


def _headline(before: Row, after: Row) -> str:
    first, last = (percent(row["success"]["mean"]) if _success(row) else "–" for row in (before, after))
    return f"<em>{escape(first)} →</em> {escape(last)}"


def _reward(report: Mapping[str, Any]) -> str:
    reward = report["overall"]["reward"]
    return "–" if reward is None else figure(reward)
