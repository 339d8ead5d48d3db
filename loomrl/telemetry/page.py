"""The report of a run as one HTML file: no network, no script, readable by day and by night."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template

from loomrl.telemetry.curve import figure, percent, smooth
from loomrl.telemetry.diagnosis import Finding, diagnose
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.page_curve import curves, series, window
from loomrl.telemetry.page_table import Comparison, comparison_table, tile, tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a policy said to a task, and what it earned."""

    text: str
    reward: float
    success: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The same task attempted before and after."""

    task: str
    """`Math/algebra.linear, level 3`."""
    prompt: str
    before: Answer | None
    after: Answer | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """All that the page says."""

    title: str
    run: str
    experiment: str
    """SHA-256 of the resolved experiment."""
    machine: str
    """`2 cores, 16 GiB, Linux 6.1, torch 2.13 CPU`."""
    date: str
    duration_s: float
    status: str
    """How the run ended: `target reached: …`, `all 100 updates done`."""
    history: Sequence[Mapping[str, float]]
    """The metrics of every update, as `read_metrics` gives them."""
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
        curves=_section("Curves", _legend(report.history) + curves(report.history)),
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
    """Figures of the training itself."""
    history = report.history
    shown = [tile("Updates", str(len(history)), f"in {duration(report.duration_s)}")]
    for label, metric, form, note in (
        ("Success in training", Metric.SUCCESS, percent, "sampled, at the levels that were trained"),
        ("Level of tasks", Metric.LEVEL, figure, "mean of those attempted"),
    ):
        ends = [value for _, value in smooth(series(history, metric), window(history)) if math.isfinite(value)]
        if ends:
            shown.append(tile(label, f"<em>{escape(form(ends[0]))} →</em> {escape(form(ends[-1]))}", note))
    return shown


def duration(seconds: float) -> str:
    """Time as people say it: `3 min 42 s`."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{seconds:.3g} s"


def _legend(history: Sequence[Mapping[str, float]]) -> str:
    count = window(history)
    if not history:
        return '<p class="note">No update was done.</p>'
    if count == 1:
        return ""
    return (
        f'<p class="note">Thin: every update. Thick, and the number at its end: mean of the last {count} updates. '
        "Point at a chart to read single updates.</p>"
    )


def _doctor(history: Sequence[Mapping[str, float]]) -> str:
    findings = diagnose(history)
    if not findings:
        return '<p class="healthy"><b>✓</b> The training doctor finds nothing wrong.</p>' if history else ""
    return f'<ul class="findings">{"".join(map(_finding, findings))}</ul>'


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
