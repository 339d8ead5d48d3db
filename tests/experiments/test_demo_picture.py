"""A policy learns from pictures, and only from what is on them."""

from pathlib import Path
from typing import Any

import pytest

from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import TrainResult, train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]


def run(folder: Path, *, blind: bool) -> TrainResult:
    experiment = resolve(["language/picture_tiny"])
    (environment,) = experiment.model_dump()["environments"]
    environment["settings"] = {**environment["settings"], "blind": blind}
    places: dict[str, Any] = {
        "store_url": f"sqlite:///{folder}/loom.db",
        "artifact_url": str(folder / "artifacts"),
        "train.folder": str(folder / "runs"),
        "environments": [environment],
    }
    return train(experiment.override(places), run="r")


def test_a_policy_that_sees_learns_the_colour_and_one_that_is_blind_stays_at_chance(tmp_path: Path) -> None:
    seeing, blind = run(tmp_path / "seeing", blind=False), run(tmp_path / "blind", blind=True)
    assert seeing.before["greedy"] <= 0.45
    assert seeing.after["greedy"] >= 0.60
    assert blind.after["greedy"] <= 0.22, "one of eight colours, and some luck in 200 tasks"
