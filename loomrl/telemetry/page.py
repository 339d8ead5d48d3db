"""The report of a run as one HTML file: no network, no script, for light and dark mode."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from loomrl.telemetry.curve import Form, Point, Unit, amount, at, figure, percent, smooth
from loomrl.telemetry.diagnosis import Finding, diagnose, too_few
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.page_curve import curves, series, window
from loomrl.telemetry.page_table import Comparison, comparison_table, tile, tiles
from loomrl.telemetry.sink import STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A policy's answer to a task, and its reward."""

    text: str
    reward: float
    success: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The same task attempted before and after training."""

    task: str
    """`Math/algebra.linear, level 3`."""
    prompt: str
    before: Answer | None
    after: Answer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The content of the page."""

    title: str
    run: str
    experiment: str
    """SHA-256 of the resolved experiment."""
    machine: str
    """`2 cores, 16 GiB, Linux 6.1, torch 2.13 CPU`."""
    date: str
    duration_s: float
    status: str
    """The reason for the run's end: `target reached: …`, `all 100 updates done`."""
    history: Sequence[Mapping[str, float]]
    """The metrics of the run, from `read_metrics`."""
    unit: Unit = "updates"
    """Unit of their `step`: updates of a language policy, environment steps of a control policy."""
    comparisons: Sequence[Comparison] = ()
    samples: Sequence[Sample] = ()
    resolved: str = ""
    """The resolved experiment as YAML."""


def render_page(report: RunReport) -> str:
    """The whole page as HTML text."""
    template = Template(files("loomrl.telemetry").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(report.title),
        facts=_facts(report),
        tiles="".join([*tiles(report.comparisons), *_run_tiles(report)]),
        doctor=_doctor(report.history),
        tables=_section("Before and after", "".join(map(comparison_table, report.comparisons)), kind="pair"),
        curves=_section("Curves", _legend(report) + curves(report.history, report.unit)),
        samples=_section("The same tasks, before and after", "".join(map(_sample, report.samples))),
        resolved=_resolved(report),
    )


def _section(title: str, body: str, *, kind: str = "") -> str:
    return f'<section><h2>{escape(title)}</h2><div class="{kind}">{body}</div></section>' if body else ""


def _facts(report: RunReport) -> str:
    facts = {
        "Run": report.run,
        "Ended": report.status,
        "Date": report.date,
        "Machine": report.machine,
        "Experiment": report.experiment,
    }
    return "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items() if value)


def _run_tiles(report: RunReport) -> list[str]:
    """Tiles for the training itself."""
    history = report.history
    done = len(history) if report.unit == "updates" else history[-1][STEP] if history else 0
    success, level = (smooth(series(history, metric), window(history)) for metric in (Metric.SUCCESS, Metric.LEVEL))
    return [
        tile(report.unit.capitalize(), f"{done:,.0f}", f"in {duration(report.duration_s)}"),
        *_from_to("Success in training", success, percent, "sampled, at the levels that were trained"),
        *_from_to("Level of tasks", level, figure, "mean of those attempted"),
        *_from_to("Return in training", series(history, Metric.RETURN), amount, "mean of the latest 100 episodes"),
        *_best_evaluation(report),
    ]


def _from_to(label: str, points: Sequence[Point], form: Form, note: str) -> list[str]:
    """A metric's tile: its first value and its last; none if the run lacks it."""
    ends = [value for _, value in points if math.isfinite(value)]
    return [tile(label, f"<em>{escape(form(ends[0]))} →</em> {escape(form(ends[-1]))}", note)] if ends else []


def _best_evaluation(report: RunReport) -> list[str]:
    """The best evaluation on the way. Where nothing succeeded in any, none is the best."""
    shown: list[str] = []
    for metric, label, form in (
        (Metric.RETURN_EVALUATED, "Return in evaluation", amount),
        (Metric.EVALUATED, "Success on held-out tasks", percent),
    ):
        judged = series(report.history, metric)
        if not judged:
            continue
        step, best = max(judged, key=lambda point: point[1])
        times = f"{len(judged)} evaluations" if len(judged) > 1 else "one evaluation"
        is_none = metric is Metric.EVALUATED and best <= 0
        note = f"in {times}" if is_none else f"best of {times}, at {at(step, report.unit)}"
        shown.append(tile(label, escape(form(best)), note))
    return shown


def duration(seconds: float) -> str:
    """A duration for people: `3 min 42 s`."""
    whole = round(seconds)
    hours = whole // 3600
    minutes = whole // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{seconds:.3g} s"


def _legend(report: RunReport) -> str:
    count = window(report.history)
    if not report.history:
        return f'<p class="note">No {report.unit.removesuffix("s")} was done.</p>'
    if count == 1:
        return ""
    return (
        f'<p class="note">Thin: every value. Thick, and the number at its end: mean of the last {count}, or the value '
        "itself where nothing is thin. Point at a chart to read single values.</p>"
    )


def _doctor(history: Sequence[Mapping[str, float]]) -> str:
    findings = diagnose(history)
    few = too_few(history)
    if findings:
        return f'<ul class="findings">{"".join(map(_finding, findings))}</ul>'
    if few is not None:
        return f'<p class="note">{escape(few)}</p>' if history else ""
    return '<p class="healthy"><b>✓</b> The training doctor finds nothing wrong.</p>'


def _finding(finding: Finding) -> str:
    return (
        f"<li><h4><b>!</b> {escape(finding.name.capitalize())}</h4>"
        f"<p>{escape(finding.evidence)}</p><p><b>Try:</b> {escape(finding.remedy)}</p></li>"
    )


def _sample(sample: Sample) -> str:
    return (
        f'<article class="card sample"><h4>{escape(sample.task)}</h4><pre class="prompt">{escape(sample.prompt)}</pre>'
        f'<div class="pair">{_answer("before", sample.before)}{_answer("after", sample.after)}</div></article>'
    )


def _answer(when: str, answer: Answer | None) -> str:
    if answer is None:
        return f'<div class="answer"><h5>{when}</h5><p class="note">The attempt failed; there is no answer.</p></div>'
    kind, verdict = _verdict(answer.success)
    return (
        f'<div class="answer {kind}"><h5>{when} <span>{verdict}</span> <small>reward {figure(answer.reward)}</small>'
        f"</h5><pre>{escape(answer.text)}</pre></div>"
    )


def _verdict(success: float) -> tuple[str, str]:
    if success >= 1:
        return "right", "✓ right"
    return ("wrong", "✗ wrong") if success <= 0 else ("partly", f"◐ {percent(success)} right")


def _resolved(report: RunReport) -> str:
    if not report.resolved:
        return ""
    return f"<details><summary>The resolved experiment</summary><pre>{escape(report.resolved)}</pre></details>"
