"""`loomrl bench meta` runs from end to end, and the algorithms that it compares with are the known ones."""

import numpy as np
import pytest

from loomrl.errors import ConfigError
from loomrl.experiments.bench.memory.arms import KNOWN, pulled, thompson, ucb1
from loomrl.experiments.bench.memory.trials import QUICK, measure
from tests.algorithms.control_support import MARKS

pytestmark = MARKS


@pytest.mark.system
@pytest.mark.parametrize("domain", ["bandit", pytest.param("grid", marks=pytest.mark.slow)])
def test_the_benchmark_compares_policies_on_held_out_tasks(domain: str) -> None:
    figures = measure(QUICK, [domain])
    told = figures[domain]
    assert {"memory", "another_task_in_every_trial", "no_memory", "same_tasks"} <= set(told)
    assert set(told["same_tasks"]) == {"memory", "no_memory", "tuned_1_episodes"}
    assert told["memory"] == figures["seeds_runs"][domain][0]["memory"]  # the median of one
    assert (set(KNOWN) | {"best_arm"} <= set(told)) == (domain == "bandit")


def test_an_unknown_task_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"--only: task='gird' is unknown.*Did you mean 'grid'"):
        measure(QUICK, ["gird"])


def test_known_algorithms_find_the_best_arm_and_uniform_choice_does_not() -> None:
    chances_NK = np.tile([0.2, 0.8, 0.5], (500, 1))
    last = {name: pulled(choose, chances_NK, 200, seed=0)[:, -50:].mean() for name, choose in KNOWN.items()}
    assert last["uniform"] == pytest.approx(0.5, abs=0.02)
    assert last["thompson"] > 0.75
    assert last["ucb1"] > 0.7
    assert last["greedy"] < last["thompson"]  # it stays with the first arm that seems good


def test_ucb1_tries_every_arm_and_then_the_one_with_the_highest_bound() -> None:
    chance = np.random.default_rng(0)
    assert ucb1(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), chance).tolist() == [1]
    bounds = np.array([3 / 4, 1 / 2]) + np.sqrt(2 * np.log(6) / np.array([4, 2]))
    assert ucb1(np.array([[4.0, 2.0]]), np.array([[3.0, 1.0]]), chance).tolist() == [bounds.argmax()]
    drawn = [thompson(np.array([[98.0, 0.0]]), np.array([[49.0, 0.0]]), chance)[0] for _ in range(2000)]
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.05)  # an arm that nobody pulled is as often above a half as below
