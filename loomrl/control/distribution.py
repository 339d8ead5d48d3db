"""Distributions over actions as functions of a network's output. Randomness comes from outside, as noise.

Axes: `_B` decisions, `_D` numbers in one action, `_I` numbers that the network puts out, `_W` numbers of noise.
"""

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from loomrl.control.space import ActionView

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
NEARLY = 1 - 1e-6
FORBIDDEN = -1e30
"""The logit of a forbidden choice: its probability is exactly 0, and no sum or product with it is NaN."""


class ActionDistribution(Protocol):
    """A distribution over actions, given by a network's output. Actions are `[B]` for one choice, else `[B, D]`."""

    inputs: int
    """Numbers per decision."""
    squashed: bool
    """True if real-valued actions are between -1 and 1, to be scaled to the bounds of the action space."""

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """Log-probability (density) of given actions, `[B]`."""

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """Entropy in nats, `[B]`."""

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """KL divergence from the distribution of `inputs` to that of `other`, `[B]`."""

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """The noise for `sample`, `[*shape, W]`; a rollout draws all of its noise at once."""

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """Sampled actions."""

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """The likeliest actions."""


class Categorical:
    """One of `n` choices; the network puts out logits."""

    squashed = False

    def __init__(self, n: int) -> None:
        self.inputs = n

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """Log-probability."""
        return inputs_BI.log_softmax(-1).gather(-1, actions[:, None])[:, 0]

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """Entropy."""
        logp_BI = inputs_BI.log_softmax(-1)
        return -(logp_BI.exp() * logp_BI).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """KL divergence."""
        logp_BI = inputs_BI.log_softmax(-1)
        return (logp_BI.exp() * (logp_BI - other_BI.log_softmax(-1))).sum(-1)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Gumbel noise."""
        return torch.empty(*shape, self.inputs).exponential_(generator=generator).log_().neg_()

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """The sampled choice."""
        return (inputs_BI + noise_BW).argmax(-1)

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """The likeliest choice."""
        return inputs_BI.argmax(-1)


class MultiCategorical:
    """Several independent choices."""

    squashed = False

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.inputs = sum(sizes)
        self._sizes = list(sizes)
        self._parts = [Categorical(n) for n in sizes]

    def _each(self, inputs_BI: Tensor) -> list[tuple[Categorical, Tensor]]:
        return list(zip(self._parts, inputs_BI.split(self._sizes, -1), strict=True))

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """Sum of the log-probabilities."""
        return torch.stack([part.logp(x, actions[:, d]) for d, (part, x) in enumerate(self._each(inputs_BI))]).sum(0)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """Sum of the entropies."""
        return torch.stack([part.entropy(x) for part, x in self._each(inputs_BI)]).sum(0)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """Sum of the KL divergences."""
        pairs = zip(self._each(inputs_BI), other_BI.split(self._sizes, -1), strict=True)
        return torch.stack([part.kl(x, y) for (part, x), y in pairs]).sum(0)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Gumbel noise for every choice."""
        return Categorical(self.inputs).noise(*shape, generator=generator)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """The sampled choices."""
        return self.mode(inputs_BI + noise_BW)

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """The likeliest choices."""
        return torch.stack([part.mode(x) for part, x in self._each(inputs_BI)], -1)


class Bernoulli:
    """Independent bits; the network puts out the logit of each one."""

    squashed = False

    def __init__(self, n: int) -> None:
        self.inputs = n

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """Sum of the log-probabilities."""
        return -binary_cross_entropy_with_logits(inputs_BI, actions.to(inputs_BI.dtype), reduction="none").sum(-1)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """Sum of the entropies."""
        return (softplus(inputs_BI) - inputs_BI * inputs_BI.sigmoid()).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """Sum of the KL divergences."""
        gap_BI = softplus(other_BI) - softplus(inputs_BI)
        return (gap_BI + inputs_BI.sigmoid() * (inputs_BI - other_BI)).sum(-1)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Logistic noise."""
        return torch.rand(*shape, self.inputs, generator=generator).logit_(eps=1e-7)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """The sampled bits."""
        return self.mode(inputs_BI + noise_BW)

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """The likeliest bits."""
        return (inputs_BI > 0).long()


class Gaussian:
    """Independent real numbers; the network puts out means, then logarithms of standard deviations."""

    squashed = False

    def __init__(self, n: int) -> None:
        self.inputs = 2 * n

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """Log-density."""
        mean_BD, log_std_BD = inputs_BI.chunk(2, -1)
        z_BD = (actions - mean_BD) * (-log_std_BD).exp()
        return -(0.5 * z_BD.square() + log_std_BD + HALF_LOG_TAU).sum(-1)

    def entropy(self, inputs_BI: Tensor) -> Tensor:
        """Differential entropy."""
        return (self._parts(inputs_BI)[1] + (0.5 + HALF_LOG_TAU)).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """KL divergence."""
        mean_BD, log_std_BD = inputs_BI.chunk(2, -1)
        other_mean_BD, other_log_std_BD = other_BI.chunk(2, -1)
        spread_BD = (2 * log_std_BD).exp() + (mean_BD - other_mean_BD).square()
        return (other_log_std_BD - log_std_BD + 0.5 * spread_BD * (-2 * other_log_std_BD).exp() - 0.5).sum(-1)

    def noise(self, *shape: int, generator: torch.Generator | None = None) -> Tensor:
        """Standard normal noise."""
        return torch.randn(*shape, self.inputs // 2, generator=generator)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """The sampled numbers."""
        mean_BD, log_std_BD = self._parts(inputs_BI)
        return torch.addcmul(mean_BD, log_std_BD.exp(), noise_BW)

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """The means."""
        return inputs_BI.chunk(2, -1)[0]

    def _parts(self, inputs_BI: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of the deviations."""
        mean_BD, log_std_BD = inputs_BI.chunk(2, -1)
        return mean_BD, log_std_BD


class SquashedGaussian(Gaussian):
    """Real numbers between -1 and 1: the hyperbolic tangent of Gaussian ones."""

    squashed = True

    def draw(self, inputs_BI: Tensor, noise_BW: Tensor) -> tuple[Tensor, Tensor]:
        """Actions and their log-density, both with gradients."""
        mean_BD, log_std_BD = self._parts(inputs_BI)
        free_BD = torch.addcmul(mean_BD, log_std_BD.exp(), noise_BW)
        logp_BD = -0.5 * noise_BW.square() - log_std_BD - HALF_LOG_TAU - _log_slope(free_BD)
        return free_BD.tanh(), logp_BD.sum(-1)

    def logp(self, inputs_BI: Tensor, actions: Tensor) -> Tensor:
        """Log-density."""
        mean_BD, log_std_BD = self._parts(inputs_BI)
        free_BD = actions.clamp(-NEARLY, NEARLY).atanh()
        z_BD = (free_BD - mean_BD) * (-log_std_BD).exp()
        return (-0.5 * z_BD.square() - log_std_BD - HALF_LOG_TAU - _log_slope(free_BD)).sum(-1)

    def kl(self, inputs_BI: Tensor, other_BI: Tensor) -> Tensor:
        """KL divergence, which squashing does not change."""
        one, other = (torch.cat(self._parts(x), -1) for x in (inputs_BI, other_BI))
        return Gaussian(self.inputs // 2).kl(one, other)

    def sample(self, inputs_BI: Tensor, noise_BW: Tensor) -> Tensor:
        """The sampled numbers."""
        return super().sample(inputs_BI, noise_BW).tanh()

    def mode(self, inputs_BI: Tensor) -> Tensor:
        """The tangent of the mean, on which greedy policies of this kind are evaluated."""
        return inputs_BI.chunk(2, -1)[0].tanh()

    @staticmethod
    def _parts(inputs_BI: Tensor) -> tuple[Tensor, Tensor]:
        mean_BD, log_std_BD = inputs_BI.chunk(2, -1)
        return mean_BD, log_std_BD.clamp(-20, 2)


def _log_slope(free_BD: Tensor) -> Tensor:
    """Logarithm of the slope of tanh, exact even where tanh is nearly flat."""
    return 2 * (math.log(2) - free_BD - softplus(-2 * free_BD))


def even(logits_BI: Tensor) -> Tensor:
    """Logits by which all choices that are not forbidden are as likely."""
    return torch.where(logits_BI < FORBIDDEN / 1e10, logits_BI, 0.0)


def open_distribution(acts: ActionView, *, squashed: bool = False) -> ActionDistribution:
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
