"""Behaviour cloning and IQL: learn from the data alone, and what is better in them; resume exactly; go on online."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv

from loomrl.algorithms.control.bc import BCConfig
from loomrl.algorithms.control.iql import IQLConfig, expectile_loss
from loomrl.algorithms.control.offline import LoggedConfig
from loomrl.control.play import play
from loomrl.errors import ArtifactError, ConfigError, DataError
from tests.algorithms.control_envs import Identity
from tests.algorithms.control_support import MARKS, same, weights
from tests.control.logged_support import identity_data, minari_folder

__all__ = ["minari_folder"]
pytestmark = [*MARKS, pytest.mark.usefixtures("minari_folder")]

SMALL: dict[str, Any] = {"network": {"hidden": [32]}, "learning_rate": 1e-2, "batch": 64}
NEAR = {"discrete": 0.9, "multi_discrete": 0.9, "multi_binary": 0.9, "box": 0.85}
"""A success that only a policy reaches which does what it sees."""


def bc(kind: str = "discrete", **settings: Any) -> LoggedConfig:
    return _of(BCConfig(), kind, SMALL | settings)


def iql(kind: str = "discrete", **settings: Any) -> LoggedConfig:
    return _of(IQLConfig(), kind, SMALL | {"gamma": 0.0, "sharpness": 10.0} | settings)


def _of(config: LoggedConfig, kind: str, settings: dict[str, Any]) -> LoggedConfig:
    made = config.environment("Identity", env_config={"kind": kind}).debugging(seed=7).training(**settings)
    made.updates_per_iteration = 300
    return made.logged(minari="identity/data-v0")


def greedy(algo: Any, kind: str = "discrete") -> float:
    """Mean reward of a step."""
    returns, steps, *_ = play(algo.policy(), SyncVectorEnv([lambda: Identity(kind)] * 8), 32, seed=3)
    return sum(returns) / sum(steps)


def learnt(config: LoggedConfig, kind: str = "discrete") -> float:
    algo = config.build_algo()
    algo.train()
    assert algo.progress == algo.updates == 300
    assert algo.env_steps == 0
    found = greedy(algo, kind)
    algo.stop()
    return found


@pytest.mark.parametrize("kind", ["discrete", "box", pytest.param("multi_discrete", marks=pytest.mark.slow)])
def test_what_was_done_most_is_cloned(kind: str) -> None:
    identity_data("identity/data-v0", kind, right=0.9)
    assert learnt(bc(kind), kind) > NEAR[kind] - 0.1


@pytest.mark.parametrize("kind", ["discrete", "box", *(pytest.param(k, marks=pytest.mark.slow) for k in
                                                       ("multi_discrete", "multi_binary"))])  # fmt: skip
def test_iql_prefers_what_was_rewarded_in_random_actions(kind: str) -> None:
    identity_data("identity/data-v0", kind)
    assert learnt(iql(kind), kind) > NEAR[kind]


def test_neither_cloning_nor_shuffled_rewards_tell_random_actions_apart() -> None:
    identity_data("identity/data-v0")
    assert learnt(bc()) < 0.6
    identity_data("identity/shuffled-v0", shuffled=True)
    assert learnt(iql().logged(minari="identity/shuffled-v0")) < 0.6


def test_without_sharpness_iql_clones() -> None:
    identity_data("identity/data-v0")
    assert learnt(iql(sharpness=0.0)) < 0.6


def test_an_expectile_leans_towards_the_higher_errors() -> None:
    numbers = torch.tensor([0.0, 1.0, 4.0])
    found = {}
    for expectile in (0.5, 0.9):
        centre = torch.zeros((), requires_grad=True)
        optimizer = torch.optim.SGD([centre], lr=0.1)
        for _ in range(300):
            optimizer.zero_grad()
            expectile_loss(numbers - centre, expectile).mean().backward()
            optimizer.step()
        found[expectile] = float(centre)
    assert found[0.5] == pytest.approx(5 / 3, abs=1e-3)
    assert found[0.9] > 3


@pytest.mark.parametrize("config", [bc, iql])
def test_a_resumed_run_ends_as_one_that_never_stopped(config: Any, tmp_path: Path) -> None:
    identity_data("identity/data-v0", "box")
    asked = config("box", normalize_observations=True)
    whole = asked.build_algo()
    whole.train()
    whole.save_to_path(tmp_path / "checkpoint")
    whole.train()
    again = asked.copy(copy_frozen=False).build_algo()
    assert not same(weights(whole), weights(again))
    again.restore_from_path(tmp_path / "checkpoint")
    assert again.progress == 300
    again.train()
    assert same(weights(whole), weights(again))
    whole.stop()
    again.stop()


def test_it_stops_where_the_run_ends() -> None:
    identity_data("identity/data-v0")
    algo = bc().training(steps=310).build_algo()
    for _ in range(2):
        algo.train()
    assert algo.progress == 310
    algo.stop()


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    identity_data("identity/data-v0")
    identity_data("identity/other-v0", right=0.5)
    one, other = bc().build_algo(), bc().logged(minari="identity/other-v0").build_algo()
    one.save_to_path(tmp_path / "checkpoint")
    with pytest.raises(ArtifactError, match="data set 'identity/other-v0' is not what this run began with"):
        other.restore_from_path(tmp_path / "checkpoint")
    one.stop()
    other.stop()


def test_normalised_rewards_and_observations_are_those_of_the_data() -> None:
    identity_data("identity/data-v0", "box")
    algo = iql("box", normalize_rewards=True, normalize_observations=True).build_algo()
    learner = algo.learner_group._learner
    assert learner.reward_scale > 0.05
    assert learner.data.columns["rewards"].std() == pytest.approx(1.0, rel=0.01)  # with gamma 0 a return is a reward
    seen = learner.data.columns["seen"]
    assert np.allclose(learner.own.net.normalizer.mean.numpy(), seen.mean(0), atol=1e-5)
    algo.stop()


def test_offline_goes_on_online_from_the_policy_and_with_the_data(tmp_path: Path) -> None:
    identity_data("identity/data-v0")
    offline = iql().build_algo()
    offline.train()
    offline.save_to_path(tmp_path / "checkpoint")
    before = greedy(offline)
    online = iql(online={"updates_per_step": 0.5}).reporting(min_sample_timesteps_per_iteration=100).build_algo()
    online.begin_with(tmp_path / "checkpoint")
    assert same(weights(offline), weights(online))
    told = online.train()
    learner = online.learner_group._learner
    assert online.progress == online.env_steps == learner.recent.steps >= 100
    assert told["learners"]["default_policy"]["num_module_steps_trained_lifetime"] == online.env_steps // 2 * 64
    assert not same(weights(offline), weights(online))
    assert greedy(online) > before - 0.1
    batch = learner.mix_batch(learner.recent, 0.25)
    assert len(batch["rewards"]) == 64
    assert 0.25 < float(batch["rewards"].mean()) < 0.95  # random actions of the data are among them
    offline.stop()
    online.stop()


def test_an_online_run_resumes_with_its_memory(tmp_path: Path) -> None:
    identity_data("identity/data-v0", "box")
    asked = iql("box", online={}).reporting(min_sample_timesteps_per_iteration=40)
    whole = asked.build_algo()
    whole.train()
    whole.save_to_path(tmp_path / "checkpoint")
    whole.train()
    again = asked.copy(copy_frozen=False).build_algo()
    again.restore_from_path(tmp_path / "checkpoint")
    again.train()
    assert same(weights(whole), weights(again))
    whole.stop()
    again.stop()


def test_weights_of_another_network_are_not_begun_with(tmp_path: Path) -> None:
    identity_data("identity/data-v0")
    algo = bc().build_algo()
    algo.save_to_path(tmp_path / "checkpoint")
    other = iql().build_algo()
    with pytest.raises(ArtifactError, match=r"do not fit: .*module is ControlModule there and IQLModule here"):
        other.begin_with(tmp_path / "checkpoint")
    with pytest.raises(ArtifactError, match="has no weights of a policy of control"):
        other.begin_with(tmp_path)
    algo.stop()
    other.stop()


def test_what_cannot_be_learnt_from_is_refused() -> None:
    identity_data("identity/data-v0", episodes=1)
    with pytest.raises(ConfigError, match="BC learns from logged episodes: name them"):
        BCConfig().environment("Identity").build_algo()
    with pytest.raises(DataError, match="is unknown"):
        bc().logged(minari="identity/none-v0").build_algo()
    with pytest.raises(ConfigError, match="name either minari"):
        bc().logged()
    with pytest.raises(ConfigError, match="callback on_episode_end: BC has no runner and learner but ours"):
        bc().callbacks(on_episode_end=lambda **_: None).build_algo()
    with pytest.raises(ConfigError, match=r"gamma=0\.5 has no effect: bc uses no rewards"):
        bc(gamma=0.5).validate()


@pytest.mark.slow
@pytest.mark.parametrize("config", [bc, iql])
def test_one_remote_learner_learns_what_one_in_this_process_does_and_two_agree(config: Any, tmp_path: Path) -> None:
    identity_data("identity/data-v0", "box")
    found = []
    for count in (0, 1, 2):
        algo = config("box", normalize_observations=True).learners(num_learners=count).build_algo()
        algo.train()
        states = [each.get() for each in algo.learner_group.foreach_learner(lambda learner: learner.get_state())]
        modules = [state["rl_module"]["default_policy"] for state in states]
        assert all(np.array_equal(modules[0][name], one[name]) for one in modules for name in one)
        assert greedy(algo, "box") > (0.8 if config is iql else 0.0)
        found.append(weights(algo))
        if count == 2:
            algo.save_to_path(tmp_path / "checkpoint")
            algo.train()
            again = config("box", normalize_observations=True).learners(num_learners=2).build_algo()
            again.restore_from_path(tmp_path / "checkpoint")
            again.train()
            assert same(weights(algo), weights(again))
            again.stop()
        algo.stop()
    assert all(torch.allclose(found[0][name], found[1][name], atol=1e-4) for name in found[0])


@pytest.mark.slow
def test_runners_and_two_learners_go_on_online() -> None:
    identity_data("identity/data-v0")
    asked = iql(online={}).env_runners(num_env_runners=1, num_envs_per_env_runner=2, rollout_fragment_length=8)
    algo = asked.learners(num_learners=2).reporting(min_sample_timesteps_per_iteration=64).build_algo()
    algo.train()
    assert algo.progress >= 64
    algo.stop()


def test_two_learners_need_no_environments_to_share() -> None:
    bc().learners(num_learners=2).validate()
    with pytest.raises(ConfigError, match="cannot be divided among num_learners=2"):
        iql(online={}).learners(num_learners=2).validate()
