"""The report of a run as Markdown, for people without a browser and for other programs. Curves are in metrics.jsonl."""

import math
from collections.abc import Iterator
from textwrap import indent

from loomrl.telemetry.curve import Form, amount, figure, percent
from loomrl.telemetry.diagnosis import diagnose
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.page import Answer, RunReport, Sample, duration
from loomrl.telemetry.page_curve import series
from loomrl.telemetry.page_table import Comparison, Interval

PARTS = ("environment", "family", "level")


def render_text(report: RunReport) -> str:
    """The report's facts, findings, tables and answers."""
    lines = [f"# {report.title}", "", *_facts(report), *_doctor(report)]
    for comparison in report.comparisons:
        lines += _comparison(comparison)
    lines += _metrics(report)
    for sample in report.samples:
        lines += _sample(sample)
    return "\n".join(lines) + "\n"


def _facts(report: RunReport) -> Iterator[str]:
    facts = {
        "Run": report.run,
        "Ended": report.status,
        "Date": report.date,
        "Duration": duration(report.duration_s),
        "Machine": report.machine,
        "Experiment": report.experiment,
    }
    return (f"- {name}: {value}" for name, value in facts.items() if value)


def _doctor(report: RunReport) -> Iterator[str]:
    if not report.history:
        return
    yield from ("", "## The training doctor", "")
    findings = diagnose(report.history)
    if not findings:
        yield "Nothing wrong was found."
    for finding in findings:
        yield f"- {finding.name}: {finding.evidence} Try: {finding.remedy}"


def _comparison(comparison: Comparison) -> Iterator[str]:
    before, after = comparison.before, comparison.after
    is_success = "success" in after["overall"]
    name, key, form = ("success", "success", percent) if is_success else ("return", "reward", amount)
    yield from ("", f"## Before and after: {name}, {comparison.name}", "")
    yield from (f"| {name} | before | after |", "|---|---|---|")
    rows = {"all": (before["overall"], after["overall"])}
    for part in PARTS:
        first, last = before.get(f"by_{part}", {}), after.get(f"by_{part}", {})
        rows |= {f"{part} {each}": (first.get(each), last.get(each)) for each in sorted({*first, *last})}
    for each, sides in rows.items():
        yield f"| {each} | {' | '.join(_cell(side and side[key], form) for side in sides)} |"
    yield from ("", f"In brackets: {after['confidence']:.0%} confidence intervals.")


def _cell(interval: Interval | None, form: Form) -> str:
    if interval is None or interval["mean"] is None:
        return "–"
    bounds = (interval["low"], interval["high"])
    return form(interval["mean"]) + ("" if None in bounds else f" ({form(bounds[0])} to {form(bounds[1])})")


def _metrics(report: RunReport) -> Iterator[str]:
    points = {
        metric: [value for _, value in series(report.history, metric) if math.isfinite(value)] for metric in Metric
    }
    if not any(points.values()):
        return
    yield from ("", f"## Metrics, {len(report.history)} rows in metrics.jsonl", "")
    yield from ("| metric | first | last | meaning |", "|---|---|---|---|")
    for metric, found in points.items():
        if found:
            yield f"| {metric} | {figure(found[0])} | {figure(found[-1])} | {metric.meaning} |"


def _sample(sample: Sample) -> Iterator[str]:
    yield from ("", f"## {sample.task}", "", indent(sample.prompt, "    "))
    for when, answer in (("Before", sample.before), ("After", sample.after)):
        yield from ("", f"{when}: {_verdict(answer)}")
        if answer is not None:
            yield from ("", indent(answer.text, "    "))


def _verdict(answer: Answer | None) -> str:
    if answer is None:
        return "the attempt failed; there is no answer."
    return f"success {percent(answer.success)}, reward {figure(answer.reward)}"
