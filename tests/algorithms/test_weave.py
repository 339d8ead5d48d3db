"""WEAVE on rewards that are numbers: with one of everything it is PPO, with more it learns as well."""

from pathlib import Path
from typing import Any

import pytest
import torch

from algorithms.weave import WeaveConfig
from loomrl.errors import ConfigError
from tests.algorithms.control_envs import ACTIONS
from tests.algorithms.control_support import MARKS, Weights, ppo, same, success, weights

pytestmark = MARKS
ERRORS = "net.errors_MC"
"""What the network of WEAVE has beside that of PPO."""


def weave(env: str = "Identity", keywords: Any = None, *, fragment: int = 16, **settings: Any) -> WeaveConfig:
    """A small one that learns in seconds."""
    settings = {"learning_rate": 3e-3, "minibatch": 64, "gamma": 0.0} | settings
    made = WeaveConfig().environment(env, env_config=keywords or {}).debugging(seed=7).training(**settings)
    return made.env_runners(num_envs_per_env_runner=8, rollout_fragment_length=fragment)


def trained(config: Any, updates: int = 4) -> Weights:
    algo = config.build_algo()
    for _ in range(updates):
        algo.train()
    algo.stop()
    return weights(algo)


@pytest.mark.parametrize("kind", ACTIONS)
def test_one_expert_and_one_critic_are_ppo_to_the_last_bit(kind: str) -> None:
    asked = {"gamma": 0.9, "normalize_observations": True, "normalize_rewards": True, "value_clip": 0.3}
    theirs = trained(ppo(keywords={"kind": kind}, **asked))
    ours = trained(weave(keywords={"kind": kind}, experts=1, critics=1, **asked))
    assert ours.pop(ERRORS).tolist() == [[1.0]]
    assert same(theirs, ours)


@pytest.mark.parametrize("kind", ACTIONS)
def test_several_experts_and_critics_master_every_kind_of_action(kind: str) -> None:
    algo = weave(keywords={"kind": kind}, experts=3, critics=3).build_algo()
    for _ in range(100):
        told = algo.train()
    assert success(algo) > (0.8 if kind == "box" else 0.95)
    measured = algo.measured(told)
    assert sum(measured[f"gate/use/{k}"] for k in range(3)) == pytest.approx(1.0, abs=1e-4)
    assert measured["gate/imbalance"] < 0.3
    assert measured["value/disagreement"] > 0
    algo.stop()


def test_the_same_seed_gives_the_same_weights() -> None:
    assert same(trained(weave(experts=2, critics=2)), trained(weave(experts=2, critics=2)))


def test_a_resumed_run_ends_as_one_that_never_stopped(tmp_path: Path) -> None:
    asked = weave(experts=2, critics=2, normalize_rewards=True)
    whole = asked.build_algo()
    for _ in range(2):
        whole.train()
    whole.save_to_path(tmp_path / "checkpoint")
    again = asked.copy(copy_frozen=False).build_algo()
    again.restore_from_path(tmp_path / "checkpoint")
    for _ in range(2):
        whole.train()
        again.train()
    assert same(weights(whole), weights(again))
    whole.stop()
    again.stop()


def test_a_critic_that_was_wrong_counts_for_less() -> None:
    algo = weave(experts=1, critics=2, gamma=0.9).build_algo()
    algo.train()
    net = algo.get_module().net
    net.errors_MC.copy_(torch.tensor([[1.0], [3.0]]))
    torch.testing.assert_close(net.trust[:, 0], torch.tensor([0.75, 0.25]))
    values = torch.tensor([[[4.0], [8.0]]])
    assert net.woven(values).tolist() == [5.0]
    algo.stop()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"experts": 0}, "experts=0: Input should be greater than or equal to 1"),
        ({"critics": 0}, "critics=0: Input should be greater than or equal to 1"),
        ({"preference": {"kind": "fixed", "weights": [0.5, 0.5]}}, "preference has no effect without objectives"),
        ({"objectives": ["a", "a"]}, "every name once"),
        ({"objectives": ["a", "b"], "reference": [0.0]}, "2 are needed, one for each of objectives"),
        ({"objectives": ["a", "b"], "preference": {"kind": "fixed", "weights": [0.5, 0.6]}}, "they must sum to 1"),
        ({"objectives": ["a", "b"], "preference": {"kind": "fixed", "weights": [1.5, -0.5]}}, "greater than or equal"),
        ({"objectives": ["a", "b"], "curiosity": {"coefficient": 1.0}}, "curiosity"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        weave(**settings).build_algo()
