"""Behaviour cloning and IQL: learn from the data alone, and what is better in them; resume exactly; go on online."""

from collections.abc import Callable
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
from tests.algorithms.control_support import MARKS, agreed, resumed, same, trained, weights
from tests.control.logged_support import identity_data, minari_folder

__all__ = ["minari_folder"]
pytestmark = [*MARKS, pytest.mark.usefixtures("minari_folder")]

SMALL: dict[str, Any] = {"network": {"hidden": [32]}, "learning_rate": 1e-2, "batch": 64}
NEAR = {"discrete": 0.9, "multi_discrete": 0.9, "multi_binary": 0.9, "box": 0.85}
"""A success that only a policy reaches which does what it sees."""


def bc(kind: str = "discrete", *, updates: int = 20, **settings: Any) -> LoggedConfig:
    return _of(BCConfig(), kind, updates, SMALL | settings)


def iql(kind: str = "discrete", *, updates: int = 20, **settings: Any) -> LoggedConfig:
    return _of(IQLConfig(), kind, updates, SMALL | {"gamma": 0.0, "sharpness": 10.0} | settings)


def _of(config: LoggedConfig, kind: str, updates: int, settings: dict[str, Any]) -> LoggedConfig:
    made = config.environment("Identity", env_config={"kind": kind}).debugging(seed=7).training(**settings)
    made.updates_per_iteration = updates
    return made.logged(minari="identity/data-v0")


def greedy(algo: Any, kind: str = "discrete") -> float:
    """Mean reward of a step."""
    returns, steps, *_ = play(algo.policy(), SyncVectorEnv([lambda: Identity(kind)] * 8), 32, seed=3)
    return sum(returns) / sum(steps)


def learnt(made: Callable[..., LoggedConfig], kind: str = "discrete", **settings: Any) -> float:
    algo = trained(made(kind, updates=300, **settings))
    assert algo.progress == algo.updates == 300
    assert algo.env_steps == 0
    return greedy(algo, kind)


@pytest.mark.parametrize("kind", ["discrete", "box", pytest.param("multi_discrete", marks=pytest.mark.slow)])
def test_what_was_done_most_is_cloned(kind: str) -> None:
    identity_data("identity/data-v0", kind, right=0.9)
    assert learnt(bc, kind) > NEAR[kind] - 0.1


@pytest.mark.parametrize("kind", ["discrete", "box", *(pytest.param(k, marks=pytest.mark.slow) for k in
                                                       ("multi_discrete", "multi_binary"))])  # fmt: skip
def test_iql_prefers_what_was_rewarded_in_random_actions(kind: str) -> None:
    identity_data("identity/data-v0", kind)
    assert learnt(iql, kind) > NEAR[kind]


def test_neither_shuffled_rewards_nor_iql_without_sharpness_tell_random_actions_apart() -> None:
    identity_data("identity/data-v0")
    assert learnt(iql, sharpness=0.0) < 0.6
    identity_data("identity/shuffled-v0", shuffled=True)
    assert learnt(lambda kind, **settings: iql(kind, **settings).logged(minari="identity/shuffled-v0")) < 0.6


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
    _, again = resumed(config("box", normalize_observations=True), tmp_path)
    assert again.progress == 80


def test_it_stops_where_the_run_ends() -> None:
    identity_data("identity/data-v0")
    assert trained(bc().training(steps=30), 2).progress == 30


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    identity_data("identity/data-v0")
    identity_data("identity/other-v0", right=0.5)
    one, other = bc().build_algo(), bc().logged(minari="identity/other-v0").build_algo()
    one.save_to_path(tmp_path / "checkpoint")
    with pytest.raises(ArtifactError, match="data set 'identity/other-v0' is not what this run began with"):
        other.restore_from_path(tmp_path / "checkpoint")


def test_normalised_rewards_and_observations_are_those_of_the_data() -> None:
    identity_data("identity/data-v0", "box")
    algo = iql("box", normalize_rewards=True, normalize_observations=True).build_algo()
    learner = algo.learner_group._learner
    assert learner.reward_scale > 0.05
    assert learner.data.columns["rewards"].std() == pytest.approx(1.0, rel=0.01)  # with gamma 0 a return is a reward
    seen = learner.data.columns["seen"]
    assert np.allclose(learner.own.net.normalizer.mean.numpy(), seen.mean(0), atol=1e-5)


def test_offline_goes_on_online_from_the_policy_and_with_the_data(tmp_path: Path) -> None:
    identity_data("identity/data-v0")
    offline = trained(iql(updates=200))
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


def test_an_online_run_resumes_with_its_memory(tmp_path: Path) -> None:
    identity_data("identity/data-v0", "box")
    resumed(iql("box", online={}).reporting(min_sample_timesteps_per_iteration=40), tmp_path, 1)


def test_weights_of_another_network_are_not_begun_with(tmp_path: Path) -> None:
    identity_data("identity/data-v0")
    bc().build_algo().save_to_path(tmp_path / "checkpoint")
    other = iql().build_algo()
    with pytest.raises(ArtifactError, match=r"do not fit: .*module is ControlModule there and IQLModule here"):
        other.begin_with(tmp_path / "checkpoint")
    with pytest.raises(ArtifactError, match="has no weights of a policy of control"):
        other.begin_with(tmp_path)


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
    for count in (0, 1):
        algo = trained(config("box", updates=300, normalize_observations=True).learners(num_learners=count))
        found.append(agreed(algo))
        assert greedy(algo, "box") > (0.8 if config is iql else 0.0)
        algo.stop()
    assert all(torch.allclose(found[0][name], found[1][name], atol=1e-4) for name in found[0])
    two, _ = resumed(config("box", normalize_observations=True).learners(num_learners=2), tmp_path, 1)
    agreed(two)


@pytest.mark.slow
def test_runners_and_two_learners_go_on_online() -> None:
    identity_data("identity/data-v0")
    asked = iql(online={}).env_runners(num_env_runners=1, num_envs_per_env_runner=2, rollout_fragment_length=8)
    assert trained(asked.learners(num_learners=2).reporting(min_sample_timesteps_per_iteration=64)).progress >= 64


def test_two_learners_need_no_environments_to_share() -> None:
    bc().learners(num_learners=2).validate()
    with pytest.raises(ConfigError, match="cannot be divided among num_learners=2"):
        iql(online={}).learners(num_learners=2).validate()
