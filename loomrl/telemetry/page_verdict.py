"""The page of a gate's verdict: one HTML file with every check and its evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from loomrl.load import to_yaml
from loomrl.telemetry.page_table import tile

MARKS = {"passed": "✓", "failed": "✗", "error": "!", "not applicable": "–"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictReport:
    """The content of the page."""

    id: str
    outcome: str
    """For people: `refused`, `waiting, approved by anna`."""
    policy: str
    against: str | None
    suite: str
    suite_hash: str
    date: str
    report: Mapping[str, Any]
    """The evidence, as LoomDB has it."""


def render_verdict(verdict: VerdictReport) -> str:
    """The whole page as HTML text."""
    checks: Sequence[Mapping[str, Any]] = verdict.report["checks"]
    template = Template(files("loomrl.telemetry").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(f"{verdict.policy}: {verdict.outcome}"),
        facts=_facts(verdict),
        tiles="".join(_tiles(verdict, checks)),
        doctor=_refusals(checks),
        tables=_table(checks),
        curves="",
        samples=_examples(checks),
        resolved=f"<details><summary>The suite</summary><pre>{escape(_suite(verdict))}</pre></details>",
    )


def _facts(verdict: VerdictReport) -> str:
    facts = {
        "Policy": verdict.policy,
        "Baseline": verdict.against or "none",
        "Suite": verdict.suite,
        "Verdict": verdict.id,
        "Date": verdict.date,
        "Seed": str(verdict.report["seed"]),
        "Code": verdict.report["code"],
        "Suite's hash": verdict.suite_hash,
    }
    return "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())


def _tiles(verdict: VerdictReport, checks: Sequence[Mapping[str, Any]]) -> list[str]:
    strategy = verdict.report["strategy"]
    improvement = verdict.report["improvement"]
    applied = [check for check in checks if check["state"] != "not applicable"]
    passed = sum(check["state"] == "passed" for check in applied)
    gained = "–" if improvement is None else f"{improvement:+.3f}"
    release = strategy["name"].replace("_", "-")
    share = f"from {strategy['share']:.0%} of the traffic" if strategy["share"] else "it is not released"
    return [
        tile("Verdict", escape(verdict.outcome.partition(",")[0]), f"{passed} of {len(applied)} checks passed"),
        tile("Improvement", gained, "mean score minus the baseline's"),
        tile("Strategy", release, share),
    ]


def _refusals(checks: Sequence[Mapping[str, Any]]) -> str:
    bad = [check for check in checks if check["state"] in ("failed", "error")]
    if not bad:
        return '<p class="healthy"><b>✓</b> No check failed.</p>'
    items = (
        f"<li><h4><b>{MARKS[check['state']]}</b> {escape(check['name'])}</h4><p>{escape(check['reason'])}</p></li>"
        for check in bad
    )
    return f'<ul class="findings">{"".join(items)}</ul>'


def _table(checks: Sequence[Mapping[str, Any]]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{MARKS[check["state"]]} {escape(check["name"])}</th><th>{check["state"]}</th>'
        f"<th>{escape(check['reason'])}</th></tr>"
        for check in checks
    )
    return f'<section><h2>Checks</h2><div class="card"><table><tbody>{rows}</tbody></table></div></section>'


def _examples(checks: Sequence[Mapping[str, Any]]) -> str:
    shown = [(check, example) for check in checks if check["state"] == "failed" for example in check["examples"]]
    if not shown:
        return ""
    cards = "".join(
        f'<article class="card sample"><h4>{escape(check["name"])}: {escape(example["reason"])}</h4>'
        f'<pre class="prompt">{escape(example["prompt"])}</pre>'
        f'<div class="answer wrong"><pre>{escape(example["answer"])}</pre></div></article>'
        for check, example in shown
    )
    return f"<section><h2>Examples</h2>{cards}</section>"


def _suite(verdict: VerdictReport) -> str:
    return to_yaml(verdict.report["suite"])
