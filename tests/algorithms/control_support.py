"""Settings and helpers that the tests of control algorithms share."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from ray.rllib.core import DEFAULT_MODULE_ID

from loomrl.algorithms.control.dqn import DQNConfig
from loomrl.algorithms.control.ppo import PPOConfig
from loomrl.algorithms.control.sac import SACConfig
from loomrl.algorithms.control.weave import WeaveConfig
from tests.algorithms.control_envs import Small

MARKS = [
    pytest.mark.usefixtures("ray_cluster", "one_thread", "control_environments"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
Weights = dict[str, torch.Tensor]


class Lock(Small):
    """Opens, and pays 1, after a row of right choices. A wrong one leads back to the beginning."""

    action_space = spaces.Discrete(3)

    def __init__(self, length: int = 14) -> None:
        super().__init__(2 * length)
        self.observation_space = spaces.Box(0, 1, (length + 1,))
        self._right = [(7 * place + place // 3) % 3 for place in range(length)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._place = 0
        self._ends = False
        return super().reset(seed=seed)

    def _show(self) -> Any:
        return np.eye(len(self._right) + 1, dtype=np.float32)[self._place]

    def _pay(self, action: Any) -> tuple[float, dict[str, Any]]:
        self._place = self._place + 1 if action == self._right[self._place] else 0
        if is_open := self._place == len(self._right):
            self._ends = True
            self._taken = 2 * len(self._right)
        return float(is_open), {}


def weights(algo: Any) -> Weights:
    """A copy of all that the learner's module has."""
    state = algo.learner_group.get_state()["learner"]["rl_module"][DEFAULT_MODULE_ID]
    return {name: torch.as_tensor(value).clone() for name, value in state.items()}


def same(one: Weights, other: Weights) -> bool:
    """Bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def success(algo: Any) -> float:
    """Mean reward of a step in the latest episodes."""
    means = algo.window.means()
    assert means is not None
    return float(means[0] / means[1])


def learn(algo: Any, bar: float, updates: int) -> None:
    """Train until the latest episodes succeed so well, in at most so many updates."""
    for _ in range(updates):
        algo.train()
        if success(algo) > bar:
            return
    pytest.fail(f"{success(algo):.2f} of {bar} after {updates} updates")


def trained(asked: Any, updates: int = 1) -> Any:
    """The algorithm after so many updates."""
    algo = asked.build_algo()
    for _ in range(updates):
        algo.train()
    return algo


def resumed(asked: Any, folder: Path, updates: int = 2) -> tuple[Any, Any]:
    """A run that never stopped, and one that went on from its checkpoint: with equal weights after further updates."""
    whole = trained(asked, updates)
    whole.save_to_path(folder / "checkpoint")
    again = asked.copy(copy_frozen=False).build_algo()
    again.restore_from_path(folder / "checkpoint")
    for algo in (whole, again):
        algo.told = [algo.train() for _ in range(updates)][-1]
    assert same(weights(whole), weights(again))
    return whole, again


def agreed(algo: Any) -> Weights:
    """The weights of all learners, which are the same."""
    found = [each.get() for each in algo.learner_group.foreach_learner(lambda learner: learner.get_state())]
    modules = [state["rl_module"][DEFAULT_MODULE_ID] for state in found]
    assert len(modules) == max(1, algo.config.num_learners)
    first, *others = [{name: torch.as_tensor(value).clone() for name, value in each.items()} for each in modules]
    assert all(same(first, other) for other in others)
    return first


def ppo(
    env: str = "Identity", keywords: Any = None, *, kind: Any = PPOConfig, fragment: int = 16, **settings: Any
) -> Any:
    """A small one that learns in seconds."""
    settings = {"learning_rate": 3e-3, "minibatch_size": 64, "gamma": 0.0} | settings
    made = kind().environment(env, env_config=keywords or {}).debugging(seed=7).training(**settings)
    return made.env_runners(num_envs_per_env_runner=8, rollout_fragment_length=fragment)


def weave(env: str = "Identity", keywords: Any = None, **settings: Any) -> Any:
    return ppo(env, keywords, kind=WeaveConfig, **settings)


def sac(env: str = "Identity", keywords: Any = None, *, sample: int = 200, **settings: Any) -> SACConfig:
    """A small one, which takes as many steps at least in an iteration."""
    small = {"network": {"hidden": [32, 32], "activation": "relu"}, "gamma": 0.0, "batch": 64, "warmup": 64}
    rates = {"actor_rate": 3e-3, "critic_rate": 3e-3, "temperature_rate": 3e-3}
    made = SACConfig().environment(env, env_config=keywords or {}).debugging(seed=7)
    made = made.training(**(small | rates | {"replay": {"capacity": 5000}} | settings))
    return made.reporting(min_sample_timesteps_per_iteration=sample)


def dqn(env: str = "Identity", keywords: Any = None, *, sample: int = 200, **settings: Any) -> DQNConfig:
    """A small one, which takes as many steps at least in an iteration."""
    small = {"network": {"hidden": [32], "activation": "relu"}, "gamma": 0.0, "batch": 64, "warmup": 64}
    small |= {"learning_rate": 1e-2, "updates_per_step": 0.5, "exploration": {"steps": 400}, "target_every": 20}
    made = DQNConfig().environment(env, env_config=keywords or {}).debugging(seed=7)
    made = made.training(**(small | {"replay": {"capacity": 5000}} | settings))
    made = made.env_runners(num_envs_per_env_runner=4, rollout_fragment_length=4)
    return made.reporting(min_sample_timesteps_per_iteration=sample)
