"""Runs in the console: results with units, groups, comparisons and exports."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from loomrl.console.source import RecordSource
from loomrl.experiments.shipped import resolve_any
from loomrl.load import dump
from loomrl.store import open_store
from loomrl.store.policies import record_evaluation
from loomrl.store.runs import start_run
from loomrl.store.view.metrics import append_metrics
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import new_metrics
from tests.console.console_samples import evaluation, new_run
from tests.console.console_support import Browser, console


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RecordSource, Browser]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('runs')}/loom.db"
    with open_store(url) as db:
        for number, (name, rate, metric, value) in enumerate(
            [
                ("math", 1e-5, Metric.SUCCESS, 0.5),
                ("math", 2e-5, Metric.SUCCESS, 0.25),
                ("pole", 1e-3, Metric.RETURN, 450.0),
            ]
        ):
            shipped = "language/math_tiny" if name == "math" else "control/cartpole"
            changed = [f"algorithm.optimizer.learning_rate={rate}"] if name == "math" else []
            experiment = resolve_any([shipped, *changed])
            told = {"experiment": experiment.sha256, "resolved": dump(experiment), "started_at": float(number)}
            run = new_run(f"{name}-{number}", name=name, **told)
            start_run(db, run)
            append_metrics(db, new_metrics(run.id, 1, {metric: value, Metric.POLICY_LOSS: 1.0}), at=1.0)
            append_metrics(db, new_metrics(run.id, 2, {"other": 1.0}), at=2.0)
        start_run(db, new_run("=1+1", kind="sweep", started_at=9.0))
    with console(url) as (source, app):
        yield source, Browser(app)


@pytest.fixture
def browser(shown: tuple[RecordSource, Browser]) -> Browser:
    return shown[1]


def rows(page: str) -> list[str]:
    """The lines of a table as text."""
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL)]


def test_a_share_and_a_return_are_told_apart_by_name_and_unit(browser: Browser) -> None:
    told = {row.split()[0]: row for row in rows(browser.get("/runs").text)}
    assert "Success 50 %" in told["math-0"]
    assert "Return 450" in told["pole-2"]
    assert "%" not in told["pole-2"]


def test_runs_are_grouped_by_what_they_have_in_common_or_by_a_setting(browser: Browser) -> None:
    groups = [row for row in rows(browser.get("/runs?group=experiment").text) if "mean of" in row or row[:2] == "=1"]
    assert "math 2 – Success 37.5 %, mean of 2" in groups
    by_rate = browser.get("/runs?group=algorithm.optimizer.learning_rate&kind=train").text
    names = re.findall(r'<th scope="rowgroup"[^>]*>([^<]+) <small>', by_rate)
    assert {"1e-05", "2e-05"} <= set(names)
    assert re.findall(r'scope="rowgroup"[^>]*>([^<]+) <small>', browser.get("/runs?group=no.such").text) == ["–"]


def test_ticked_runs_are_compared_by_settings_results_and_curves(browser: Browser) -> None:
    text = browser.get("/runs").text
    assert re.findall(r'type="checkbox" name="run" value="([^"]+)"', text)[-1] == "math-0"
    page = browser.get("/compare/runs?run=math-0&run=math-1").text
    (setting,) = [row for row in rows(page) if row.startswith("algorithm.optimizer")]
    assert setting == "algorithm.optimizer.learning_rate 1e-05 2e-05"
    assert any(row.startswith("math-1 running Success 25 %") for row in rows(page))
    assert 'data-runs="[&#34;math-0&#34;, &#34;math-1&#34;]"' in page
    assert "needs two runs" in browser.get("/compare/runs?run=math-0").text


def test_an_export_has_what_is_ticked_or_listed_with_settings_and_evaluations(
    shown: tuple[RecordSource, Browser],
) -> None:
    source, browser = shown
    record_evaluation(source.db, replace(evaluation("math-0", "after", 0.4, 1.0), policy=None))
    answer = browser.get("/runs.csv?run=math-0&run=math-1")
    assert answer.headers["content-disposition"] == 'attachment; filename="runs.csv"'
    first, second = csv.DictReader(io.StringIO(answer.text))
    assert (first["run"], first["result"], first["value"]) == ("math-0", "success", "0.5")
    assert (first["evaluation"], first["attempts"], second["evaluation"]) == ("0.4", "200", "")
    assert second["algorithm.optimizer.learning_rate"] == "2e-05"
    assert "algorithm.kind" not in first, "settings that all have are no columns"
    listed = browser.get("/runs.json?kind=train&text=pole").json()
    assert [(each["run"], each["result"]) for each in listed] == [("pole-2", "return")]
    assert listed[0]["settings"]["kind"] == "control"
    every = list(csv.DictReader(io.StringIO(browser.get("/runs.csv").text)))
    assert {each["run"] for each in every} == {"math-0", "math-1", "pole-2", "'=1+1"}, "no cell is a formula"


def test_too_many_runs_are_refused_and_never_cut(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomrl.console.run_table.MOST_EXPORTED", 2)
    answer = browser.get("/runs.csv")
    assert (answer.status_code, "More than 2 runs" in answer.text) == (400, True)
