"""Settings that have been renamed: refused where they are given, read where they were recorded."""

import json
from pathlib import Path
from typing import Any

import pytest

from loomrl.algorithms.ppo import PPOConfig
from loomrl.config import ControlExperiment, ControlPPO, Experiment, RolloutConfig, parse_experiment
from loomrl.config.former import parse_recorded_sweep, renamed
from loomrl.errors import ConfigError
from loomrl.experiments.sweep_file import check, resolve_sweep
from loomrl.load import load, parse_assignments
from tests.experiments.sweep_samples import control

RAMP: dict[str, Any] = {"kind": "ramp", "begin": {"g": 1}, "gate": {"reward": 1}}
RENAMED = [
    (["rollout.actors=2"], "rollout.actors=2: this setting is called rollout.runners now"),
    (
        ["kind=control", "algorithm.minibatch=12"],
        "algorithm.minibatch=12: this setting is called algorithm.minib",
    ),
    (["kind=control", "algorithm={kind: weave, minibatch: 12}"], "is called algorithm.minibatch_size now"),
    (
        ["kind=control", f"curriculum={json.dumps(RAMP)}"],
        "curriculum.gate={'reward': 1}: this setting is called",
    ),
    (["curriculum.kind=progressive", "curriculum.gate.success=0.5"], "is called curriculum.threshold now"),
    (
        ["curriculum={kind: staged, stages: [{name: a, gate: {}}]}"],
        "curriculum.stages.0.gate={}: this setting is",
    ),
]


@pytest.mark.parametrize(("assignments", "said"), RENAMED, ids=[said for _, said in RENAMED])
def test_a_former_name_is_refused_with_the_new_one(assignments: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as by_command:
        load([], ["name=x", *assignments])
    assert said in str(by_command.value)
    file = tmp_path / "e.yaml"
    file.write_text(json.dumps(by_hand(assignments)))
    with pytest.raises(ConfigError) as by_file:
        load([file])
    assert said in str(by_file.value)


def by_hand(assignments: list[str]) -> dict[str, Any]:
    """The same settings as plain data."""
    return {"name": "x", **parse_assignments(assignments)}


def test_a_former_name_is_refused_in_python() -> None:
    with pytest.raises(ConfigError, match="actors=2: this setting is called runners now"):
        RolloutConfig(actors=2)
    with pytest.raises(ConfigError, match="minibatch=2: this setting is called minibatch_size now"):
        ControlPPO(minibatch=2)
    with pytest.raises(ConfigError, match="minibatch=64: this setting is called minibatch_size now"):
        PPOConfig().environment("CartPole-v1").training(minibatch=64).validate()


def test_a_former_name_is_refused_in_a_sweep(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    sweep = control(tmp_path, space={"algorithm.minibatch": {"kind": "choice", "values": [32]}})
    file.write_text(json.dumps(sweep.model_dump(mode="json")))
    with pytest.raises(ConfigError, match=r"this setting is called algorithm\.minibatch_size now"):
        check(resolve_sweep([str(file)]))


@pytest.mark.parametrize(
    ("older", "today"),
    [
        (
            {"rollout": {"actors": 3}, "curriculum": {"kind": "progressive", "gate": {"success": 0.5}}},
            {"rollout": {"runners": 3}, "curriculum": {"kind": "progressive", "threshold": {"success": 0.5}}},
        ),
        (
            {"kind": "control", "algorithm": {"minibatch": 12}, "environment": {"settings": {"g": 2, "gate": 1}}},
            {"kind": "control", "algorithm": {"minibatch_size": 12}, "environment": {"settings": {"g": 2, "gate": 1}}},
        ),
    ],
)
def test_a_recorded_experiment_is_the_same_under_new_names(older: dict[str, Any], today: dict[str, Any]) -> None:
    read = parse_experiment({"name": "x", **older}, origin="run r", recorded=True)
    assert read.sha256 == parse_experiment({"name": "x", **today}, origin="settings").sha256


def test_a_recorded_sweep_is_the_same_under_new_names(tmp_path: Path) -> None:
    sweep = control(tmp_path, space={"algorithm.minibatch_size": {"kind": "choice", "values": [32, 64]}})
    older = sweep.model_dump(mode="json")
    older["space"] = {"algorithm.minibatch": older["space"]["algorithm.minibatch_size"]}
    older["experiment"]["algorithm"]["minibatch"] = older["experiment"]["algorithm"].pop("minibatch_size")
    assert parse_recorded_sweep(older, origin="sweep s").sha256 == sweep.sha256


def test_points_of_a_recorded_sweep_have_new_paths() -> None:
    point = {"rollout.actors": 1, "curriculum.stages.0.gate.success": 0.5, "environments.0.settings.gate": 2}
    assert [*renamed(point, Experiment)] == [
        "rollout.runners",
        "curriculum.stages.0.threshold.success",
        "environments.0.settings.gate",
    ]
    assert renamed({"algorithm.minibatch": 8}, ControlExperiment) == {"algorithm.minibatch_size": 8}


@pytest.mark.parametrize("learners", [0, 2])
def test_minibatches_of_an_experiment_are_shared_by_its_learners(learners: int) -> None:
    made = ControlExperiment(name="x", algorithm={"kind": "ppo", "minibatch_size": 64}, learners={"count": learners})
    config = PPOConfig.of(made)
    config.validate()
    assert (config.settings.minibatch_size, config.minibatch_size) == (64, 64 // max(1, learners))


def test_minibatches_by_the_name_of_rllib_are_those_of_a_learner() -> None:
    config = PPOConfig().environment("CartPole-v1").learners(num_learners=2).training(minibatch_size=64)
    config.validate()
    assert (config.settings.minibatch_size, config.minibatch_size) == (128, 64)
