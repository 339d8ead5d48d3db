"""Trials by themselves, without Tune: what it does to them when it stops, resumes and exploits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

from loomrl.config.sweep import Sweep
from loomrl.errors import ConfigError
from loomrl.experiments.sweep_trial import RUN, SCORE, STEP, Trial
from loomrl.store import open_store
from loomrl.store.runs import POLICIES, RUNS, RunStatus
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics
from tests.algorithms.control_support import MARKS, Weights, same
from tests.experiments.sweep_samples import control, language

pytestmark = [pytest.mark.system, *MARKS]

LANGUAGE = "algorithm.optimizer.learning_rate"
CONTROL = "algorithm.learning_rate"


def trial(sweep: Sweep, id: str, point: dict[str, Any]) -> Any:
    class Bound(Trial):
        trial_id = id

        def setup(self, config: Any) -> None:
            super().setup(config, sweep=sweep.model_dump(mode="json"), id="s")

    return Bound(config=point)


def algorithm(of: Any) -> Any:
    training = of._going._training
    return getattr(training, "algo", training)


def weights(of: Any) -> Weights:
    algo = algorithm(of)
    state = algo.weights() if hasattr(algo, "weights") else algo.get_module().state_dict()
    return {name: torch.as_tensor(tensor).clone() for name, tensor in state.items()}


def taken_over(folder: Path, good: Any, bad: Any) -> None:
    """`bad` goes on from `good`."""
    (there := folder / "taken").mkdir()
    good.save_checkpoint(str(there))
    bad.load_checkpoint(str(there))


def optimizer(of: Any) -> torch.optim.Optimizer:
    learner = algorithm(of).learner_group._learner
    return learner.get_optimizers_for_module(DEFAULT_MODULE_ID)[0][1]  # type: ignore[no-any-return]


@pytest.fixture(params=["language", "ppo"])
def sweep(request: pytest.FixtureRequest, tmp_path: Path) -> Sweep:
    return language(tmp_path, budget=4) if request.param == "language" else control(tmp_path)


def test_bad_trial_goes_on_from_the_good_ones_weights_with_settings_of_its_own(sweep: Sweep, tmp_path: Path) -> None:
    path = next(iter(sweep.space))
    good, bad = trial(sweep, "x_00000", {path: 1e-2}), trial(sweep, "x_00001", {path: 1e-7})
    told = [good.step() for _ in range(3)][-1]
    bad.step()
    (folder := tmp_path / "taken").mkdir()
    good.save_checkpoint(str(folder))
    begun, left = weights(good), bad._going.run
    assert not same(weights(bad), begun)

    assert bad.reset_config({path: 5e-3})
    bad.load_checkpoint(str(folder))
    assert same(weights(bad), begun)
    assert optimizer(bad).state_dict()["state"][0]["step"] == optimizer(good).state_dict()["state"][0]["step"] > 0
    assert optimizer(bad).param_groups[0]["lr"] == pytest.approx(5e-3)
    taken, version = bad.step(), json.loads((folder / "trial.json").read_text())["version"]
    assert taken[STEP] > told[STEP]
    assert not same(weights(bad), begun)
    rates = [line[Metric.LEARNING_RATE] for line in read_metrics(metrics_file(sweep.experiment.train, taken[RUN]))]
    assert rates == pytest.approx([5e-3])
    good.cleanup()
    bad.cleanup()
    with open_store(sweep.experiment.store_url) as db:
        run = RUNS.require(db, taken[RUN])
        first = POLICIES.latest(db, run=run.id)[-1]
        assert run.parent_policy == first.parent == version
        assert POLICIES.require(db, version).run == told[RUN] != run.id != left
        assert run.experiment == sweep.at({path: 5e-3}).sha256 != RUNS.require(db, told[RUN]).experiment


def test_settings_of_an_optimizer_are_ours_after_the_copy(tmp_path: Path) -> None:
    sweep = Sweep.parse(
        language(tmp_path).model_dump()
        | {"space": {"algorithm.optimizer.weight_decay": {"kind": "uniform", "low": 0, "high": 0.5}}}
    )
    path = next(iter(sweep.space))
    good, bad = trial(sweep, "x_0", {path: 0.1}), trial(sweep, "x_1", {path: 0.3})
    good.step()
    taken_over(tmp_path, good, bad)
    assert optimizer(good).param_groups[0]["weight_decay"] == 0.1
    assert optimizer(bad).param_groups[0]["weight_decay"] == 0.3
    good.cleanup()
    bad.cleanup()


def test_rates_of_sac_are_ours_after_the_copy(tmp_path: Path) -> None:
    sac = {"kind": "sac", "warmup": 32, "batch": 16, "network": {"hidden": [16]}}
    tree = control(tmp_path).experiment.override({"algorithm": sac, "rollout.steps": None}).model_dump(mode="json")
    space = {"algorithm.actor_rate": {"kind": "loguniform", "low": 1e-5, "high": 1e-1}}
    sweep = Sweep.parse(control(tmp_path).model_dump() | {"space": space, "experiment": tree})
    good, bad = trial(sweep, "x_0", {"algorithm.actor_rate": 1e-4}), trial(sweep, "x_1", {"algorithm.actor_rate": 2e-2})
    good.step()
    taken_over(tmp_path, good, bad)
    assert same(weights(bad), weights(good))
    learner = algorithm(bad).learner_group._learner
    rates = {name: opt.param_groups[0]["lr"] for name, opt in learner.get_optimizers_for_module(DEFAULT_MODULE_ID)}
    assert 2e-2 in rates.values()
    assert 1e-4 not in rates.values()
    good.cleanup()
    bad.cleanup()


def test_paused_trial_goes_on_in_its_own_run_and_one_that_ended_is_not_trained_again(
    sweep: Sweep, tmp_path: Path
) -> None:
    path = next(iter(sweep.space))
    first = trial(sweep, "x_00000", {path: 1e-2})
    before = first.step()
    (folder := tmp_path / "own").mkdir()
    first.save_checkpoint(str(folder))
    first.cleanup()
    again = trial(sweep, "x_00000", {path: 1e-2})
    again.load_checkpoint(str(folder))
    results = [again.step()]
    assert results[0][RUN] == before[RUN]
    while not results[-1]["done"]:
        results.append(again.step())
    again.cleanup()
    steps = [line["step"] for line in read_metrics(metrics_file(sweep.experiment.train, before[RUN]))]
    assert steps == sorted(set(steps))
    assert steps[0] == before[STEP] < results[0][STEP] == steps[1]
    ended = trial(sweep, "x_00000", {path: 1e-2})
    assert ended.step() == results[-1]
    ended.cleanup()
    with open_store(sweep.experiment.store_url) as db:
        (run,) = RUNS.latest(db)
    assert run.status is RunStatus.FINISHED
    assert run.result["score"] == results[-1][SCORE]


def test_metric_that_is_never_told_is_an_error_that_names_those_that_are(tmp_path: Path) -> None:
    sweep = Sweep.parse(control(tmp_path).model_dump() | {"metric": "expert/use", "budget": 256})
    one = trial(sweep, "x_00000", {CONTROL: 1e-3})
    with pytest.raises(ConfigError, match=r"never told it\. It told: .*return/training"):
        one.step()
    one.cleanup()
