"""SAC: learns what it is asked for, remembers exactly, repeats itself bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from algorithms.sac import SACConfig
from loomrl.errors import ConfigError
from tests.algorithms.control_support import MARKS, Weights, same, success, weights

pytestmark = MARKS


def config(env: str = "Identity", keywords: Any = None, **settings: Any) -> SACConfig:
    small = {"network": {"hidden": [32, 32], "activation": "relu"}, "gamma": 0.0, "batch": 64, "warmup": 64}
    rates = {"actor_rate": 3e-3, "critic_rate": 3e-3, "temperature_rate": 3e-3}
    made = SACConfig().environment(env, env_config=keywords or {}).debugging(seed=7)
    made = made.training(**(small | rates | {"replay": {"capacity": 5000}} | settings))
    return made.reporting(min_sample_timesteps_per_iteration=200)


@pytest.mark.parametrize(("kind", "bar"), [("box", 0.85), ("discrete", 0.8)])
@pytest.mark.parametrize("prioritized", [None, {"alpha": 0.6}])
def test_what_is_seen_is_done(kind: str, bar: float, prioritized: Any) -> None:
    replay = {"capacity": 5000, "prioritized": prioritized}
    entropy = 0.2 if kind == "discrete" else -4.0
    algo = config(keywords={"kind": kind}, replay=replay, target_entropy=entropy).build_algo()
    for _ in range(10):
        algo.train()
    assert success(algo) > bar
    algo.stop()


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_resumed_run_ends_as_one_that_never_stopped(n_step: int, tmp_path: Path) -> None:
    asked = config("Pendulum-v1", gamma=0.99, n_step=n_step, normalize_observations=True)
    whole = asked.build_algo()
    for _ in range(2):
        whole.train()
    whole.save_to_path(tmp_path / "checkpoint")
    for _ in range(2):
        whole.train()
    again = asked.copy(copy_frozen=False).build_algo()
    again.restore_from_path(tmp_path / "checkpoint")
    for _ in range(2):
        again.train()
    assert same(weights(whole), weights(again))
    whole.stop()
    again.stop()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others() -> None:
    def trained(seed: int) -> Weights:
        algo = config().debugging(seed=seed).build_algo()
        algo.train()
        algo.stop()
        return weights(algo)

    one = trained(7)
    assert same(one, trained(7))
    assert not same(one, trained(8))


def test_remote_runners_fill_the_memory() -> None:
    algo = config(keywords={"kind": "box"}).env_runners(num_env_runners=2, rollout_fragment_length=8).build_algo()
    told = algo.train()
    assert told["env_runners"]["num_env_steps_sampled_lifetime"] == algo.learner_group._learner.ring.steps > 64
    algo.stop()


def test_two_learners_with_a_memory_each_have_the_same_weights() -> None:
    asked = config(keywords={"kind": "box"}).env_runners(num_envs_per_env_runner=4, rollout_fragment_length=8)
    algo = asked.learners(num_learners=2).build_algo()
    algo.train()
    found = algo.learner_group.foreach_learner(lambda learner: (learner.get_state()["rl_module"], learner.ring.steps))
    (one, kept), (other, also_kept) = [result.get() for result in found]
    assert kept > 64
    assert also_kept > 64
    one, other = one["default_policy"], other["default_policy"]
    assert all(np.array_equal(one[name], other[name]) for name in one)
    algo.stop()


@pytest.mark.parametrize(("env", "words"), [("Pictures", "Use ppo"), ("Identity", "Use ppo")])
def test_spaces_that_it_does_not_take_are_named(env: str, words: str) -> None:
    keywords = {"kind": "multi_binary"} if env == "Identity" else {}
    with pytest.raises(ConfigError, match=words):
        config(env, keywords).build_algo()


def test_a_memory_that_fits_nowhere_is_refused_before_training() -> None:
    with pytest.raises(ConfigError, match=r"replay.capacity=.* needs .* GB"):
        config(replay={"capacity": 10**12, "memory_gb": 1.0}).build_algo()


def test_what_the_fast_way_cannot_do_goes_rllibs_own_way() -> None:
    asked = config("Pendulum-v1", gamma=0.99).callbacks(on_episode_end=lambda **_: None)
    asked.changes.pop("replay")
    algo = asked.build_algo()
    assert algo.config.slow == ("callback on_episode_end",)
    assert algo.train()["env_runners"]["num_env_steps_sampled_lifetime"] >= 200
    algo.stop()
