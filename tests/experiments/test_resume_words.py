"""Which run is resumed where none is named, what is said where a word is missing, and how a broken-off run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loomrl.config import ControlExperiment, Experiment
from loomrl.errors import ConfigError, StoreError
from loomrl.experiments.cli import app
from loomrl.experiments.shipped import assumed, resolve
from loomrl.experiments.train import how_to_resume, resumed
from loomrl.load import parse_assignments
from loomrl.run.record import begin_run
from loomrl.store import LoomDB, open_store
from loomrl.store.runs import BY_A_PERSON, RunStatus, finish_run
from tests.algorithms.language_support import experiment
from tests.command_line import typed


@pytest.fixture
def db(tmp_path: Path):
    with open_store(f"sqlite:///{tmp_path}/loom.db") as opened:
        yield opened


def begun(db: LoomDB, settings: Experiment | ControlExperiment, id: str, stopped: str | None = None) -> None:
    """A training on record: killed, or ended for this reason."""
    begin_run(db, settings, {}, id=id, kind="train")
    if stopped is not None:
        finish_run(db, id, status=RunStatus.FINISHED, finished_at=time.time(), result={"stopped": stopped})


def test_without_a_name_the_latest_training_that_is_not_over_is_resumed(tmp_path: Path, db: LoomDB) -> None:
    mine, other = experiment(tmp_path), experiment(tmp_path, name="other")
    begun(db, mine, "killed")
    begun(db, other, "stopped", f"{BY_A_PERSON}ann: enough")
    begun(db, other, "over", "all 6 updates done")
    default = experiment(tmp_path, name="math_tiny")
    assert resumed(default, None, of_any_name=True)[1] == "stopped"
    again, run = resumed(mine, None)
    assert (run, again.name) == ("killed", "small")
    with pytest.raises(ConfigError, match=r"no run of 'math_tiny' in .*Runs there: over \(finished\), stopped"):
        resumed(default, None)


def test_runs_that_are_over_are_listed_and_resumed_for_longer_alone(tmp_path: Path, db: LoomDB) -> None:
    settings = experiment(tmp_path)
    begun(db, settings, "first", "all 6 updates done")
    begun(db, settings, "second", "all 6 updates done")
    with pytest.raises(
        ConfigError, match=r"every run is over: second \(finished\), first.*--run second train\.updates="
    ):
        resumed(settings, None, of_any_name=True)
    longer, run = resumed(settings, None, parse_assignments(["train.updates=9"]), of_any_name=True)
    assert (run, longer.train.updates) == ("second", 9)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("language", ["algorithm.learners.count=2", "rollout.runners=3", "train.updates=9", "placement.wait_s=7"]),
        ("control", ["learners.count=2", "train.folder=elsewhere"]),
    ],
)
def test_a_run_is_resumed_with_other_processes_elsewhere_and_for_longer_alone(
    db: LoomDB, tmp_path: Path, kind: str, changes: list[str]
) -> None:
    settings = experiment(tmp_path) if kind == "language" else resolve(["control/cartpole"])
    begun(db, settings, "r")
    for change in changes:
        begun(db, settings.override(dict([change.split("=")])), "r")
    with pytest.raises(StoreError, match="seed=9, which was"):
        begun(db, settings.override({"seed": 9}), "r")


def test_a_run_that_was_broken_off_says_how_to_go_on(tmp_path: Path, db: LoomDB) -> None:
    settings = experiment(tmp_path)
    assert "before the run began" in how_to_resume(settings, "r")
    begun(db, settings, "r")
    assert how_to_resume(settings, "r").endswith(
        f"loomrl train --resume --run r store_url=sqlite:///{tmp_path}/loom.db"
    )


def test_what_is_assumed_is_said() -> None:
    told = "no experiment was named, so it is language/math_tiny with these settings"
    assert assumed(["seed=2"], default="language/math_tiny") == told
    assert str(assumed(["kind=control"])).startswith("no experiment was named, so it is control/cartpole")
    assert assumed([]) == "no experiment was named, so it is math"
    assert assumed(["mine.yaml", "seed=2"]) is None
    assert assumed(["environments=[{id: Code}]"]) is None, "what is judged was said"


def test_an_evaluation_of_nothing_is_refused_and_an_unnamed_policy_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="nothing to evaluate"):
        typed("evaluate")
    words = ["evaluate", "evaluation.episodes=2", "environments.0.families=[algebra.linear]"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "no policy was named, so it is the environments' oracle" in done.stderr
    assert "no experiment was named, so it is math" in done.stderr


@pytest.mark.slow
@pytest.mark.system
def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    settings = experiment(tmp_path, **{"train.updates": 100_000})
    (tmp_path / "e.yaml").write_text(json.dumps(settings.model_dump(mode="json")))
    metrics = tmp_path / "runs" / "r" / "metrics.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "loomrl", "train", str(tmp_path / "e.yaml"), "--run", "r"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=os.environ | {"PYTHONPATH": str(Path.cwd())},
    )  # fmt: skip
    while process.poll() is None and not (metrics.exists() and metrics.read_bytes()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "Resume it from r/0 with: loomrl train --resume --run r" in said or "from r/" in said
    assert said.rstrip().splitlines()[-1].endswith(f"--resume --run r store_url={settings.store_url}")
