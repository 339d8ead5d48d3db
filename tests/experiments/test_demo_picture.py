"""A policy learns from pictures, and only from what is on them."""

from pathlib import Path

import pytest

from loomrl.experiments.shipped import resolve
from loomrl.experiments.train import TrainResult, train
from tests.algorithms.language_support import QUIET
from tests.experiments.runs import places

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    QUIET,
]


def run(folder: Path, *, blind: bool) -> TrainResult:
    experiment = resolve(["language/picture_tiny"])
    (environment,) = experiment.model_dump()["environments"]
    environment["settings"] = {**environment["settings"], "blind": blind}
    return train(experiment.override(places(folder) | {"environments": [environment]}), run="r")


def test_a_policy_that_sees_learns_the_colour_and_one_that_is_blind_stays_at_chance(tmp_path: Path) -> None:
    seeing, blind = run(tmp_path / "seeing", blind=False), run(tmp_path / "blind", blind=True)
    assert seeing.before["greedy"] <= 0.45
    assert seeing.after["greedy"] >= 0.60
    assert blind.after["greedy"] <= 0.22, "one of eight colours, and some luck in 200 tasks"
