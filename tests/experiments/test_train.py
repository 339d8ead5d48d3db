import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from experiments.train import TrainResult, train
from loomrl.artifacts import open_artifacts
from loomrl.config import Experiment, HubConfig
from loomrl.errors import StoreError
from loomrl.hub import GroupPlan, open_hub
from loomrl.store import beside, open_store
from loomrl.store.policies import list_policies
from loomrl.store.runs import RunStatus, show_run

UPDATES = 12
KILLS = 5


def experiment(folder: Path, **changes: Any) -> Experiment:
    base = Experiment(
        name="tiny",
        environments=({"id": "Math", "families": ["algebra.linear"]},),
        train={"updates": UPDATES},
        rollout={"groups_per_update": 4, "group_size": 4},
        hub={"lease_s": 5.0},
        store_url=f"sqlite:///{folder}/loom.db",
        artifact_url=str(folder / "artifacts"),
    )
    return base.override(changes)


def checkpoint(folder: Path, run: str, number: int = UPDATES) -> dict[str, Any]:
    data = open_artifacts(str(folder / "artifacts")).get(f"runs/{run}/checkpoint-{number:06d}")
    state: dict[str, Any] = json.loads(data)
    return {"learner": state["learner"], "curriculum": state["curriculum"], "update": state["update"]}


def test_training_learns_and_records_every_version_with_its_parent(tmp_path: Path) -> None:
    result: TrainResult = train(experiment(tmp_path, **{"train.updates": 20}), run="r")
    assert result.success[0] < 0.6
    assert min(result.success[-3:]) > 0.85
    db = open_store(f"sqlite:///{tmp_path}/loom.db")
    versions = list_policies(db, run="r")
    assert [v.number for v in versions] == list(range(20, 0, -1))
    assert [v.parent for v in versions] == [*(f"r/{n}" for n in range(19, 0, -1)), None]
    assert show_run(db, "r").status is RunStatus.FINISHED
    db.close()


def test_same_seed_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    for run, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(experiment(tmp_path, seed=seed), run=run)
    assert checkpoint(tmp_path, "a") == checkpoint(tmp_path, "b") != checkpoint(tmp_path, "c")


def test_training_stops_at_its_target(tmp_path: Path) -> None:
    result = train(experiment(tmp_path, **{"train.updates": 100, "train.target_success": 0.9}))
    assert result.success[-1] >= 0.9 > result.success[-2]
    assert result.updates < 100


def test_resuming_with_another_experiment_is_refused(tmp_path: Path) -> None:
    train(experiment(tmp_path), run="r")
    with pytest.raises(StoreError, match="Resume it with the experiment it began with"):
        train(experiment(tmp_path, seed=9), run="r")


def test_run_goes_on_under_other_code_and_each_version_keeps_the_code_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in ("first", "second"):
        monkeypatch.setattr("experiments.train.code_revision", lambda code=code: code)
        assert train(experiment(tmp_path), run="r").updates == UPDATES
    db = open_store(f"sqlite:///{tmp_path}/loom.db")
    assert {version.code for version in list_policies(db, run="r")} == {"first"}
    db.close()


def kill_after_a_checkpoint(words: list[str], folder: Path, delay_s: float) -> None:
    """SIGKILL a training process, somewhere in the work between one checkpoint and the next."""

    def staged() -> int:
        return len(list(folder.glob("artifacts/runs/killed/*")))

    before = staged()
    process = subprocess.Popen([sys.executable, "-m", "loomrl", *words], cwd=folder, stderr=subprocess.DEVNULL)
    while staged() == before and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.system
def test_run_that_is_killed_again_and_again_equals_one_that_never_stopped(tmp_path: Path) -> None:
    words = ["train", str(tmp_path / "e.yaml"), "--run", "killed", "--json"]
    (tmp_path / "e.yaml").write_text(json.dumps(experiment(tmp_path).model_dump(mode="json")))
    rng = random.Random(0)
    for _ in range(KILLS):
        kill_after_a_checkpoint(words, tmp_path, rng.uniform(0, 0.06))
    done = subprocess.run([sys.executable, "-m", "loomrl", *words], cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1])["updates"] == UPDATES
    train(experiment(tmp_path), run="whole")
    assert checkpoint(tmp_path, "killed") == checkpoint(tmp_path, "whole")
    with open_hub(beside(f"sqlite:///{tmp_path}/loom.db", "killed"), HubConfig()) as hub:
        line = hub.stats().environments["Math"]
        acked = [t.id for _, t in hub.replay()]
    assert len(acked) == len(set(acked)) == UPDATES * 16 == line.trajectories
    assert (line.acked, line.open + line.ready + line.leased) == (UPDATES * 4, 0)


def test_killed_neighbour_does_not_hold_up_a_run(tmp_path: Path) -> None:
    whole = experiment(tmp_path)
    with open_hub(beside(whole.store_url, "dead"), whole.hub, groups_per_update=4) as hub:
        hub.open([GroupPlan(f"dead/{i}", "Math", 4, 0) for i in range(4)])
    assert train(whole, run="alive").updates == UPDATES


def test_training_runs_on_postgresql_with_sharded_hubs(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(postgres_url)
    monkeypatch.setenv("PGPASSWORD", str(url.password))
    stores = {"store_url": postgres_url.replace(f":{url.password}@", "@"), "hub.shards": 2, "train.updates": 3}
    assert train(experiment(tmp_path, **stores), run="r").updates == 3
    db = open_store(postgres_url)
    assert [v.number for v in list_policies(db, run="r")] == [3, 2, 1]
    db.close()
