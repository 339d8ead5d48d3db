"""The report of a run: evaluations before and after, tasks answered twice, and all of it as Markdown."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from loomrl.telemetry.diagnosis import diagnose
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.number import Form, Unit, amount, figure, percent

PARTS = ("environment", "family", "level")
Interval = Mapping[str, Any]
"""`loomrl.evaluation.statistics.Interval` as plain data; infinite bounds are None."""


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

    @property
    def is_control(self) -> bool:
        """True if it is about returns, which need a scale, instead of success."""
        return "success" not in self.after["overall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A policy's answer to a task, and its reward."""

    text: str
    reward: float
    success: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPair:
    """The same task attempted before and after training."""

    task: str
    """`Math/algebra.linear, level 3`."""
    prompt: str
    before: Answer | None
    after: Answer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run that is over."""

    title: str
    run: str
    experiment: str
    """SHA-256 of the resolved experiment."""
    machine: str
    """`2 cores, 16 GiB, Linux 6.1, torch 2.13 CPU`."""
    date: str
    took: str
    status: str
    """The reason for the run's end: `target reached: …`, `all 100 updates done`."""
    history: Sequence[Mapping[str, float]]
    """The metrics of the run, from `read_metrics`."""
    unit: Unit = "updates"
    """Unit of their `step`: updates of a language policy, environment steps of a control policy."""
    comparisons: Sequence[Comparison] = ()
    samples: Sequence[AnswerPair] = ()


def render_text(report: RunReport) -> str:
    """The report's facts, findings, tables and answers as Markdown. Curves are in metrics.jsonl."""
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
        "Duration": report.took,
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
        yield f"- {finding.name}: {finding.evidence}. {finding.remedy}"


def _comparison(comparison: Comparison) -> Iterator[str]:
    before, after = comparison.before, comparison.after
    name, key, form = ("return", "reward", amount) if comparison.is_control else ("success", "success", percent)
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


def values_of(history: Sequence[Mapping[str, float]], metric: Metric) -> list[float]:
    """The finite values of a metric, in order."""
    return [row[metric] for row in history if metric in row and math.isfinite(row[metric])]


def _metrics(report: RunReport) -> Iterator[str]:
    measured = {metric: values for metric in Metric if (values := values_of(report.history, metric))}
    if not measured:
        return
    yield from ("", f"## Metrics, {len(report.history)} rows in metrics.jsonl", "")
    yield from ("| metric | first | last | meaning |", "|---|---|---|---|")
    for metric, values in measured.items():
        yield f"| {metric} | {figure(values[0])} | {figure(values[-1])} | {metric.meaning} |"


def _sample(sample: AnswerPair) -> Iterator[str]:
    yield from ("", f"## {sample.task}", "", indent(sample.prompt, "    "))
    for when, answer in (("Before", sample.before), ("After", sample.after)):
        if answer is None:
            yield from ("", f"{when}: the attempt failed; there is no answer.")
            continue
        yield from ("", f"{when}: success {percent(answer.success)}, reward {figure(answer.reward)}")
        yield from ("", indent(answer.text, "    "))
