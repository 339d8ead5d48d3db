"""WEAVE on rewards that are numbers: with one of everything it is PPO, with more it learns as well."""

from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from loomrl.config.control import Network
from loomrl.control.space import acts, seen
from loomrl.control.weave import Threads, WeaveNet, fit_doubt
from loomrl.errors import ConfigError
from tests.algorithms.control_envs import ACTIONS
from tests.algorithms.control_support import MARKS, learn, ppo, resumed, same, success, trained, weave, weights

pytestmark = MARKS
ERRORS = "net.errors_MC"
"""A part of WEAVE's network that PPO's lacks."""


def net_of(threads: Threads) -> WeaveNet:
    torch.manual_seed(3)
    view = seen(spaces.Box(-1, 1, (3,)))
    kind = acts(spaces.Discrete(2))
    return WeaveNet(view, kind, Network(hidden=(32,)), threads, normalize=False)


@pytest.mark.parametrize("kind", ACTIONS)
def test_one_expert_and_one_critic_are_ppo_to_the_last_bit(kind: str) -> None:
    asked = {"gamma": 0.9, "normalize_observations": True, "normalize_rewards": True, "value_clip": 0.3}
    theirs = weights(trained(ppo(keywords={"kind": kind}, **asked), 3))
    ours = weights(trained(weave(keywords={"kind": kind}, experts=1, critics=1, **asked), 3))
    assert ours.pop(ERRORS).tolist() == [[1.0]]
    assert same(theirs, ours)


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.slow
def test_several_experts_and_critics_master_every_kind_of_action(kind: str) -> None:
    algo = weave(keywords={"kind": kind}, experts=3, critics=3).build_algo()
    apart = 0.0
    for _ in range(100):
        measured = algo.metrics_of(algo.train())
        apart = max(apart, measured["value/disagreement"])
    assert success(algo) > (0.8 if kind == "box" else 0.95)
    assert sum(measured[f"expert/use/{k}"] for k in range(3)) == pytest.approx(1.0, abs=1e-4)
    assert measured["expert/imbalance"] < 0.3
    assert apart > 0, (
        "critics that begin alike are one critic; those that have mastered the task may agree to the last bit"
    )


def test_the_same_seed_gives_the_same_weights() -> None:
    one, other = (weights(trained(weave(experts=2, critics=2))) for _ in range(2))
    assert same(one, other)


def test_a_critic_that_was_wrong_counts_for_less() -> None:
    net = net_of(Threads(critics=2))
    net.errors_MC.copy_(torch.tensor([[1.0], [3.0]]))
    judged = net.judge(torch.zeros(1, 3))._replace(values_BMC=torch.tensor([[[4.0], [8.0]]]))
    assert net.woven(judged).tolist() == [5.0]


def test_disagreement_lowers_the_estimate_of_pessimists() -> None:
    net = net_of(Threads(critics=2, pessimism=0.5))
    judged = net.judge(torch.zeros(1, 3))._replace(values_BMC=torch.tensor([[[4.0], [8.0]]]))
    assert net.woven(judged).item() == pytest.approx(6.0 - 0.5 * 8**0.5)


def test_a_critic_is_trusted_where_it_is_right() -> None:
    net = net_of(Threads(critics=2))
    seen = torch.rand(512, 3, generator=torch.Generator().manual_seed(1)) - 0.5
    judged = net.judge(net.features(seen))
    noise = torch.randn(512, 2, 1, generator=torch.Generator().manual_seed(2))
    is_left = (seen[:, :1] < 0)[:, :, None]
    wrong = (noise * torch.where(is_left, torch.tensor([[[0.3], [1.0]]]), torch.tensor([[[1.0], [0.3]]]))).square()
    net.errors_MC.copy_(wrong.mean(0))
    for _ in range(300):
        fit_doubt(net, judged.body_BF, wrong, reduced=lambda numbers: numbers)
    doubt = net.judge(net.features(seen)).doubt_BMC
    trust = (-doubt).softmax(1)[:, 0, 0]
    assert float(trust[seen[:, 0] < -0.2].min()) > 0.6
    assert float(trust[seen[:, 0] > 0.2].max()) < 0.4
    assert float((wrong / doubt.exp()).mean()) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    "settings",
    [
        {"exploration": [{}, {"temperature": 2, "epsilon": 0.1}, {"entropy": 3}], "entropy_coefficient": 0.01},
        {"diversity": 0.02, "pessimism": 0.5},
        {"curiosity": {}, "exploration": [{"curiosity": 0}, {}, {"curiosity": 2}]},
        {"wonder": 0.1},
    ],
)
def test_experts_that_explore_in_their_own_ways_repeat_and_resume(settings: Any, tmp_path: Path) -> None:
    asked = weave(experts=3, critics=3, normalize_rewards=True, **settings)
    algo, _ = resumed(asked, tmp_path)
    told = algo.metrics_of(algo.train())
    assert told["expert/imbalance"] < 0.3
    assert told["expert/diversity"] > -1e-6
    assert told["value/calibration"] > 0


def test_the_experts_that_are_curious_learn_what_is_new() -> None:
    """Novelty teaches an action as much as the experts that may have taken it are curious."""
    algo = weave(experts=2, critics=1, curiosity={"coefficient": 2.0}, exploration=[{"curiosity": 0}, {}]).build_algo()
    learner = algo.learner_group._learner
    mixture = learner.distribution
    inputs = torch.zeros(2, mixture.inputs)
    inputs[:, 2], inputs[:, 2 + mixture.base.inputs + 1] = 9.0, 9.0  # the first expert chooses 0, the second 1
    taught = learner._experts.curious(inputs, torch.tensor([0, 1]))
    torch.testing.assert_close(taught, torch.tensor([0.0, 2.0]), atol=1e-2, rtol=0)


def test_squashed_actions_stay_within_their_bounds() -> None:
    algo = weave(keywords={"kind": "box"}, experts=2, critics=2, squashed=True).build_algo()
    learn(algo, 0.8, 100)
    (rollout,) = algo.env_runner.sample()
    assert abs(rollout.actions).max() <= 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"preference": {"kind": "fixed", "weights": [0.5, 0.5]}}, "preference has no effect without objectives"),
        ({"objectives": ["a", "a"]}, "every name once"),
        ({"objectives": ["a", "b"], "reference": [0.0]}, "2 are needed, one for each of objectives"),
        ({"objectives": ["a", "b"], "preference": {"kind": "fixed", "weights": [0.5, 0.6]}}, "they must sum to 1"),
        ({"experts": 2, "exploration": [{}]}, "1 are given, one for each of 2 experts"),
        ({"critics": 1, "pessimism": 1.0}, "one critic agrees with itself"),
        ({"critics": 1, "wonder": 1.0}, "one critic agrees with itself"),
        ({"experts": 1, "diversity": 1.0}, "one expert differs from none"),
        ({"keywords": {"kind": "box"}, "experts": 1, "exploration": [{"epsilon": 0.1}]}, "Use a temperature"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        weave(**settings).build_algo()
