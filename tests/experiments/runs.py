"""Where tests keep their runs, what is compared of two of them, and how one is killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from loomrl.config import AnyExperiment, ControlExperiment
from loomrl.control.team_policy import load_each
from loomrl.experiments.train import Listener, train
from loomrl.run.ledger import VersionLedger
from loomrl.run.version import copied, find_version
from loomrl.store import open_store
from loomrl.store.runs import ask_to_stop
from loomrl.telemetry.sink import metrics_file, read_metrics
from tests.algorithms.control_support import same


def places(folder: Path) -> dict[str, Any]:
    """Settings that keep everything in this folder."""
    return {
        "store_url": f"sqlite:///{folder}/loom.db",
        "artifact_url": str(folder / "artifacts"),
        "train.folder": str(folder / "runs"),
    }


def history(settings: AnyExperiment, run: str) -> list[dict[str, float]]:
    """Metrics, without what the clock says."""
    rows = read_metrics(metrics_file(settings.train, run))
    return [{name: v for name, v in row.items() if not name.startswith(("time", "throughput"))} for row in rows]


def weights(settings: AnyExperiment, version: str) -> dict[str, Any]:
    """All that the learner, or in control the policy, has in the last version of a run, or in that of a number."""
    with open_store(settings.store_url) as db:
        found = find_version(version, db)
        assert found is not None
        checkpoint = copied(found, db)
    try:
        if isinstance(settings, ControlExperiment):
            parts = load_each(checkpoint / "policy").items()
            return {f"{part.name}/{key}": value for part, one in parts for key, value in one.net.state_dict().items()}
        state: dict[str, Any] = torch.load(checkpoint / "state.pt", weights_only=True)["learner"]["module"]
        return state
    finally:
        shutil.rmtree(checkpoint.parent)


def assert_same(settings: AnyExperiment, one: str, other: str) -> None:
    """Bit for bit."""
    assert same(weights(settings, one), weights(settings, other))


def stop_at(settings: AnyExperiment, run: str, least: int = 0) -> Listener:
    """A listener that asks the run to stop once it has come so far."""

    def ask(done: int, metrics: Mapping[str, float]) -> None:
        if done >= least:
            with open_store(settings.store_url) as db:
                ask_to_stop(db, run, who="ann", why="enough", at=1.0)

    return ask


def assert_goes_on(settings: AnyExperiment, patch: pytest.MonkeyPatch) -> None:
    """A run that breaks off at its third checkpoint and is resumed equals one that never did."""
    train(settings, run="whole")
    commit = VersionLedger.commit
    calls = 0

    def breaks_off(ledger: VersionLedger, *checkpoint: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return commit(ledger, *checkpoint)

    patch.setattr(VersionLedger, "commit", breaks_off)
    with pytest.raises(KeyboardInterrupt):
        train(settings, run="parts")
    patch.setattr(VersionLedger, "commit", commit)
    train(settings, run="parts")
    assert_same(settings, "parts", "whole")
    assert history(settings, "parts") == history(settings, "whole")


ALONE = """
import json, sys
from loomrl.config import parse_experiment
from loomrl.experiments.train import train

run, *lines = sys.stdin
for line in lines:
    train(parse_experiment(json.loads(line), origin="stdin"), run=run.strip())

import psutil, ray
assert not ray.is_initialized() and not psutil.Process().children()
print(*sys.modules)
"""


def train_without_ray(*experiments: AnyExperiment, run: str) -> set[str]:
    """Train these, one after the other, in a process that starts no other and no Ray; returns its modules."""
    lines = "".join(json.dumps(each.plain) + "\n" for each in experiments)
    env = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", ALONE]
    done = subprocess.run(command, input=f"{run}\n{lines}", capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return set(done.stdout.splitlines()[-1].split())


def kill_after_an_update(folder: Path, run: str, *words: str, delay_s: float = 0.0) -> None:
    """SIGKILL a training process some time after its next update."""
    metrics = folder / "runs" / run / "metrics.jsonl"

    def lines() -> int:
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    before = lines()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "loomrl", "train", *words, "--run", run],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(Path.cwd())])},
    )
    while lines() == before and process.poll() is None:
        time.sleep(0.002)
    time.sleep(delay_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
