"""A run's page with what its training recorded, in the console and saved as one file: the report."""

import json
import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loomrl.console.comparison import comparison_table, headlines
from loomrl.console.run import content
from loomrl.console.saved import save_run, save_verdict
from loomrl.experiments.cli import app
from loomrl.store import LoomDB, open_store
from loomrl.store.runs import RUNS, Run, RunStatus, finish_run, start_run
from loomrl.store.verdicts import StoredVerdict, VerdictOutcome
from loomrl.store.view.metrics import append_metrics
from loomrl.telemetry.metric import PHASES, Metric
from loomrl.telemetry.report import Comparison
from loomrl.telemetry.sink import new_metrics
from tests.console.console_samples import HOSTILE, new_run
from tests.telemetry.control_history import History, recorded
from tests.telemetry.reports import judged, returns, rows

GOOD = returns(100.0, 101.0)
VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """The page as a browser reads it: tags in order, text, and whether all tags are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if "script" not in self._open and "style" not in self._open:
            self.text += " ".join(data.split()) + " "


@pytest.fixture
def db(sqlite_url: str) -> Iterator[LoomDB]:
    with open_store(sqlite_url) as db:
        yield db


def record(db: LoomDB, history: History, **result: Any) -> Run:
    """A run that has ended."""
    start_run(db, new_run("r", resolved=HOSTILE.replace("\0", ""), started_at=0.0))
    for row in history:
        values = {name: value for name, value in row.items() if name not in ("step", "time")}
        append_metrics(db, new_metrics("r", int(row["step"]), values), at=row["step"])
    finish_run(db, "r", status=RunStatus.FINISHED, finished_at=9.0, result=result)
    return RUNS.require(db, "r")


def saved(db: LoomDB, history: History, **result: Any) -> str:
    record(db, history, **result)
    return save_run(db, "r")


def before_and_after(before: dict[str, Any], after: dict[str, Any], name: str = "greedy") -> dict[str, Any]:
    return {"name": name, "before": before, "after": after}


def test_hostile_text_stays_text_wherever_it_comes_from(db: LoomDB) -> None:
    answer = {"text": HOSTILE, "reward": 0.5, "success": 1.0}
    families = (HOSTILE.replace("/", "|"),)
    html = saved(
        db,
        [{"step": n, Metric.REWARD_PART.of(HOSTILE): 0.1, HOSTILE: 1.0} for n in (1, 2)],
        stopped=HOSTILE,
        comparisons=[before_and_after(judged(3, families=families), judged(90, families=families), HOSTILE)],
        samples=[{"task": HOSTILE, "prompt": HOSTILE, "before": answer, "after": answer}],
    )
    page = Page(html)
    assert page.tags.count("script") == 2, "the data and the drawing"
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.text.count("owned") >= 10
    assert "\u202e" not in page.text


def test_the_page_needs_nothing_but_itself_and_links_nowhere(db: LoomDB) -> None:
    html = saved(db, rows(30), comparisons=[before_and_after(judged(7), judged(95))])
    page = Page(html)
    assert not [value for name, value in page.attributes if name in ("href", "src", "action")]
    assert not re.findall(r"url\(|@import", html)
    assert "form" not in page.tags or 'method="post"' not in html
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', html)
    assert "default-src 'none'" in unescape(policy)
    assert "unsafe" not in policy


@pytest.mark.parametrize("updates", [0, 1, 2, 19, 300])
def test_a_run_of_any_length_has_a_page(db: LoomDB, updates: int) -> None:
    html = saved(db, rows(updates))
    (data,) = re.findall(r'id="record">(.*?)</script>', html, re.DOTALL)
    assert len(json.loads(data)["step"]) == updates
    assert ("No update is on record yet." in Page(html).text) == (updates == 0)
    assert len(html) < 300_000


def test_numbers_are_those_of_the_evaluation(db: LoomDB) -> None:
    after = {**judged(95), "failures": {"environment: EpisodeError": 3}}
    text = Page(saved(db, [], comparisons=[before_and_after(judged(7), after)])).text
    assert "Success, greedy 7 % → 95 % held-out tasks" in text
    assert "all tasks 7 % 3–14 95 % 89–98 +88" in text
    assert "Math/algebra" in text
    assert "Math, level 10" in text
    assert "after: 3 × environment: EpisodeError." in text


def test_answers_say_whether_they_were_right(db: LoomDB) -> None:
    answers = [{"text": f"text {s}", "reward": s, "success": s} for s in (0.0, 0.5, 1.0)]
    text = Page(saved(db, [], samples=[{"task": "t", "prompt": "p", "before": None, "after": a} for a in answers])).text
    assert "✗ wrong" in text
    assert "50 % right" in text
    assert "✓ right" in text
    assert text.count("there is no answer") == 3


def table(
    before: dict[str, Any], after: dict[str, Any]
) -> dict[str, tuple[tuple[str, str], tuple[str, str], str, bool]]:
    groups = comparison_table(Comparison(name="g", before=before, after=after)).groups
    return {row.name: (row.before, row.after, row.change, row.is_apart) for group in groups.values() for row in group}


@pytest.mark.parametrize(
    ("before", "after", "name", "row"),
    [
        (judged(50), judged(48), "all tasks", (("50 %", "40–60"), ("48 %", "38–58"), "−2", False)),
        (judged(0, count=0), judged(9, families=("new",)), "Math/new", (("–", ""), ("9 %", "5–16"), "", False)),
        (GOOD, returns(5.0, 6.0), "mean", (("100", "94.1 to 107"), ("5.5", "−0.853 to 11.9"), "−95", True)),
        (GOOD, returns(80.0, 120.0), "mean", (("100", "94.1 to 107"), ("100", "−154 to 354"), "−0.5", False)),
        (returns(), returns(21.0), "mean", (("–", ""), ("21", ""), "", False)),
        (returns(10.0, 30.0), returns(470.0, 490.0), "greatest", (("30", ""), ("490", ""), "", False)),
    ],
)  # fmt: skip
def test_differences_are_told_from_chance(before: Any, after: Any, name: str, row: Any) -> None:
    assert table(before, after)[name] == row


def tiles(db: LoomDB, history: History, *comparisons: dict[str, Any]) -> dict[str, str]:
    found = content(record(db, history, comparisons=list(comparisons)), db)["headlines"]
    return {tile.label: f"{tile.before} → {tile.value}; {tile.note}" for tile in found}


def test_headlines_tell_steps_and_returns(db: LoomDB) -> None:
    history = recorded("ppo_cartpole")
    shown = headlines(record(db, []), [], history, "steps")
    told = {tile.label: f"{tile.before} → {tile.value}; {tile.note}" for tile in shown}
    assert told["steps"] == "None → 62,219; done"
    assert told["Return in training"].startswith("24.6 → 500")
    assert told["Return in evaluation"] == "None → 500; best of 12 evaluations, at step 11,118"


def test_one_episode_has_no_interval(db: LoomDB) -> None:
    assert tiles(db, [], before_and_after(returns(), returns(21.0)))["Return, greedy"] == "– → 21; one episode"


def test_evaluations_stand_beside_the_success_in_training(db: LoomDB) -> None:
    history = [
        {**row, **({Metric.EVALUATED: 0.4 + n / 100} if n % 5 == 0 else {})} for n, row in enumerate(rows(40), 1)
    ]
    told = tiles(db, history)
    assert told["Success on held-out tasks"] == "None → 80 %; best of 8 evaluations, at update 40"
    assert told["Success in training"].startswith("1.5 % → 40 %")


def test_without_any_success_no_evaluation_is_the_best(db: LoomDB) -> None:
    barren = [{"step": n, Metric.SUCCESS: 0.0, Metric.REWARD_TOTAL: 0.0, Metric.EVALUATED: 0.0} for n in (1, 2)]
    html = saved(db, barren)
    assert "Nothing is rewarded" in html
    assert "best of" not in html
    assert "finds nothing wrong" not in html


def titles(db: LoomDB, history: History) -> list[str]:
    html = saved(db, history)
    (data,) = re.findall(r'id="record">(.*?)</script>', html, re.DOTALL)
    return [panel["title"] for panel in json.loads(data)["panels"]]


def test_a_real_run_has_the_charts_of_what_it_measured_and_no_others(db: LoomDB) -> None:
    assert titles(db, recorded("ppo_cartpole")) == [
        "Return",
        "Episode length",
        "Distance of one update",
        "Entropy",
        "Clip fraction",
        "Policy loss",
        "Gradient norm",
        "Value loss",
        "Explained variance",
        "Environment steps per second",
        "Seconds between measurements",
    ]


@pytest.mark.parametrize(("stages", "is_shown"), [((1.0, 1.0, 1.0), False), ((1.0, 2.0, 2.0), True)])
def test_only_a_stage_that_changes_has_a_chart(db: LoomDB, stages: tuple[float, ...], is_shown: bool) -> None:
    history = [{"step": n, Metric.RETURN: 1.0, Metric.STAGE: stage} for n, stage in enumerate(stages, 1)]
    assert ("Stage" in titles(db, history)) == is_shown


def test_phases_that_took_no_time_are_left_out(db: LoomDB) -> None:
    html = saved(db, [{"step": n, **dict.fromkeys(PHASES, 0.0), Metric.TIME_LEARN: 1.0} for n in (1, 2)])
    (data,) = re.findall(r'id="record">(.*?)</script>', html, re.DOTALL)
    (panel,) = json.loads(data)["panels"]
    assert (panel["names"], panel["isStacked"]) == ({"learn": Metric.TIME_LEARN}, True)


def test_findings_of_the_doctor_are_on_the_page(db: LoomDB) -> None:
    assert "differ by 0.400" in saved(db, [{**row, Metric.POLICY_DRIFT: 0.4} for row in rows(40)])


def test_a_verdict_is_saved_with_its_evidence_and_examples(tmp_path: Path) -> None:
    example = {"reason": "too long", "prompt": "How?", "answer": HOSTILE}
    checks = [
        {"name": "length", "state": "failed", "reason": "3 of 9 are too long", "examples": [example]},
        {"name": "safety", "state": "passed", "reason": "0 of 9", "examples": []},
        {"name": "speed", "state": "not applicable", "reason": "–", "examples": []},
    ]
    report = {"checks": checks, "improvement": -0.1, "strategy": {"name": "gradual_canary", "share": 0.1}, "seed": 3}
    verdict = StoredVerdict(
        id="v-1", outcome=VerdictOutcome.REFUSED, policy="r/1", against="r/0", suite="s@1", suite_hash="7" * 64,
        fingerprint="f", report=report, created_at=1.0,
    )  # fmt: skip
    page = Page(save_verdict(verdict))
    assert "1 of 2 checks passed" in page.text
    assert "Improvement −0.1" in page.text
    assert "gradual-canary from 10 % of the traffic" in page.text
    assert "Examples of failed checks" in page.text
    assert "owned" in page.text
    assert page.tags.count("script") == 1


def test_the_command_line_saves_the_same_page(sqlite_url: str, tmp_path: Path) -> None:
    with open_store(sqlite_url) as db:
        page = saved(db, rows(3))
    file = tmp_path / "run.html"
    answer = CliRunner().invoke(app, ["--store", sqlite_url, "runs", "r", "--page", str(file)])
    assert answer.exit_code == 0, answer.output
    assert file.read_text(encoding="utf-8") == page
