"""On the command line: a data set is frozen and shown, a run is trained on it, killed, and resumed unharmed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from loomrl.config import Experiment
from loomrl.experiments.cli import app
from loomrl.experiments.train import resumed, train
from loomrl.inference.model import open_model
from loomrl.run.version import copied, latest_of
from loomrl.store import open_store
from loomrl.store.runs import POLICIES
from tests.algorithms.language_support import ASCII
from tests.feedback.served_support import frozen_production, store, url
from tests.feedback.test_dataset import session

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]


def told(*words: str, folder: Path, code: int = 0) -> Any:
    """The JSON that a command prints, or its error."""
    done = CliRunner().invoke(app, [*words, "--store", url(folder), "--json"])
    if code:
        return str(done.exception)
    assert done.exit_code == 0, done.output
    return json.loads(done.output.splitlines()[-1])


def test_data_set_is_frozen_listed_and_shown(tmp_path: Path) -> None:
    store(tmp_path, "agent-7", [session(f"s{n}", domain=("coding", "writing")[n % 2]) for n in range(6)])
    made = told("data", "freeze", 'agents=["7"]', "holdout=0", "limit=4", folder=tmp_path)
    assert made["id"].startswith("7-")
    assert (made["sizes"], made["counts"]) == ({"train": 4, "holdout": 0}, {"limit": 2})
    assert [one["id"] for one in told("data", "list", folder=tmp_path)["datasets"]] == [made["id"]]
    assert not told("data", "list", "--trajectory", "nobody", folder=tmp_path)["datasets"]
    shown = told("data", "show", "7", "--rows", folder=tmp_path)
    assert shown["domains"] == {"coding": {"train": 2, "holdout": 0}, "writing": {"train": 2, "holdout": 0}}
    assert (shown["with_ids"], shown["with_reward"], shown["feedback"], shown["versions"]) == (4, 0, {}, [])
    assert len(shown["rows"]) == 4
    assert "min_rewards" in told("data", "freeze", 'agents=["7"]', "min_rewards=1", folder=tmp_path, code=1)
    assert "min_reward left out" not in (wrong := told("data", "freeze", "a", "min_reward=1", folder=tmp_path, code=1))
    assert "'a'" in wrong


def experiment(folder: Path, dataset: str) -> Experiment:
    """Eight updates, a checkpoint after every second."""
    return Experiment.parse(
        {
            "name": "served",
            "seed": 1,
            "environments": [{"id": ASCII}],
            "data": {"dataset": dataset, "batch": 8, "epochs": 2},
            "algorithm": {"kind": "kto", "model": {"context": 128}, "sampling": {"max_tokens": 6}},
            "train": {"updates": 8, "checkpoint_every": 2, "folder": str(folder / "runs")},
            "evaluation": {"episodes": 8, "levels": [1]},
            "store_url": url(folder),
            "artifact_url": str(folder / "artifacts"),
        }
    )


def weights(folder: Path, run: str) -> dict[str, np.ndarray]:
    with open_store(url(folder)) as db:
        version = latest_of(run, db)
        assert version is not None
        checkpoint = copied(version, db)
    try:
        return {name: tensor.numpy() for name, tensor in open_model(checkpoint / "model").state_dict().items()}
    finally:
        shutil.rmtree(checkpoint.parent)


def kill_after_an_update(file: Path, folder: Path) -> None:
    """SIGKILL a training process after its next update."""
    metrics = folder / "runs" / "killed" / "metrics.jsonl"

    def lines() -> int:
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    before = lines()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-m", "loomrl", "train", str(file), "--run", "killed"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
    while lines() == before and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_run_trains_on_nothing_twice_and_equals_one_that_never_stopped(
    tmp_path: Path, ray_cluster: None
) -> None:
    dataset = frozen_production(tmp_path, "assistant")
    settings = experiment(tmp_path, "assistant")
    (tmp_path / "e.yaml").write_text(json.dumps(settings.plain))
    for _ in range(3):
        kill_after_an_update(tmp_path / "e.yaml", tmp_path)
    again, run = resumed(settings, "killed")
    assert train(again, run=run).updates == train(settings, run="whole").updates == 8
    killed, whole = weights(tmp_path, "killed"), weights(tmp_path, "whole")
    assert all(np.array_equal(killed[name], whole[name]) for name in whole)
    with open_store(url(tmp_path)) as db:
        versions = POLICIES.latest(db, run="killed")
        assert [version.number for version in versions] == [8, 6, 4, 2, 0]
        assert versions[-1].parent == "served/0"
        assert {version.data["dataset"] for version in versions} == {dataset}
