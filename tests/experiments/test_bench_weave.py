"""The benchmark of WEAVE runs, whole, on little work."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from loomrl.config import ControlExperiment, Experiment, Weave
from loomrl.config.language_weave import LanguageWeave
from loomrl.errors import ConfigError
from loomrl.experiments.bench.weave import steer
from loomrl.experiments.bench.weave.fronts import ABLATIONS, FRONTS, QUICK, measure
from loomrl.experiments.cli import app
from loomrl.experiments.shipped import resolve


@pytest.mark.system
@pytest.mark.slow
def test_a_front_is_told_with_its_cost_and_every_run() -> None:
    size = replace(QUICK, seeds=(1, 2), words=(*QUICK.words, "train.steps=512", "evaluation.every=128"))
    figures = measure(size, "dst_concave")
    runs = figures["dst_concave_runs"]
    low, high = figures["dst_concave_hv_range"]
    assert [low, high] == sorted(float(f"{run['hv']:.4g}") for run in runs)
    assert low <= figures["dst_concave_hv"] <= high <= 4255
    assert all(run["points"] == len(run["front"]) for run in runs)
    assert all(128 <= run["best_steps"] <= run["steps"] for run in runs)
    assert 512 <= figures["dst_concave_steps"] < 768
    assert figures["dst_concave_cpu_s"] > 0
    assert 1 <= figures["dst_concave_points"] <= 10


@pytest.mark.slow
@pytest.mark.system
def test_weave_costs_more_than_ppo_for_the_same_steps() -> None:
    figures = measure(QUICK, "ppo_cost")
    low, high = figures["ppo_cost_ratio_range"]
    assert 0.8 < low <= figures["ppo_cost_ratio"] <= high < 5
    assert figures["ppo_cartpole_steps"] is None  # a thousand steps solve nothing
    assert [run["steps"] for run in figures["weave_cartpole_runs"]] == [None]


def test_a_part_that_is_unknown_is_named() -> None:
    with pytest.raises(ConfigError, match="minecrat"):
        measure(QUICK, "minecrat")


@pytest.mark.parametrize("name", FRONTS)
def test_the_shipped_experiments_are_of_weave(name: str) -> None:
    asked = resolve([f"control/{name}"])
    assert isinstance(asked, ControlExperiment)
    assert isinstance(asked.algorithm, Weave)
    assert asked.algorithm.reference is not None
    assert (asked.algorithm.scalarisation.kind == "chebyshev") == FRONTS[name].chebyshev
    for words in ABLATIONS.values():
        resolve([f"control/{name}", *words])


@pytest.mark.slow
def test_the_command_prints_the_figures_as_json() -> None:
    done = CliRunner().invoke(app, ["bench", "weave", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout.splitlines()[-1])
    assert {f"{name}_hv" for name in FRONTS} | {"ppo_cost_ratio"} <= set(figures)


@pytest.mark.slow
def test_ablations_are_one_table() -> None:
    table = measure(QUICK, "ablations")["ablations"]
    assert {*ABLATIONS, "linear", "two regions"} == set(table["dst_concave"])


@pytest.mark.parametrize("experiment", steer.TASKS.values())
def test_the_price_is_that_of_one_expert_one_critic_and_one_reward(experiment: str) -> None:
    asked = resolve([experiment, *steer.PPO])
    assert isinstance(asked, Experiment)
    assert isinstance(asked.algorithm, LanguageWeave)
    assert (asked.algorithm.objectives, asked.algorithm.experts, asked.algorithm.critics) == ((), 1, 1)
    assert not asked.algorithm.shown


def test_a_task_of_steering_that_is_unknown_is_named() -> None:
    with pytest.raises(ConfigError, match=r"--only: .*maths"):
        steer.measure(steer.QUICK, ["maths"])


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.parametrize("task", steer.TASKS)
def test_a_steerable_language_policy_is_measured_beside_others(task: str) -> None:
    measured = steer.measure(steer.QUICK, [task])
    assert measured.keys() == {task, "seeds_runs"}
    figures = measured[task]
    told = {"steered_hypervolume", "fixed_hypervolume", "soups_hypervolume", "obeys", "cost_ratio"}
    assert told <= figures.keys()
    assert ("steered_vs_best" in figures) == (max(figures["fixed_hypervolume"], figures["soups_hypervolume"]) > 0)
    (run,) = measured["seeds_runs"][task]
    assert len(run["obeys_by_objective"]) == 2
    assert [len(run[name]) for name in ("steered", "fixed", "soups")] == [2, 2, 2]
    assert figures["cost_ratio"] > 0
