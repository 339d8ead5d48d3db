"""Curiosity: finds what no chance finds, is the same on all learners, and goes on where it stopped."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.tune.registry import register_env

from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.errors import ConfigError
from tests.algorithms.control_support import MARKS, Lock, Weights, ppo, same, weights

pytestmark = MARKS


def locked(curiosity: dict[str, Any] | None, *, seed: int = 7) -> PPOConfig:
    register_env("Lock", lambda context: Lock(**context))
    asked = ppo("Lock", fragment=64, gamma=0.95, learning_rate=1e-3, entropy_coefficient=0.01, curiosity=curiosity)
    return asked.debugging(seed=seed)


def finds_it(curiosity: dict[str, Any] | None, *, seed: int) -> bool:
    algo = locked(curiosity, seed=seed).build_algo()
    found = 0.0
    for _ in range(20):
        algo.train()
        found = max(found, (algo.window.means() or (0.0, 0.0))[0])
    algo.stop()
    return found > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_only_a_row_of_right_choices_opens_is_found_by_curiosity_alone(seed: int) -> None:
    assert not finds_it(None, seed=seed)
    assert finds_it({}, seed=seed)


def test_what_was_seen_often_is_worth_ever_less() -> None:
    algo = ppo("Countdown", curiosity={}, minibatch_size=32).build_algo()
    paid = [algo.train()["learners"]["default_policy"]["reward/curiosity"] for _ in range(20)]
    assert 0 < paid[-1] < 0.5 * paid[0]
    algo.stop()


@pytest.mark.parametrize("env", ["Lock", "Pictures"])
def test_a_resumed_run_ends_as_one_that_never_stopped(env: str, tmp_path: Path) -> None:
    asked = locked({"coefficient": 0.5}).environment(env).env_runners(rollout_fragment_length=16)
    whole = asked.build_algo()
    whole.train()
    whole.save_to_path(tmp_path / "checkpoint")
    whole.train()
    again = asked.copy(copy_frozen=False).build_algo()
    again.restore_from_path(tmp_path / "checkpoint")
    again.train()
    assert same(weights(whole), weights(again))
    assert same(novelty(whole.learner_group._learner), novelty(again.learner_group._learner))
    whole.stop()
    again.stop()


def test_a_state_that_was_taken_does_not_change_any_more() -> None:
    algo = locked({}).build_algo()
    algo.train()
    taken = novelty(algo.learner_group._learner)
    kept = {name: one.clone() for name, one in taken.items()}
    algo.train()
    assert same(taken, kept)
    assert not same(taken, novelty(algo.learner_group._learner))
    algo.stop()


def novelty(learner: Any) -> Weights:
    return learner.get_state()["loomrl"]["curiosity"]["novelty"]


@pytest.mark.slow
def test_two_learners_are_curious_about_the_same() -> None:
    algo = locked({}).learners(num_learners=2).build_algo()
    before = weights(algo)
    for _ in range(2):
        algo.train()
    found = algo.learner_group.foreach_learner(lambda learner: learner.get_state())
    one, other = [result.get() for result in found]
    assert same(one["loomrl"]["curiosity"]["novelty"], other["loomrl"]["curiosity"]["novelty"])
    assert not same(before, weights(algo))
    one, other = one["rl_module"]["default_policy"], other["rl_module"]["default_policy"]
    assert all(np.array_equal(one[name], other[name]) for name in one)
    algo.stop()


def test_rllibs_own_way_is_not_curious_and_says_so() -> None:
    with pytest.raises(ConfigError, match="curiosity"):
        locked({}).callbacks(on_episode_end=lambda **_: None).validate()
