"""The report of a run as one HTML file: no network, no script, readable by day and by night."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One way of judging the policy, before and after: `loomrl.evaluation.report.Report.as_dict()` of both."""

    name: str
    """"greedy", "sampled at temperature 1"."""
    before: Mapping[str, Any]
    after: Mapping[str, Any]


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
    """"Math/algebra.linear, level 3"."""
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
    """"2 cores, 16 GiB, Linux 6.1, torch 2.13 CPU"."""
    date: str
    duration_s: float
    status: str
    """How the run ended: "target reached: …", "all 100 updates done"."""
    history: Sequence[Mapping[str, float]]
    """The metrics of every update, as `read_metrics` gives them."""
    comparisons: Sequence[Comparison] = ()
    samples: Sequence[Sample] = ()
    resolved: str = ""
    """The resolved experiment as YAML."""


def render_page(report: RunReport) -> str:
    """The whole page as HTML text."""
    return f"<!doctype html><title>{escape(report.title)}</title>"
