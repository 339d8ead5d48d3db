"""Mixtures of experts: exact where they promise it, on the right side where they promise a bound."""

import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from loomrl.control.distribution import ActionDistribution, SquashedGaussian, open_distribution
from loomrl.control.space import acts
from loomrl.control.weave import Mixture, Ways, information, open_mixture
from loomrl.errors import ConfigError

BASES: dict[str, ActionDistribution] = {
    "discrete": open_distribution(acts(spaces.Discrete(4))),
    "multi_discrete": open_distribution(acts(spaces.MultiDiscrete([2, 3]))),
    "multi_binary": open_distribution(acts(spaces.MultiBinary(3))),
    "box": open_distribution(acts(spaces.Box(-1, 1, (2,)))),
    "squashed": SquashedGaussian(2),
}
COUNT = 20_000
kinds = st.sampled_from(sorted(BASES))
seeds = st.integers(0, 2**32)


def drawn(distribution: ActionDistribution, seed: int, *, count: int = 16, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(count, distribution.inputs, generator=generator)


def sampled(distribution: ActionDistribution, inputs: Tensor, seed: int = 5) -> Tensor:
    noise = distribution.noise(len(inputs), generator=torch.Generator().manual_seed(seed))
    return distribution.sample(inputs, noise)


@given(kinds, seeds, st.floats(0.01, 5))
def test_one_expert_is_its_base_to_the_last_bit(kind: str, seed: int, scale: float) -> None:
    base = BASES[kind]
    mixture = Mixture(base, 1)
    inputs = drawn(mixture, seed, scale=scale)
    other = drawn(mixture, seed + 1, scale=scale)
    own = inputs[:, 1:]
    own_other = other[:, 1:]
    noise = mixture.noise(16)
    actions = base.sample(own, noise[:, 1:])
    assert torch.equal(mixture.sample(inputs, noise), actions)
    assert torch.equal(mixture.logp(inputs, actions), base.logp(own, actions))
    assert torch.equal(mixture.entropy(inputs), base.entropy(own))
    assert torch.equal(mixture.kl(inputs, other), base.kl(own, own_other))
    assert torch.equal(mixture.mode(inputs), base.mode(own))
    assert open_mixture(base, 1) is base


@given(kinds, seeds, st.integers(2, 4))
def test_the_density_is_the_weighted_sum_of_the_experts(kind: str, seed: int, experts: int) -> None:
    mixture = Mixture(BASES[kind], experts)
    inputs = drawn(mixture, seed)
    actions = sampled(mixture, inputs)
    each = [mixture.base.logp(part, actions) for part in mixture.each(inputs).unbind(1)]
    expected = (mixture.log_weights(inputs) + torch.stack(each, 1)).exp().sum(1)
    torch.testing.assert_close(mixture.logp(inputs, actions).exp(), expected)


@given(kinds, seeds)
def test_folded_it_says_the_same(kind: str, seed: int) -> None:
    mixture = Mixture(BASES[kind], 3)
    inputs = drawn(mixture, seed)
    actions = sampled(mixture, inputs)
    folded, asked = mixture.fold(inputs)
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
    gap = float(-logp.mean() - mixture.entropy(inputs)[0])
    error = 4 * float(logp.std()) / COUNT**0.5
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
    gap = float(mixture.kl(inputs, other)[0] - ratio.mean())
    error = 4 * float(ratio.std()) / COUNT**0.5
    assert abs(gap) < error if kind == "discrete" else gap > -error


CHOICES = ["discrete", "multi_discrete", "multi_binary"]
REAL = ["box", "squashed"]


@pytest.mark.parametrize("kind", CHOICES)
def test_an_expert_strays_as_often_as_it_is_told(kind: str) -> None:
    mixture = Mixture(BASES[kind], 2, Ways(epsilons=(0.0, 0.5)))
    inputs = 4 * drawn(mixture, 2, count=1).expand(COUNT, -1)
    actions = sampled(mixture, inputs)
    logp = mixture.logp(inputs, actions)
    every, counts = torch.unique(torch.cat([actions.view(COUNT, -1), logp[:, None]], 1), dim=0, return_counts=True)
    expected = every[:, -1].exp()
    assert ((counts / COUNT - expected).abs() < 5 * (expected / COUNT).sqrt() + 1e-4).all()
    assert float(expected.sum()) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("kind", BASES)
def test_heat_makes_an_expert_less_certain_and_leaves_the_others(kind: str) -> None:
    cold = Mixture(BASES[kind], 2)
    warm = Mixture(BASES[kind], 2, Ways(temperatures=(1.0, 3.0)))
    inputs = drawn(cold, 5)
    before, after = cold.entropies(inputs), warm.entropies(inputs)
    torch.testing.assert_close(before[:, 0], after[:, 0])
    assert (after[:, 1] > before[:, 1]).all()
    each = [warm.base.logp(part, sampled(warm, inputs)) for part in warm.each(inputs).unbind(1)]
    expected = (warm.log_weights(inputs) + torch.stack(each, 1)).logsumexp(1)
    torch.testing.assert_close(warm.logp(inputs, sampled(warm, inputs)), expected)


@pytest.mark.parametrize("kind", REAL)
def test_real_numbers_are_not_chosen_evenly(kind: str) -> None:
    with pytest.raises(ConfigError, match="Use a temperature"):
        Mixture(BASES[kind], 2, Ways(epsilons=(0.0, 0.1)))


@pytest.mark.parametrize("kind", BASES)
def test_an_action_tells_who_took_it_only_where_experts_differ(kind: str) -> None:
    mixture = Mixture(BASES[kind], 2)
    inputs = drawn(mixture, 6)
    inputs[:, :2] = 0
    inputs[:, 2:] = (
        inputs[:, 2:]
        .unflatten(1, (-1, 2, mixture.base.inputs // (1 + (kind in REAL))))[:, :, :1]
        .expand(-1, -1, 2, -1)
        .flatten(1)
    )
    alike = sampled(mixture, inputs)
    torch.testing.assert_close(
        information(mixture.joint(inputs, alike), mixture.log_weights(inputs)), torch.zeros(16), atol=1e-5, rtol=0
    )
    inputs[:, 2:] += 8 * drawn(mixture, 7)[:, 2:]
    told = information(mixture.joint(inputs, sampled(mixture, inputs)), mixture.log_weights(inputs))
    assert 0.1 < float(told.mean()) <= 0.6932
