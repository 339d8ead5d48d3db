"""Several experts as one distribution, each with a weight. π(a|s) = Σ wₖ(s) πₖ(a|s), by log-sum-exp.

Axes: `_B` decisions, `_K` experts, `_I` numbers that a distribution takes, `_W` numbers of noise.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from loomrl.control.distribution import Categorical, Distribution, Gaussian, SquashedGaussian, even
from loomrl.errors import ConfigError


class Ways(NamedTuple):
    """Exploration per expert; empty if all explore as the base does."""

    temperatures: tuple[float, ...] = ()
    """Divide logits and multiply standard deviations."""
    epsilons: tuple[float, ...] = ()
    """Probability of a uniformly random choice by the expert."""


NO_WAYS = Ways()


class Mixture:
    """A mixture over the actions of `base`. The network puts out the logits of their weights, then the experts' inputs.

    Outputs with parts (means, then standard deviations) come part by part, and within each part expert by expert: a
    network only needs a wider layer. With one expert every number equals that of `base`, to the last bit.
    """

    def __init__(self, base: Distribution, experts: int, ways: Ways = NO_WAYS) -> None:
        self.base = base
        self.experts = experts
        self.ways = ways
        self.squashed = base.squashed
        self.inputs = experts * (1 + base.inputs)
        self._is_real = isinstance(base, Gaussian | SquashedGaussian)
        if self._is_real and any(ways.epsilons):
            raise ConfigError("epsilon: real-valued actions are not chosen evenly. Use a temperature above 1 for them.")

    def log_weights(self, inputs_BI: Tensor) -> Tensor:
        """Logarithms of the experts' weights, `[B, K]`."""
        return inputs_BI[:, : self.experts].log_softmax(-1)

    def each(self, inputs_BI: Tensor) -> Tensor:
        """The inputs of each expert's distribution, `[B, K, I]`."""
        said = inputs_BI[:, self.experts :]
        heat_K1 = said.new_tensor(self.ways.temperatures)[:, None] if self.ways.temperatures else None
        if not self._is_real:
            logits_BKI = said.view(-1, self.experts, self.base.inputs)
            return logits_BKI if heat_K1 is None else logits_BKI / heat_K1
        mean_BKD, log_std_BKD = said.view(-1, 2, self.experts, self.base.inputs // 2).unbind(1)
        return torch.cat([mean_BKD, log_std_BKD if heat_K1 is None else log_std_BKD + heat_K1.log()], -1)

    def joint(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """log wₖ πₖ(a): the joint log-probability of action and expert, `[B, K]`; exact."""
        if isinstance(self.base, Categorical):
            return self._choices(inputs_BI).gather(-1, actions[:, None, None].expand(-1, self.experts, 1))[:, :, 0]
        each_BKI = self.each(inputs_BI)
        repeated = actions.repeat_interleave(self.experts, 0)
        logp_BK = self.base.logp(each_BKI.flatten(0, 1), repeated).view(-1, self.experts)
        if self.ways.epsilons:
            even_B1 = self.base.logp(even(each_BKI[:, 0]), actions)[:, None]
            logp_BK = self._strayed(logp_BK, even_B1)
        return self.log_weights(inputs_BI) + logp_BK

    def folded(self, inputs_BI: Tensor) -> tuple[Distribution, Tensor]:
        """The same distribution for repeated use: for one choice, `base` with its inputs."""
        if isinstance(self.base, Categorical):
            return self.base, self._choices(inputs_BI).logsumexp(1)
        return self, inputs_BI

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """Log-probability; exact."""
        return self.joint(inputs_BI, actions).logsumexp(-1)

    def entropies(self, inputs_BI: Tensor) -> Tensor:
        """Entropy of every expert, `[B, K]`, without its random choices."""
        return self.base.entropy(self.each(inputs_BI).flatten(0, 1)).view(-1, self.experts)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """Exact for one choice; else a lower bound, the weighted mean of the experts' (exact if they agree)."""
        if isinstance(self.base, Categorical):
            logp_BI = self._choices(inputs_BI).logsumexp(1)
            return -(logp_BI.exp() * logp_BI).sum(-1)
        return (self.log_weights(inputs_BI).exp() * self.entropies(inputs_BI)).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """Exact for one choice; else an upper bound: the weights' divergence and the weighted mean of the experts'."""
        if isinstance(self.base, Categorical):
            logp_BI, other_logp_BI = (self._choices(x).logsumexp(1) for x in (inputs_BI, other_BI))
            return (logp_BI.exp() * (logp_BI - other_logp_BI)).sum(-1)
        logw_BK = self.log_weights(inputs_BI)
        pairs = self.each(inputs_BI).flatten(0, 1), self.each(other_BI).flatten(0, 1)
        apart_BK = logw_BK - self.log_weights(other_BI) + self.base.kl(*pairs).view(-1, self.experts)
        return (logw_BK.exp() * apart_BK).sum(-1)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Gumbel noise to draw an expert, a uniform number if experts choose at random, then noise of the one drawn."""
        noises = [Categorical(self.experts).noise(*shape, generator=generator)]
        if self.ways.epsilons:
            noises.append(torch.rand(*shape, 1, generator=generator))
        return torch.cat([*noises, self.base.noise(*shape, generator=generator)], -1)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """An expert by its weight, then one of its actions."""
        chosen_B = (inputs_BI[:, : self.experts] + noise_BW[:, : self.experts]).argmax(-1)
        taken_BI = self.each(inputs_BI)[torch.arange(len(chosen_B)), chosen_B]
        first = self.experts
        if self.ways.epsilons:
            strays_B = noise_BW[:, first] < noise_BW.new_tensor(self.ways.epsilons)[chosen_B]
            taken_BI = torch.where(strays_B[:, None], even(taken_BI), taken_BI)
            first = first + 1
        return self.base.sample(taken_BI, noise_BW[:, first:])

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """For one choice the likeliest; else the likeliest of the experts' own modes."""
        each_BKI = self.each(inputs_BI)
        if self.experts == 1:
            return self.base.mode(each_BKI[:, 0])
        if isinstance(self.base, Categorical):
            return self._choices(inputs_BI).logsumexp(1).argmax(-1)
        modes = [self.base.mode(each_BKI[:, k]) for k in range(self.experts)]
        best_B = torch.stack([self.logp(inputs_BI, mode) for mode in modes]).argmax(0)
        return _chosen(torch.stack(modes, 1), best_B)

    def _choices(self, inputs_BI: Tensor) -> Tensor:
        """For one choice: the joint log-probability of choice and expert, `[B, K, I]`."""
        each_BKI = self.each(inputs_BI)
        logp_BKI = each_BKI.log_softmax(-1)
        if self.ways.epsilons:
            logp_BKI = self._strayed(logp_BKI, even(each_BKI).log_softmax(-1))
        return self.log_weights(inputs_BI)[:, :, None] + logp_BKI

    def _strayed(self, logp_BK: Tensor, even_BK: Tensor) -> Tensor:
        """Mixed with each expert's uniform random choices; experts are the second axis."""
        epsilon_K = logp_BK.new_tensor(self.ways.epsilons).view(-1, *[1] * (logp_BK.dim() - 2))
        return torch.logaddexp((-epsilon_K).log1p() + logp_BK, epsilon_K.log() + even_BK)


def information(joint_BK: Tensor, logw_BK: Tensor) -> Tensor:
    """Nats of information that an action gives about its expert: Σ rₖ log(rₖ / wₖ), with rₖ = p(k | s, a)."""
    responsible_BK = joint_BK.log_softmax(-1)
    return (responsible_BK.exp() * (responsible_BK - logw_BK)).sum(-1)


def _chosen(each_BKX: Tensor, which_B: Tensor) -> Tensor:
    """`[B, X]`: the selected entry of every row."""
    return each_BKX.gather(1, which_B[:, None, None].expand(-1, 1, each_BKX.shape[2]))[:, 0]


def open_mixture(base: Distribution, experts: int, ways: Ways = NO_WAYS) -> Distribution:
    """`base` itself for a single expert without exploration of its own: it needs no weights."""
    return base if experts == 1 and ways == NO_WAYS else Mixture(base, experts, ways)
