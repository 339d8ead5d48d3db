"""What the tests of control algorithms share."""

from typing import Any

import pytest
import torch
from ray.rllib.core import DEFAULT_MODULE_ID

from algorithms.ppo import PPOConfig

MARKS = [
    pytest.mark.usefixtures("ray_cluster", "one_thread", "control_environments"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
Weights = dict[str, torch.Tensor]


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


def ppo(env: str = "Identity", keywords: Any = None, *, fragment: int = 16, **settings: Any) -> PPOConfig:
    """A small one that learns in seconds."""
    settings = {"learning_rate": 3e-3, "minibatch": 64, "gamma": 0.0} | settings
    made = PPOConfig().environment(env, env_config=keywords or {}).debugging(seed=7).training(**settings)
    return made.env_runners(num_envs_per_env_runner=8, rollout_fragment_length=fragment)
