"""Several experts as one distribution: a gate says how much each counts. π(a|s) = Σ wₖ(s) πₖ(a|s), by log-sum-exp.

Axes: `_B` decisions, `_K` experts, `_I` numbers that a distribution takes, `_W` numbers of noise.
"""

import torch
from torch import Tensor

from loomrl.control.distribution import Categorical, Distribution, Gaussian, SquashedGaussian


class Mixture:
    """Over the actions of `base`. The network puts out logits of the gate, then what the experts take.

    What a network says in parts (means, then deviations) comes part by part, in each part expert by expert: a network
    is asked for a wider layer, and for nothing else. With one expert every number is that of `base`, to the last bit.
    """

    def __init__(self, base: Distribution, experts: int) -> None:
        self.base, self.experts = base, experts
        self.squashed = base.squashed
        self.inputs = experts * (1 + base.inputs)
        self._parts = 2 if isinstance(base, Gaussian | SquashedGaussian) else 1

    def gate(self, inputs_BI: Tensor) -> Tensor:
        """Logarithms of the experts' weights, `[B, K]`."""
        return inputs_BI[:, : self.experts].log_softmax(-1)

    def each(self, inputs_BI: Tensor) -> Tensor:
        """What each expert's distribution takes, `[B, K, I]`."""
        parts: Tensor = inputs_BI[:, self.experts :].unflatten(-1, (self._parts, self.experts, -1))
        return parts.transpose(1, 2).flatten(2)

    def folded(self, inputs_BI: Tensor) -> tuple[Distribution, Tensor]:
        """The same distribution for whoever asks more than once: of one choice `base`, and what it takes for it."""
        return (self.base, self._choices(inputs_BI)) if isinstance(self.base, Categorical) else (self, inputs_BI)

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """See Distribution; exact."""
        repeated = actions.repeat_interleave(self.experts, 0)
        logp_BK = self.base.logp(self.each(inputs_BI).flatten(0, 1), repeated).view(-1, self.experts)
        return (self.gate(inputs_BI) + logp_BK).logsumexp(-1)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """Of one choice exact; else a lower bound, the weighted mean of the experts' (exact where they agree)."""
        if isinstance(self.base, Categorical):
            logp_BI = self._choices(inputs_BI)
            return -(logp_BI.exp() * logp_BI).sum(-1)
        entropy_BK = self.base.entropy(self.each(inputs_BI).flatten(0, 1)).view(-1, self.experts)
        return (self.gate(inputs_BI).exp() * entropy_BK).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """Of one choice exact; else an upper bound: the gates' divergence and the weighted mean of the experts'."""
        if isinstance(self.base, Categorical):
            logp_BI = self._choices(inputs_BI)
            return (logp_BI.exp() * (logp_BI - self._choices(other_BI))).sum(-1)
        gate_BK = self.gate(inputs_BI)
        pairs = self.each(inputs_BI).flatten(0, 1), self.each(other_BI).flatten(0, 1)
        apart_BK = gate_BK - self.gate(other_BI) + self.base.kl(*pairs).view(-1, self.experts)
        return (gate_BK.exp() * apart_BK).sum(-1)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Gumbel noise for the gate, then that of the expert that is chosen."""
        gumbel = Categorical(self.experts).noise(*shape, generator=generator)
        return torch.cat([gumbel, self.base.noise(*shape, generator=generator)], -1)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """An expert by its weight, then an action of its own."""
        chosen_B = (inputs_BI[:, : self.experts] + noise_BW[:, : self.experts]).argmax(-1)
        return self.base.sample(_chosen(self.each(inputs_BI), chosen_B), noise_BW[:, self.experts :])

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """Of one choice the likeliest; else the likeliest of the experts' own modes."""
        each_BKI = self.each(inputs_BI)
        if self.experts == 1:
            return self.base.mode(each_BKI[:, 0])
        if isinstance(self.base, Categorical):
            return self._choices(inputs_BI).argmax(-1)
        modes = [self.base.mode(each_BKI[:, k]) for k in range(self.experts)]
        best_B = torch.stack([self.logp(inputs_BI, mode) for mode in modes]).argmax(0)
        return _chosen(torch.stack(modes, 1), best_B)

    def _choices(self, inputs_BI: Tensor) -> Tensor:
        """Log-probability of every choice."""
        return (self.gate(inputs_BI)[:, :, None] + self.each(inputs_BI).log_softmax(-1)).logsumexp(1)


def _chosen(each_BKX: Tensor, which_B: Tensor) -> Tensor:
    """`[B, X]`: of every row the one that is asked for."""
    return each_BKX.gather(1, which_B[:, None, None].expand(-1, 1, each_BKX.shape[2]))[:, 0]


def open_mixture(base: Distribution, experts: int) -> Distribution:
    """`base` itself where there is one expert: it needs no gate."""
    return base if experts == 1 else Mixture(base, experts)
