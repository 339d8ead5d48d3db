import random
import re
from pathlib import Path
from typing import Any

import pytest

from loomrl.config import ControlExperiment, Experiment
from loomrl.config.sweep import Sweep
from loomrl.errors import ConfigError
from loomrl.experiments import shipped
from loomrl.experiments.sweep_file import check, draw_value, names, resolve_sweep
from tests.experiments.sweep_samples import control, language

RATE = "algorithm.learning_rate"
LAMBDA = {"algorithm.gae_lambda": {"kind": "uniform", "low": 0.9, "high": 1.0}}


def test_shipped_sweeps_can_be_tried_at_every_point_and_are_no_experiments() -> None:
    for name in names():
        check(resolve_sweep([name]))
    assert {file.stem for file in shipped.SWEEPS.glob("*.yaml")} >= {*names()} != set()
    assert not {*names(), *(f"sweeps/{name}" for name in names())} & set(shipped.names())


def test_file_says_what_differs_and_words_lay_upon_it(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "name: s\nexperiment: {base: control/cartpole, train: {steps: 5000}}\n"
        "space:\n  algorithm.learning_rate: {kind: loguniform, low: 1e-4, high: 1e-2}\n"
    )
    words = ["space.algorithm.learning_rate.high=1e-3", "space.algorithm.gamma={kind: uniform, low: 0.9, high: 1}"]
    sweep = resolve_sweep([str(file), *words, "samples=3", "experiment.seed=7", "scheduler.kind=asha"])
    assert isinstance(sweep.experiment, ControlExperiment)
    assert (sweep.experiment.name, sweep.experiment.train.steps, sweep.experiment.seed) == ("cartpole", 5000, 7)
    assert sweep.space[RATE].edges == (1e-4, 1e-3)
    assert sweep.space["algorithm.gamma"].edges == (0.9, 1.0)
    assert (sweep.samples, sweep.judged_by, sweep.unit) == (3, "return/training", "steps")
    assert isinstance(resolve_sweep(["math_tiny"]).experiment, Experiment)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"space": {"algorithm.learning_rat": {"kind": "uniform", "low": 0.1, "high": 0.2}}}, "mean 'learning_rate'?"),
        ({"space": {"algorithm.gamma": {"kind": "uniform", "low": 0.9, "high": 1.1}}}, "algorithm.gamma=1.1"),
        ({"space": {"algorithm.kind": {"kind": "choice", "values": ["ppo", "sac"]}, **LAMBDA}}, "no such setting"),
        ({"space": {"environment.settings.gravty": {"kind": "choice", "values": [1]}}}, "gravty"),
        ({"scheduler": {"kind": "ahsa"}}, "Did you mean 'asha'?"),
        ({"search": {"kind": "optun"}}, "Did you mean 'optuna'?"),
        ({"metric": "return/trainin"}, "Did you mean 'return/training'?"),
        ({"metric": "success"}, "told of language policies only"),
        ({"budget": 100, "scheduler": {"kind": "asha", "grace": 200}}, "above the budget of 100"),
        ({"budget": 100, "scheduler": {"kind": "pbt", "interval": 100}}, "nothing comes after"),
        ({"space": {"store_url": {"kind": "choice", "values": ["a"]}}}, "same for all trials"),
        ({"space": {"train.steps": {"kind": "choice", "values": [1]}}}, "same for all trials"),
        ({"space": {RATE: {"kind": "uniform", "low": 2, "high": 1}}}, "must be below"),
        ({"space": {RATE: {"kind": "loguniform", "low": 0, "high": 1}}}, "greater than 0"),
        ({"space": {RATE: {"kind": "gird", "values": [1]}}}, "Did you mean 'grid'?"),
        ({"space": {}}, "at least 1"),
        ({"search": {"kind": "optuna"}, "space": {RATE: {"kind": "grid", "values": [1e-3]}}}, "Make it a choice"),
        ({"search": {"kind": "optuna"}, "scheduler": {"kind": "pbt"}}, "no effect on pbt"),
        ({"scheduler": {"kind": "pbt"}, "space": {"seed": {"kind": "choice", "values": [1]}}}, "how a policy begins"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_remedy(tmp_path: Path, changes: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(remedy)):
        check(control(tmp_path, **changes))


def test_unknown_file_names_the_shipped_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'cartpole'"):
        resolve_sweep(["cartpol"])
    with pytest.raises(ConfigError, match="one FILE"):
        resolve_sweep([])


@pytest.mark.parametrize(
    "dimension",
    [
        {"kind": "uniform", "low": -1, "high": 2},
        {"kind": "loguniform", "low": 1e-5, "high": 1e-1},
        {"kind": "randint", "low": 1, "high": 3},
    ],
)
def test_what_is_drawn_is_within_and_reaches_far(tmp_path: Path, dimension: dict[str, Any]) -> None:
    space = Sweep.parse(control(tmp_path).model_dump() | {"space": {"seed": dimension}}).space["seed"]
    low, high = space.edges
    values = [draw_value(space, random.Random(n)) for n in range(200)]
    assert all(low <= value <= high for value in values)
    if dimension["kind"] == "randint":
        assert set(values) == {1, 2, 3}
    if dimension["kind"] == "loguniform":
        assert sum(value < 1e-3 for value in values) == pytest.approx(100, abs=25)


def test_budget_is_that_of_every_trial(tmp_path: Path) -> None:
    assert control(tmp_path, budget=777).at({RATE: 1e-3}).train.steps == 777
    assert language(tmp_path, budget=3).at({}).train.updates == 3


def test_a_sweep_is_turned_into_plain_data_once_however_many_points_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, made = control(tmp_path), []
    dump = ControlExperiment.model_dump
    monkeypatch.setattr(
        ControlExperiment, "model_dump", lambda self, **how: made.append(self is sweep.experiment) or dump(self, **how)
    )
    for rate in (1e-9, 3e-3, 1e-9):
        sweep.at({"algorithm.learning_rate": rate})
    assert made == [True]
