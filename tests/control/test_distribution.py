"""Distributions over actions against those of torch, and sampling against their own densities."""

from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch import distributions as theirs

from loomrl.control.distribution import ActionDistribution, open_distribution
from loomrl.control.space import acts

SPACES = {
    "discrete": spaces.Discrete(4),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2,)),
}
COUNT = 20_000


def reference(kind: str, inputs: Tensor) -> Any:
    """Torch's distribution of the same kind, with one event per row."""
    if kind == "discrete":
        return theirs.Categorical(logits=inputs)
    if kind == "multi_binary":
        return theirs.Independent(theirs.Bernoulli(logits=inputs), 1)
    mean, log_std = inputs.chunk(2, -1)
    return theirs.Independent(theirs.Normal(mean, log_std.exp()), 1)


@pytest.fixture(params=SPACES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def distribution(kind: str) -> ActionDistribution:
    return open_distribution(acts(SPACES[kind]))


def some_inputs(distribution: ActionDistribution, count: int = 64) -> Tensor:
    return torch.randn(count, distribution.inputs, generator=torch.Generator().manual_seed(3))


def drawn(distribution: ActionDistribution, inputs: Tensor) -> Tensor:
    noise = distribution.noise(len(inputs), generator=torch.Generator().manual_seed(5))
    return distribution.sample(inputs, noise)


@pytest.mark.parametrize("kind", ["discrete", "multi_binary", "box"], indirect=True)
def test_numbers_are_those_of_torch(kind: str, distribution: ActionDistribution) -> None:
    inputs = some_inputs(distribution)
    others = some_inputs(distribution).flip(0)
    actions = drawn(distribution, inputs)
    torch_one = reference(kind, inputs)
    asked = actions.float() if kind == "multi_binary" else actions
    torch.testing.assert_close(distribution.logp(inputs, actions), torch_one.log_prob(asked))
    torch.testing.assert_close(distribution.entropy(inputs), torch_one.entropy())
    divergence = theirs.kl_divergence(torch_one, reference(kind, others))
    torch.testing.assert_close(distribution.kl(inputs, others), divergence)


def test_several_choices_are_as_likely_as_all_of_them_together() -> None:
    distribution = open_distribution(acts(SPACES["multi_discrete"]))
    inputs = some_inputs(distribution)
    actions = drawn(distribution, inputs)
    parts = inputs.split([2, 3], -1)
    each = [theirs.Categorical(logits=part) for part in parts]
    expected = sum(one.log_prob(actions[:, d]) for d, one in enumerate(each))
    torch.testing.assert_close(distribution.logp(inputs, actions), expected)
    torch.testing.assert_close(distribution.entropy(inputs), sum(one.entropy() for one in each))


def test_samples_come_as_often_as_their_probability_says(distribution: ActionDistribution) -> None:
    inputs = some_inputs(distribution, 1).expand(COUNT, -1)
    actions = drawn(distribution, inputs)
    # The mean negative log-probability of samples estimates the entropy.
    logp = distribution.logp(inputs, actions)
    assert abs(float(-logp.mean() - distribution.entropy(inputs)[0])) < 4 * float(logp.std()) / COUNT**0.5


def test_no_action_is_likelier_than_the_mode(distribution: ActionDistribution) -> None:
    inputs = some_inputs(distribution)
    best = distribution.logp(inputs, distribution.mode(inputs))
    assert (distribution.logp(inputs, drawn(distribution, inputs)) <= best + 1e-6).all()


def test_a_policy_does_not_diverge_from_itself(distribution: ActionDistribution) -> None:
    inputs = some_inputs(distribution)
    torch.testing.assert_close(distribution.kl(inputs, inputs), torch.zeros(len(inputs)))
    assert (distribution.kl(inputs, inputs.flip(0)) >= -1e-6).all()
