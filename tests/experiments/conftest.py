"""The warm start of the smallest language experiment, which is most of a training's time, once for all tests."""

import fcntl
import os
from pathlib import Path

import pytest

from loomrl.artifacts import open_artifacts
from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import train
from tests.experiments.runs import places


@pytest.fixture(scope="session")
def warm_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`language/math_tiny` after its warm start, before any reinforcement: a model's folder."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder, made = shared / "warm", shared / "warm" / "checkpoint"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            short = {"train.updates": 1, "train.checkpoint_every": 1, "evaluation.episodes": 1}
            experiment = resolve(["language/math_tiny"]).override(places(folder) | short)
            train(experiment, run="warm")
            open_artifacts(experiment.artifact_url).get_folder("runs/warm/000000", made)
    return made / "model"


@pytest.fixture(scope="session")
def warm(warm_model: Path) -> dict[str, object]:
    """Settings with which `language/math_tiny` and its like begin after their warm start."""
    return {
        "algorithm.model.path": str(warm_model),
        "algorithm.model.build": None,
        "algorithm.warm_start.steps": 0,
    }
