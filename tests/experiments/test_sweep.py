"""Sweeps as Tune runs them: who goes on, what is on record, and what a kill costs."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from loomrl.config.sweep import Sweep
from loomrl.errors import ConfigError, StoreError
from loomrl.experiments import sweep as sweep_module
from loomrl.experiments.sweep import SweepResult, resumed, sweep
from loomrl.load import dump
from loomrl.store import open_store
from loomrl.store.runs import POLICIES, RUNS, Run, RunStatus
from loomrl.telemetry.sink import read_metrics
from tests.algorithms.control_support import MARKS
from tests.experiments.sweep_samples import control, language

pytestmark = [pytest.mark.system]
IN_PROCESS = MARKS
RATE = "algorithm.learning_rate"


def runs_of(asked: Sweep) -> list[Run]:
    with open_store(asked.experiment.store_url) as db:
        return RUNS.latest(db, limit=1000)


def lines_of(asked: Sweep, run: str) -> list[float]:
    return [line["step"] for line in read_metrics(Path(asked.experiment.train.folder) / run / "metrics.jsonl")]


def on_record(asked: Sweep, result: SweepResult) -> None:
    """Every trial is one run that has ended, with its own experiment and metrics, and no run is another's."""
    runs = {run.id: run for run in runs_of(asked)}
    parent = runs.pop(result.sweep)
    assert (parent.kind, parent.status, parent.name) == ("sweep", RunStatus.FINISHED, asked.name)
    assert sorted(run for trial in result.trials for run in trial.runs) == sorted(runs)
    for trial in result.trials:
        assert runs[trial.run].status is RunStatus.FINISHED
        assert runs[trial.run].experiment == asked.at(trial.changes).sha256
        assert lines_of(asked, trial.run)[-1] == trial.done


@pytest.mark.usefixtures("ray_cluster", "one_thread", "control_environments")
class TestInOneRay:
    pytestmark = IN_PROCESS

    @pytest.mark.slow
    def test_optuna_draws_and_asha_stops_the_worse_trials(self, tmp_path: Path) -> None:
        space = {RATE: {"kind": "loguniform", "low": 1e-7, "high": 3e-2}}
        asha = {"kind": "asha", "grace": 512, "factor": 2}
        asked = control(tmp_path, samples=4, scheduler=asha, search={"kind": "optuna"}, space=space, concurrency=2)
        result = sweep(asked, run="s")
        scores = [trial.score for trial in result.trials]
        assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]
        stopped = [trial for trial in result.trials if trial.stopped == "stopped by asha"]
        assert stopped
        assert all(trial.done < 2048 for trial in stopped)
        assert result.trials[0].done >= 2048
        assert len({trial.changes[RATE] for trial in result.trials}) == 4
        on_record(asked, result)
        names = [group.get("id", "") for group in ET.parse(result.picture).iter("{http://www.w3.org/2000/svg}g")]
        assert sum(f"; {result.metric} " in name for name in names) == 4

    @pytest.mark.slow
    def test_pbt_lets_a_bad_trial_go_on_from_a_good_ones_version(self, tmp_path: Path) -> None:
        path = "algorithm.optimizer.learning_rate"
        space = {path: {"kind": "grid", "values": [1e-7, 1e-2]}}
        pbt = {"kind": "pbt", "interval": 4, "quantile": 0.5}
        asked = language(tmp_path, samples=1, scheduler=pbt, space=space, window=2, name="p")
        result = sweep(asked, run="p")
        on_record(asked, result)
        taken = [run for run in runs_of(asked) if run.parent_policy is not None]
        assert len(taken) == 1
        with open_store(asked.experiment.store_url) as db:
            version = POLICIES.require(db, str(taken[0].parent_policy))
            first = POLICIES.latest(db, run=taken[0].id)[-1]
        assert first.parent == version.id
        assert first.number == version.number == 4
        assert version.run != taken[0].id
        (trial,) = [trial for trial in result.trials if taken[0].id in trial.runs]
        left, last = trial.runs
        assert (lines_of(asked, left), lines_of(asked, last)) == ([1, 2, 3, 4], [5, 6, 7, 8])
        before = read_metrics(Path(asked.experiment.train.folder) / left / "metrics.jsonl")[-1]["success"]
        assert read_metrics(Path(asked.experiment.train.folder) / last / "metrics.jsonl")[0]["success"] > before

    def test_trials_that_do_not_fit_at_once_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"concurrency=5: .* Ray has 4 in all\. Set concurrency=4"):
            sweep(control(tmp_path, concurrency=5))
        with pytest.raises(ConfigError, match=r"1 trials with 9 CPU each .* Ask for less"):
            sweep(control(tmp_path, space={"rollout.runners": {"kind": "choice", "values": [0, 8]}}))

    def test_optuna_that_is_missing_is_named_with_how_to_get_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sweep_module, "find_spec", lambda name: None)
        with pytest.raises(ConfigError, match=r"pip install 'loomrl\[sweep\]'"):
            sweep(control(tmp_path, search={"kind": "optuna"}))


def begun(words: list[str], folder: Path) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "loomrl", "sweep", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(folder: Path, trials: int, process: Any) -> None:
    """Until so many trials have told something, the last of them a few times."""
    while process.poll() is None:
        told = [file.read_bytes().count(b"\n") for file in folder.glob("runs/k-*/metrics.jsonl")]
        if len(told) >= trials and min(told) >= 2:
            return
        time.sleep(0.01)
    pytest.fail(f"the sweep ended too early:\n{process.communicate()[1][-3000:]}")


@pytest.mark.slow
def test_killed_sweep_goes_on_and_counts_no_trial_twice(tmp_path: Path) -> None:
    grid = {RATE: {"kind": "grid", "values": [1e-9, 1e-3, 3e-3]}}
    asked = control(tmp_path, name="k", samples=1, space=grid, budget=4096, concurrency=2)
    (file := tmp_path / "k.yaml").write_text(dump(asked))
    process = begun([str(file), "--run", "k"], tmp_path)
    wait_for(tmp_path, 2, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    known = {run.id for run in runs_of(asked)}
    again = begun([str(file), "--resume", "--json"], tmp_path)
    out, error = again.communicate(timeout=200)
    assert again.returncode == 0, error[-3000:]
    result = json.loads(out.splitlines()[-1])
    assert result["sweep"] == "k"
    assert len(result["trials"]) == 3
    assert len({trial["run"] for trial in result["trials"]}) == 3
    runs = {run.id: run for run in runs_of(asked)}
    assert known < set(runs) or known == set(runs)
    assert {trial["run"] for trial in result["trials"]} | {"k"} == {
        run.id for run in runs.values() if run.status is RunStatus.FINISHED
    }
    assert all("noted" in run.result["error"] for run in runs.values() if run.status is not RunStatus.FINISHED)
    for trial in result["trials"]:
        steps = lines_of(asked, trial["run"])
        assert steps == sorted(set(steps))
        assert steps[-1] == trial["done"] >= 4096
    with pytest.raises(StoreError, match="was started with experiment"):
        sweep(Sweep.parse(asked.model_dump() | {"seed": 5}), run="k")


def test_resuming_what_never_began_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no sweep of 'identity'"):
        resumed(control(tmp_path, name="identity"), None)
