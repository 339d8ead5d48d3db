"""Mixtures of experts: exact where they promise it, on the right side where they promise a bound."""

import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from loomrl.control.distribution import Distribution, SquashedGaussian, open_distribution
from loomrl.control.mixture import Mixture, open_mixture
from loomrl.control.space import acts

BASES: dict[str, Distribution] = {
    "discrete": open_distribution(acts(spaces.Discrete(4))),
    "multi_discrete": open_distribution(acts(spaces.MultiDiscrete([2, 3]))),
    "multi_binary": open_distribution(acts(spaces.MultiBinary(3))),
    "box": open_distribution(acts(spaces.Box(-1, 1, (2,)))),
    "squashed": SquashedGaussian(2),
}
COUNT = 20_000
kinds = st.sampled_from(sorted(BASES))
seeds = st.integers(0, 2**32)


def drawn(distribution: Distribution, seed: int, *, count: int = 16, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, distribution.inputs, generator=generator)


def sampled(distribution: Distribution, inputs: Tensor, seed: int = 5) -> Tensor:
    noise = distribution.noise(len(inputs), generator=torch.Generator().manual_seed(seed))
    return distribution.sample(inputs, noise)


@given(kinds, seeds, st.floats(0.01, 5))
def test_one_expert_is_its_base_to_the_last_bit(kind: str, seed: int, scale: float) -> None:
    base = BASES[kind]
    mixture = Mixture(base, 1)
    inputs, other = drawn(mixture, seed, scale=scale), drawn(mixture, seed + 1, scale=scale)
    own, own_other, noise = inputs[:, 1:], other[:, 1:], mixture.noise(16)
    actions = base.sample(own, noise[:, 1:])
    assert torch.equal(mixture.sample(inputs, noise), actions)
    assert torch.equal(mixture.logp(inputs, actions), base.logp(own, actions))
    assert torch.equal(mixture.entropy(inputs), base.entropy(own))
    assert torch.equal(mixture.kl(inputs, other), base.kl(own, own_other))
    assert torch.equal(mixture.mode(inputs), base.mode(own))
    assert open_mixture(base, 1) is base


@given(kinds, seeds, st.integers(2, 4))
def test_experts_that_agree_are_one(kind: str, seed: int, experts: int) -> None:
    base, mixture = BASES[kind], Mixture(BASES[kind], experts)
    own, gate = drawn(base, seed), torch.randn(16, experts)
    parts = own.unflatten(-1, (2 if kind in ("box", "squashed") else 1, 1, -1)).expand(-1, -1, experts, -1)
    inputs = torch.cat([gate, parts.flatten(1)], -1)
    actions = sampled(base, own)
    torch.testing.assert_close(mixture.logp(inputs, actions), base.logp(own, actions))
    torch.testing.assert_close(mixture.entropy(inputs), base.entropy(own))
    torch.testing.assert_close(mixture.mode(inputs), base.mode(own))


@given(kinds, seeds, st.integers(2, 4))
def test_the_density_is_the_weighted_sum_of_the_experts(kind: str, seed: int, experts: int) -> None:
    mixture = Mixture(BASES[kind], experts)
    inputs = drawn(mixture, seed)
    actions = sampled(mixture, inputs)
    each = [mixture.base.logp(part, actions) for part in mixture.each(inputs).unbind(1)]
    expected = (mixture.gate(inputs) + torch.stack(each, 1)).exp().sum(1)
    torch.testing.assert_close(mixture.logp(inputs, actions).exp(), expected)


@given(kinds, seeds)
def test_folded_it_says_the_same(kind: str, seed: int) -> None:
    mixture = Mixture(BASES[kind], 3)
    inputs = drawn(mixture, seed)
    actions = sampled(mixture, inputs)
    folded, asked = mixture.folded(inputs)
    torch.testing.assert_close(folded.logp(asked, actions), mixture.logp(inputs, actions))
    torch.testing.assert_close(folded.entropy(asked), mixture.entropy(inputs))


def test_probabilities_of_all_choices_sum_to_one() -> None:
    mixture = Mixture(BASES["discrete"], 3)
    inputs = drawn(mixture, 1)
    every = [mixture.logp(inputs, torch.full((16,), choice)).exp() for choice in range(4)]
    torch.testing.assert_close(torch.stack(every).sum(0), torch.ones(16))
    assert torch.equal(mixture.mode(inputs), torch.stack(every).argmax(0))


@pytest.mark.parametrize("kind", BASES)
def test_entropy_is_what_samples_say_or_below(kind: str) -> None:
    mixture = Mixture(BASES[kind], 3)
    inputs = drawn(mixture, 3, count=1).expand(COUNT, -1)
    logp = mixture.logp(inputs, sampled(mixture, inputs))
    gap, error = float(-logp.mean() - mixture.entropy(inputs)[0]), 4 * float(logp.std()) / COUNT**0.5
    if kind == "discrete":
        assert abs(gap) < error
    elif kind != "squashed":  # the base's own is an upper bound there
        assert gap > -error


@pytest.mark.parametrize("kind", BASES)
def test_divergence_is_what_samples_say_or_above(kind: str) -> None:
    mixture = Mixture(BASES[kind], 3)
    inputs, other = (drawn(mixture, seed, count=1, scale=0.5).expand(COUNT, -1) for seed in (3, 4))
    actions = sampled(mixture, inputs)
    ratio = mixture.logp(inputs, actions) - mixture.logp(other, actions)
    gap, error = float(mixture.kl(inputs, other)[0] - ratio.mean()), 4 * float(ratio.std()) / COUNT**0.5
    assert abs(gap) < error if kind == "discrete" else gap > -error
