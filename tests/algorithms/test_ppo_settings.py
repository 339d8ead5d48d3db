"""The effects of PPO's settings, one by one, and the ones that stay RLlib's."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from ray import tune
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.tune.registry import register_env
from torch import nn

from loomrl.algorithms.control.ppo import PPO, PPOConfig
from loomrl.algorithms.control.probe import probe
from loomrl.config import ControlExperiment
from loomrl.control.policy import ControlPolicy
from loomrl.errors import ArtifactError, ConfigError, EpisodeError
from loomrl.telemetry.metric import Metric
from tests.algorithms.control_support import MARKS, learn, ppo, same, trained, weights

pytestmark = MARKS


def test_a_batch_is_left_once_the_policy_has_moved_far_enough() -> None:
    all_of_it, once = (
        trained(ppo(**settings)).train()["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
        for settings in ({}, {"target_kl": 1e-9})
    )
    assert all_of_it == 10 * once


def test_learning_rate_and_entropy_follow_their_schedules_to_the_end() -> None:
    schedule = {"kind": "linear", "floor": 0.1}
    algo = ppo(schedule=schedule, entropy_coefficient=0.02, entropy_floor=0.0, steps=3 * 128).build_algo()
    works = []
    for _ in range(3):
        works.append(algo.work(()))
        algo.train()
    assert [round(work.rate, 6) for work in works] == [3e-3, 1.65e-3, 3e-4]
    assert [round(work.entropy, 6) for work in works] == [0.02, 0.01, 0.0]
    assert algo.learner_group._learner.get_optimizer().param_groups[0]["lr"] == pytest.approx(3e-4)


def test_an_adaptive_rate_answers_to_how_far_the_policy_moved() -> None:
    algo = trained(ppo(schedule={"kind": "adaptive", "target_kl": 1e-6, "factor": 2.0}))
    assert algo.work(()).rate == pytest.approx(1.5e-3)


@pytest.mark.parametrize(
    "network",
    [
        {"hidden": [256, 256, 128], "activation": "relu"},
        {"hidden": [32], "shared": True, "layer_norm": True},
        {"hidden": [32, 32], "activation": "gelu", "orthogonal": False},
    ],
)
def test_every_shape_of_network_learns(network: Any) -> None:
    algo = ppo(network=network).build_algo()
    before = weights(algo)
    algo.train()
    assert not any(torch.equal(before[name], now) for name, now in weights(algo).items())


class Theirs(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """A module that knows nothing of ours."""

    def setup(self) -> None:
        self.body = nn.Sequential(nn.Linear(3, 32), nn.Tanh())
        self.head = nn.Linear(32, 3)
        self.worth = nn.Linear(32, 1)

    def _forward(self, batch: Any, **_: Any) -> dict[str, torch.Tensor]:
        return {Columns.ACTION_DIST_INPUTS: self.head(self.body(batch[Columns.OBS]))}

    def compute_values(self, batch: Any, embeddings: Any = None) -> torch.Tensor:
        return self.worth(self.body(batch[Columns.OBS])).squeeze(-1)


def test_a_module_of_ones_own_takes_the_fast_way() -> None:
    algo = ppo().rl_module(rl_module_spec=RLModuleSpec(module_class=Theirs)).build_algo()
    learn(algo, 0.9, 30)
    assert algo.config.fallback_reasons == ()
    with pytest.raises(ConfigError, match=r"teaches a Theirs\. .* algo.get_module\(\)"):
        algo.policy()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network": {"hidden": [32]}}, r"network.hidden is \[64, 64\] there and \[32\] here"),
        ({"network": {"activation": "relu"}}, "network.activation is tanh there and relu here"),
        ({"normalize_observations": False}, "normalize_observations is True there and False here"),
    ],
)
def test_a_checkpoint_of_another_network_is_refused(changes: Any, words: str, tmp_path: Path) -> None:
    refuses(ppo().build_algo(), ppo(**changes).build_algo(), words, tmp_path)


@pytest.mark.parametrize(
    ("env", "keywords", "words"),
    [
        ("Countdown", {}, r"environment is Identity there and Countdown here; observations is .*; actions is"),
        ("Identity", {"kind": "box"}, r"actions is Discrete.* there and Box"),
    ],
)
def test_a_checkpoint_of_another_environment_is_refused(env: str, keywords: Any, words: str, tmp_path: Path) -> None:
    refuses(ppo().build_algo(), ppo(env, keywords).build_algo(), words, tmp_path)


def refuses(one: PPO, other: PPO, words: str, folder: Path) -> None:
    """A learnt state of one kind is refused by another in every form, and changes nothing there."""
    before = weights(other)
    state = one.get_state()
    one.save_to_path(folder)
    for take in (lambda: other.restore_from_path(folder), lambda: other.set_state(state)):
        with pytest.raises(ArtifactError, match=words):
            take()
    assert same(before, weights(other))


def test_weights_of_another_network_are_named_where_they_come_alone() -> None:
    one, other = ppo().build_algo(), ppo(network={"hidden": [64, 32]}).build_algo()
    with pytest.raises(ArtifactError, match=r"net.critic.2.bias is \(64,\) there and \(32,\) here"):
        other.learner_group.set_state(one.learner_group.get_state())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda made: made.env_runners(num_env_runners=9), "num_env_runners=9 with 1 each: that is 9 CPU.* has 4"),
        (lambda made: made.learners(num_learners=8), r"num_learners=8 .*\(ray.init\(num_cpus=8\)"),
        (
            lambda made: made.learners(num_gpus_per_learner=1),
            r"num_learners=0 \(one in this process\) with 1 each: that is 1 GPU.* has 0",
        ),
        (
            lambda made: made.env_runners(num_env_runners=3).evaluation(
                evaluation_interval=1, evaluation_num_env_runners=2
            ),
            "num_env_runners=3 with 1 each and evaluation_num_env_runners=2 with 1 each: that is 5 CPU",
        ),
    ],
    ids=["runners", "learners", "gpu", "evaluation"],
)
def test_what_ray_has_not_is_refused_before_anything_waits_for_it(asked: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asked(ppo(minibatch_size=16)).build_algo()


def test_evaluation_plays_as_many_episodes_as_asked_with_what_was_learnt() -> None:
    asked = ppo("Countdown", {"steps": 5}).evaluation(evaluation_interval=1, evaluation_duration=11)
    algo = asked.build_algo()
    told = algo.train()["evaluation"]["env_runners"]
    assert (told["num_episodes"], told["episode_return_mean"], told["episode_len_mean"]) == (11, 5.0, 5.0)


def test_an_environment_that_raises_is_replaced_where_that_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    asked = ppo("Misbehaving", {"how": "raises"}).fault_tolerance(restart_failed_sub_environments=True)
    algo = asked.env_runners(rollout_fragment_length=2).training(minibatch_size=16).build_algo()
    for _ in range(4):
        algo.train()
    assert any("New environments take their place" in line for line in caplog.messages)
    assert algo.env_steps == 4 * 16


@pytest.mark.slow
def test_tune_searches_settings_by_their_names(tmp_path: Path) -> None:
    asked = ppo().training(learning_rate=tune.grid_search([1e-9, 3e-3]))
    found = tune.Tuner(
        PPO,
        param_space=asked,
        run_config=tune.RunConfig(storage_path=str(tmp_path), stop={"training_iteration": 12}, verbose=0),
    ).fit()
    returns = {
        result.config["changes"]["learning_rate"]: result.metrics["env_runners"]["episode_return_mean"]
        for result in found
    }
    assert returns[3e-3] > returns[1e-9] + 1


def test_the_return_is_told_before_the_first_episode_ends_and_with_its_extremes_after() -> None:
    algo = ppo("Countdown", {"steps": 40}).build_algo()
    told = algo.train()
    assert np.isnan(told["env_runners"]["episode_return_mean"])
    assert Metric.RETURN not in algo.metrics_of(told)
    for _ in range(2):
        told = algo.train()
    found = [told["env_runners"][f"episode_return_{name}"] for name in ("min", "mean", "max")]
    assert found == [40.0, 40.0, 40.0]
    assert algo.metrics_of(told)[Metric.RETURN] == 40.0


ALONE = """
import ray
from loomrl.algorithms.control.ppo import PPOConfig
algo = PPOConfig().environment("CartPole-v1").build_algo()
assert ray.is_initialized()
algo.train()
algo.stop()
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.system
def test_ray_is_started_where_nobody_has_started_it() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", ALONE], check=True, timeout=240, capture_output=True)


def test_what_was_learnt_leaves_with_its_normaliser_and_learns_no_further(tmp_path: Path) -> None:
    algo = trained(ppo(normalize_observations=True))
    policy = algo.policy()
    policy.save(tmp_path)
    algo.train()
    loaded = ControlPolicy.load(tmp_path)
    assert float(loaded.net.normalizer.count) == float(policy.net.normalizer.count)
    assert float(algo.policy().net.normalizer.count) > float(policy.net.normalizer.count)
    seen = np.arange(1, 4)
    assert [loaded.act(one) for one in seen] == [policy.act(one) for one in seen]


@pytest.mark.parametrize("learners", [0, 2])
def test_minibatches_of_an_experiment_are_shared_by_its_learners(learners: int) -> None:
    made = ControlExperiment(name="x", algorithm={"kind": "ppo", "minibatch_size": 64}, learners={"count": learners})
    config = PPOConfig.of(made)
    config.validate()
    assert (config.settings.minibatch_size, config.minibatch_size) == (64, 64 // max(1, learners))


PARTS = spaces.Tuple((spaces.MultiDiscrete([2, 2]), spaces.Discrete(5), spaces.Box(0, 1, (3,))))


class Shown(gymnasium.Env[Any, Any]):
    """Shows what it is given."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any, first: Any = None, after: Any = None, reward: Any = 1.0) -> None:
        self.observation_space = space
        self._first = first
        self._after = after
        self._reward = reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.sample() if self._first is None else self._first, {}

    def step(self, action: Any) -> Any:
        if isinstance(self._after, Exception):
            raise self._after
        return self.observation_space.sample() if self._after is None else self._after, self._reward, False, False, {}


def look_at(*made: Any, **settings: Any) -> None:
    register_env("shown", lambda _: Shown(*made, **settings))
    probe("shown", {})


@pytest.mark.parametrize("space", [PARTS, spaces.Dict({"a": PARTS, "b": spaces.Discrete(3)}), spaces.Discrete(4)])
def test_observations_may_have_parts_of_any_shapes(space: Any) -> None:
    look_at(space)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"first": np.zeros(3)}, r"reset returned an observation of shape \(3,\), its observation space is Box"),
        ({"after": np.zeros((2, 2))}, r"step returned an observation of shape \(2, 2\)"),
        ({"after": KeyError("pole")}, "raised KeyError at its first step: 'pole'"),
        ({"reward": np.ones(2)}, r"the reward of its first step has shape \(2,\), and a number is needed"),
        ({"reward": float("nan")}, "the reward of its first step is nan"),
    ],
)
def test_a_first_step_that_nobody_can_learn_from_is_refused_by_name(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(EpisodeError, match=f"environment 'shown'.*{words}"):
        look_at(spaces.Box(0, 1, (2,)), **settings)
