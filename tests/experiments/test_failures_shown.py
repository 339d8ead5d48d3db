"""Attempts that failed stand beside every figure, with their cause and remedy: a broken set-up is no success."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from loomrl import EvaluationPipeline
from loomrl.console.comparison import comparison_table, headlines
from loomrl.evaluation.report import judge
from loomrl.experiments.cli import app
from loomrl.experiments.commands.train import render_sweep
from loomrl.experiments.sweep import SweepResult, Tried
from loomrl.experiments.train import TrainResult, render
from loomrl.gym.catalogue import make
from loomrl.store import open_store
from loomrl.store.policies import EVALUATIONS
from loomrl.store.runs import RUNS, Run
from loomrl.telemetry.report import Comparison
from loomrl.types import End, Failure, Reward, Task, Trajectory, Turn

REMEDY = "apt-get install stockfish"
NO_ENGINE = "environments=[{id: Game, families: [%s], settings: {stockfish: /nowhere}}]"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def evaluated(*words: str, code: int) -> Any:
    done = CliRunner().invoke(app, ["evaluate", "--episodes", "6", *words], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def test_an_evaluation_of_which_some_attempts_failed_says_so_and_is_no_success() -> None:
    half = NO_ENGINE % "chess, puzzle.hanoi"
    done = evaluated(half, code=1)
    for part in ("1.000", "3 failed", REMEDY):
        assert part in done.stdout
    assert "3 of 6 attempts by oracle failed" in done.stderr
    assert "3 failed" in evaluated(half, "evaluation.may_fail=0.5", code=0).stdout, "such a share is allowed"
    result = json.loads(evaluated(half, "evaluation.may_fail=0.49", "--json", code=1).stdout)
    report = result["policies"]["oracle"]
    assert report["overall"]["failures"] == 3
    assert report["failures"] == {"config: ConfigError": 3}
    assert REMEDY in report["causes"]["config: ConfigError"]
    with open_store("sqlite:///loom.db") as db:
        assert RUNS.require(db, result["run"]).result["failures"] == {"oracle": {"config: ConfigError": 3}}
        assert EVALUATIONS.latest(db)[0].report == report


def test_an_evaluation_of_which_everything_failed_claims_nothing() -> None:
    done = evaluated(NO_ENGINE % "chess", "evaluation.may_fail=0.99", code=1)
    assert "–  6 failed" in done.stdout
    assert REMEDY in done.stdout


def test_no_sandbox_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt-get install bubblewrap" in evaluated("--env", "Code", code=1).stdout


def test_a_pipeline_warns_of_attempts_that_failed_and_keeps_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = EvaluationPipeline(make("Game", {"stockfish": "/nowhere"}), log_dir=tmp_path, levels=(1,))
    result = pipeline.evaluate(num_episodes=28, policy="oracle")
    assert result.report.overall.failures
    (record,) = pipeline.history()
    assert record["failed"] == result.report.failed > 0
    assert REMEDY in caplog.text
    assert "success is over the others" in caplog.text
    assert b"failed and are left out" in pipeline.plot_learning_curve(tmp_path / "curve.svg").read_bytes()


def attempt(index: int, *, failed: bool) -> Trajectory:
    return Trajectory(
        id=f"t{index}",
        task=Task("Math", "1.0.0", "a", 1, index),
        turns=(Turn((), "x"),),
        end=End.FAILED if failed else End.TERMINATED,
        reward=Reward() if failed else Reward(1.0, {}, 1.0),
        group="g",
        failure=Failure("sandbox", "SandboxError", f"no box; {REMEDY}") if failed else None,
    )


RUN = Run(id="r", name="r", kind="train", experiment="e", resolved="", code="", environments={}, started_at=0.0)


def compared(failed: int) -> Comparison:
    report = judge("p", [attempt(index, failed=index < failed) for index in range(4)]).as_dict()
    return Comparison(name="greedy", before=report, after=report)


def trained(comparison: Comparison, after: dict[str, float | None]) -> TrainResult:
    failed = comparison.after["overall"]["failures"]
    return TrainResult(
        run="r", updates=1, policy="r/1", best="r/1", stopped="all done", seconds=1.0, before=after, after=after,
        page="page", failed={"greedy": failed}, comparisons=(comparison,),
    )  # fmt: skip


def said(shown: Callable[..., None], what: object) -> str:
    console = Console(record=True, width=200)
    shown(what, console)
    return console.export_text()


def test_the_page_and_the_table_of_training_show_what_failed() -> None:
    comparison = compared(3)
    shown = comparison_table(comparison)
    assert any(REMEDY in note for note in shown.notes)
    (tile, *_) = headlines(RUN, [comparison], [], "updates")
    assert "3 failed" in tile.note
    table = said(render, trained(comparison, {"greedy": 1.0}))
    assert "3 failed" in table
    assert REMEDY in table
    assert not trained(comparison, {"greedy": 1.0}).is_unjudged
    assert trained(compared(4), {"greedy": None}).is_unjudged, "its last evaluation failed altogether"


def test_a_sweep_shows_beside_a_score_how_many_attempts_it_leaves_out() -> None:
    tried = Tried(run="s-1", changes={"a": 1}, score=0.5, done=3, stopped="end", runs=("s-1",), failed=1234)
    table = said(render_sweep, SweepResult("s", "success", "max", "updates", (tried,), 1.0, "sweep.svg"))
    assert "failed" in table
    assert "1,234" in table
