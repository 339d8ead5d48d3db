"""Distributions over actions as functions of what a network puts out. Chance comes from outside, as noise.

Axes: `_B` decisions, `_D` numbers in one action, `_I` numbers that the network puts out, `_W` numbers of noise.
"""

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from loomrl.control.space import Acts

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
NEARLY = 1 - 1e-6


class Distribution(Protocol):
    """What a policy says with the numbers it puts out. Actions are `[B]` for one choice, else `[B, D]`."""

    inputs: int
    """Numbers per decision."""
    squashed: bool
    """Whether real-valued actions are between -1 and 1, to be stretched to the bounds of the action space."""

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """Log-probability (density) of given actions, `[B]`."""

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """Entropy in nats, `[B]`."""

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """KL divergence from the distribution of `inputs` to that of `other`, `[B]`."""

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """What `sample` needs for so many decisions, `[*shape, W]`; a rollout draws all of its noise at once."""

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """Drawn actions."""

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """The likeliest actions."""


class Categorical:
    """One of `n` choices; the network puts out logits."""

    squashed = False

    def __init__(self, n: int) -> None:
        self.inputs = n

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """See Distribution."""
        return inputs_BI.log_softmax(-1).gather(-1, actions[:, None])[:, 0]

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """See Distribution."""
        logp_BI = inputs_BI.log_softmax(-1)
        return -(logp_BI.exp() * logp_BI).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """See Distribution."""
        logp_BI = inputs_BI.log_softmax(-1)
        return (logp_BI.exp() * (logp_BI - other_BI.log_softmax(-1))).sum(-1)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Gumbel noise."""
        return torch.empty(*shape, self.inputs).exponential_(generator=generator).log_().neg_()

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """See Distribution."""
        return (inputs_BI + noise_BW).argmax(-1)

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """See Distribution."""
        return inputs_BI.argmax(-1)


class MultiCategorical:
    """Several choices at once, independent of each other."""

    squashed = False

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.inputs = sum(sizes)
        self._sizes = list(sizes)
        self._parts = [Categorical(n) for n in sizes]

    def _each(self, inputs_BI: Tensor) -> list[tuple[Categorical, Tensor]]:
        return list(zip(self._parts, inputs_BI.split(self._sizes, -1), strict=True))

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """See Distribution."""
        return torch.stack([part.logp(x, actions[:, d]) for d, (part, x) in enumerate(self._each(inputs_BI))]).sum(0)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """See Distribution."""
        return torch.stack([part.entropy(x) for part, x in self._each(inputs_BI)]).sum(0)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """See Distribution."""
        pairs = zip(self._each(inputs_BI), other_BI.split(self._sizes, -1), strict=True)
        return torch.stack([part.kl(x, y) for (part, x), y in pairs]).sum(0)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Gumbel noise for every choice."""
        return Categorical(self.inputs).noise(*shape, generator=generator)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """See Distribution."""
        return self.mode(inputs_BI + noise_BW)

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """See Distribution."""
        return torch.stack([part.mode(x) for part, x in self._each(inputs_BI)], -1)


class Bernoulli:
    """Bits, independent of each other; the network puts out the logit of each one."""

    squashed = False

    def __init__(self, n: int) -> None:
        self.inputs = n

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """See Distribution."""
        return -binary_cross_entropy_with_logits(inputs_BI, actions.to(inputs_BI.dtype), reduction="none").sum(-1)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """See Distribution."""
        return (softplus(inputs_BI) - inputs_BI * inputs_BI.sigmoid()).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """See Distribution."""
        gap_BI = softplus(other_BI) - softplus(inputs_BI)
        return (gap_BI + inputs_BI.sigmoid() * (inputs_BI - other_BI)).sum(-1)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Logistic noise."""
        return torch.rand(*shape, self.inputs, generator=generator).logit_(eps=1e-7)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """See Distribution."""
        return self.mode(inputs_BI + noise_BW)

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """See Distribution."""
        return (inputs_BI > 0).long()


class Gaussian:
    """Real numbers, independent of each other; the network puts out means, then logarithms of deviations."""

    squashed = False

    def __init__(self, n: int) -> None:
        self.inputs = 2 * n

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """See Distribution."""
        mean_BD, log_std_BD = inputs_BI.chunk(2, -1)
        z_BD = (actions - mean_BD) * (-log_std_BD).exp()
        return -(0.5 * z_BD.square() + log_std_BD + HALF_LOG_TAU).sum(-1)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """See Distribution."""
        return (inputs_BI.chunk(2, -1)[1] + (0.5 + HALF_LOG_TAU)).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """See Distribution."""
        mean_BD, log_std_BD = inputs_BI.chunk(2, -1)
        other_mean_BD, other_log_std_BD = other_BI.chunk(2, -1)
        spread_BD = (2 * log_std_BD).exp() + (mean_BD - other_mean_BD).square()
        return (other_log_std_BD - log_std_BD + 0.5 * spread_BD * (-2 * other_log_std_BD).exp() - 0.5).sum(-1)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Standard normal noise."""
        return torch.randn(*shape, self.inputs // 2, generator=generator)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """See Distribution."""
        mean_BD, log_std_BD = inputs_BI.chunk(2, -1)
        return torch.addcmul(mean_BD, log_std_BD.exp(), noise_BW)

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """See Distribution."""
        return inputs_BI.chunk(2, -1)[0]


class SquashedGaussian:
    """Real numbers between -1 and 1: the hyperbolic tangent of Gaussian ones."""

    squashed = True

    def __init__(self, n: int) -> None:
        self.inputs = 2 * n

    def draw(self, inputs_BI: Tensor, noise_BW: Tensor) -> tuple[Tensor, Tensor]:
        """Actions and their log-density, both with gradients."""
        mean_BD, log_std_BD = self._parts(inputs_BI)
        free_BD = torch.addcmul(mean_BD, log_std_BD.exp(), noise_BW)
        logp_BD = -0.5 * noise_BW.square() - log_std_BD - HALF_LOG_TAU - _log_slope(free_BD)
        return free_BD.tanh(), logp_BD.sum(-1)

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """See Distribution."""
        mean_BD, log_std_BD = self._parts(inputs_BI)
        free_BD = actions.clamp(-NEARLY, NEARLY).atanh()
        z_BD = (free_BD - mean_BD) * (-log_std_BD).exp()
        return (-0.5 * z_BD.square() - log_std_BD - HALF_LOG_TAU - _log_slope(free_BD)).sum(-1)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """An upper bound: that of the Gaussian. The squashed one has no closed form."""
        return (self._parts(inputs_BI)[1] + (0.5 + HALF_LOG_TAU)).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """See Distribution; squashing both alike changes nothing."""
        one, other = (torch.cat(self._parts(x), -1) for x in (inputs_BI, other_BI))
        return Gaussian(self.inputs // 2).kl(one, other)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Standard normal noise."""
        return torch.randn(*shape, self.inputs // 2, generator=generator)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """See Distribution."""
        mean_BD, log_std_BD = self._parts(inputs_BI)
        return torch.addcmul(mean_BD, log_std_BD.exp(), noise_BW).tanh()

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """The action of the mean, which is where greedy policies of this kind are judged."""
        return inputs_BI.chunk(2, -1)[0].tanh()

    @staticmethod
    def _parts(inputs_BI: Tensor) -> tuple[Tensor, Tensor]:
        mean_BD, log_std_BD = inputs_BI.chunk(2, -1)
        return mean_BD, log_std_BD.clamp(-20, 2)


def _log_slope(free_BD: Tensor) -> Tensor:
    """Logarithm of the slope of tanh, exact where tanh is nearly flat."""
    return 2 * (math.log(2) - free_BD - softplus(-2 * free_BD))


def open_distribution(acts: Acts, *, squashed: bool = False) -> Distribution:
    """The distribution over actions of this kind; `squashed` keeps real ones within bounds."""
    match acts.kind:
        case "discrete":
            return Categorical(acts.sizes[0])
        case "multi_discrete":
            return MultiCategorical(acts.sizes)
        case "multi_binary":
            return Bernoulli(acts.count)
        case "box":
            return SquashedGaussian(acts.count) if squashed else Gaussian(acts.count)
