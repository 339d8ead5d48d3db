"""A run of several objectives from experiment to front, over the same doors as any other."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from loomrl.config import ControlExperiment, Weave
from loomrl.control.play import RandomPolicy, Scripted
from loomrl.control.policy import ControlPolicy
from loomrl.errors import EpisodeError
from loomrl.experiments.evaluate_control import as_result, evaluate_control, judge_control, judge_preferences, render
from loomrl.experiments.policies import exported
from loomrl.experiments.shipped import judged_words, resolve
from loomrl.experiments.train import train
from loomrl.load import load
from loomrl.store import open_store
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics
from tests.experiments.runs import places

ARMS, ROAD = (f"tests.algorithms.objective_envs:{name}" for name in ("Arms", "Road"))
FIXED = "algorithm={kind: weave, objectives: [a, b], preference: {kind: fixed, weights: [0.25, 0.75]}}"


def experiment(folder: Path, **changes: Any) -> ControlExperiment:
    base = ControlExperiment(
        name="arms",
        environment={"kind": "custom", "entry_point": ARMS},
        algorithm=Weave(
            objectives=("left", "right"),
            scalarisation={"kind": "chebyshev"},
            reference=(-1.0, -1.0),
            learning_rate=3e-3,
            minibatch_size=64,
            experts=2,
            critics=2,
        ),
        rollout={"steps": 32},
        train={"steps": 12_288, "checkpoint_every": 8192},
        evaluation={"every": 8192, "episodes": 2, "preferences": 11},
    )
    return base.override(places(folder) | changes)


@pytest.mark.system
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("ray_cluster", "one_thread")
@pytest.mark.slow
def test_a_front_is_learnt_kept_exported_and_shown(tmp_path: Path) -> None:
    asked = experiment(tmp_path)
    train(asked, run="arms")
    metrics = read_metrics(metrics_file(asked.train, "arms"))
    assert metrics[-1][Metric.FRONT_HYPERVOLUME] == pytest.approx(3.16)
    assert Metric.RETURN_OBJECTIVE.of("left") in metrics[-1]

    evaluated = evaluate_control(asked, ["arms", "random"])
    report, random = evaluated.reports
    np.testing.assert_allclose(report.front, [[0, 1], [0.4, 0.4], [1, 0]], atol=1e-6)
    # Between (0, 1) and (1, 0) of a square of side 2 three quarters lie below; the middle adds 0.4 squared.
    assert report.hypervolume == pytest.approx(3.16)
    assert random.hypervolume < 3.16
    assert as_result(evaluated)["policies"]["arms"]["by_preference"][0]["preference"] == (0.0, 1.0)
    console = Console(width=120, record=True, file=(tmp_path / "said").open("w"))
    render(evaluated, console)
    said = console.export_text()
    assert "hypervolume 3.16 from [-1.0, -1.0]" in said
    assert re.search(r"0.00 1.00 .* 0 +\[0, 0\] +1 +\[1, 1\] +yes", said)
    assert evaluated.picture == str(tmp_path / "runs" / evaluated.run / "front.svg")
    assert evaluated.picture in said.replace("\n", "")
    assert as_result(evaluated)["picture"] == evaluated.picture
    words = ["arms", f"store_url={asked.store_url}", "evaluation.preferences=3"]
    chosen, policies = judged_words([*words, f"evaluation.picture={tmp_path}/three.svg"], [])
    evaluate_control(chosen, policies)
    for file in (Path(evaluated.picture), tmp_path / "three.svg"):
        titles = ["".join(text.itertext()) for text in ET.parse(file).iter("{http://www.w3.org/2000/svg}text")]
        assert any(title.startswith("hypervolume 3.16 from (−1, −1)") for title in titles)

    with open_store(asked.store_url) as db:
        exported("arms", db, tmp_path / "out", onnx=True)
    policy = ControlPolicy.load(tmp_path / "out")
    taken = [policy.act(np.zeros(1, np.float32), preference=[left, 1 - left]) for left in (0.95, 0.5, 0.05)]
    assert [int(action) for action in taken] == [0, 1, 2]


def test_a_tree_is_judged_by_what_a_preference_weighs(tmp_path: Path) -> None:
    tree = {"task": {"progress": 0.2, "style": 0.8}, "harm": 1}
    asked = experiment(tmp_path, **{"environment.entry_point": ROAD, "algorithm.objectives": tree})
    assert asked.objectives == ("task", "harm")
    careful = Scripted(lambda shown: np.ones(len(shown["preference"]), np.int64))
    report = judge_preferences(careful, asked, name="careful", seed=0)
    assert report.objectives == ("task", "harm")
    np.testing.assert_allclose(report.front, [[0.2 * 0.6 + 0.8 * 0.5, -0.1]], rtol=1e-5)
    assert {len(steered.preference) for steered in report.by_preference} == {2}
    assert report.hypervolume == pytest.approx(1.52 * 0.9, rel=1e-5)


def test_an_objective_that_is_no_number_is_named_where_it_is_judged(tmp_path: Path) -> None:
    asked = experiment(tmp_path, **{"environment.settings": {"how": "nan"}})
    with pytest.raises(EpisodeError, match=r"\(objective right\): nothing can be judged"):
        judge_preferences(RandomPolicy(), asked, name="random", seed=0)


def test_a_fixed_preference_is_judged_by_that_one_alone() -> None:
    asked = load([], ["name=x", "kind=control", f"environment={{kind: custom, entry_point: '{ARMS}'}}", FIXED])
    report = judge_control(RandomPolicy(), asked, name="random")
    assert [steered.preference for steered in report.by_preference] == [(0.25, 0.75)]
    assert report.by_preference[0].returns[0].count == asked.evaluation.episodes


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("ray_cluster", "one_thread")
def test_all_treasures_of_the_concave_sea_are_found(tmp_path: Path) -> None:
    asked = resolve(["control/dst_concave"]).override(places(tmp_path))
    result = train(asked, run="sea")
    (report,) = evaluate_control(asked, [result.best]).reports
    assert report.hypervolume == pytest.approx(4255.0)
    assert len(report.front) == 10
