"""Networks of control policies: towers, a torso for pixels, normalisation with its statistics. Plain torch.

Axes: `_B` observations, `_F` features, `_I` numbers that a distribution takes.
"""

import math

import torch
from torch import Tensor, nn

from loomrl.config.control import Network
from loomrl.control.distribution import open_distribution
from loomrl.control.space import Acts, Seen

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU, "gelu": nn.GELU}
SMALL = 0.01
"""Gain of the policy's last layer: the first policy is nearly indifferent."""


class Normalizer(nn.Module):
    """Observations to mean 0 and deviation 1, by statistics that are part of the state; without any, as they are."""

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, size: int, *, bound: float = 10.0) -> None:
        super().__init__()
        self.bound = bound
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def forward(self, numbers_BF: Tensor) -> Tensor:
        """Normalised, and within the bound."""
        return ((numbers_BF - self.mean) * (self.variance + 1e-8).rsqrt()).clamp(-self.bound, self.bound)

    @torch.no_grad()
    def observe(self, count: float, mean: Tensor, variance: Tensor) -> None:
        """Take in the statistics of new observations."""
        if not count:
            return
        total = float(self.count) + count
        shift = mean - self.mean
        share = count / total
        spread = self.variance * (1 - share) + variance * share + shift.square() * share * (1 - share)
        self.mean += shift * share
        self.variance.copy_(spread)
        self.count.fill_(total)


class ActorCritic(nn.Module):
    """A policy and its value function: two towers, or two heads on one trunk."""

    def __init__(self, seen: Seen, acts: Acts, network: Network, *, normalize: bool) -> None:
        super().__init__()
        self.distribution = open_distribution(acts)
        means = acts.count if acts.kind == "box" else self.distribution.inputs
        self.normalizer = Normalizer(seen.shape[0]) if normalize and seen.kind == "numbers" else None
        self.pixels = Pixels(seen.shape) if seen.kind == "pixels" else None
        size = self.pixels.size if self.pixels is not None else seen.shape[0]
        self.trunk = nn.Sequential(*_layers(size, network)) if network.shared else None
        if self.trunk is not None:
            width = network.hidden[-1]
            self.policy: nn.Module = _linear(width, means, SMALL, network)
            self.critic: nn.Module = _linear(width, 1, 1.0, network)
        else:
            self.policy = tower(size, means, network, gain=SMALL)
            self.critic = tower(size, 1, network, gain=1.0)
        self.log_std = nn.Parameter(torch.full((means,), network.log_std)) if acts.kind == "box" else None

    def features(self, seen_B: Tensor) -> Tensor:
        """What both heads begin with."""
        if self.pixels is not None:
            seen_B = self.pixels(seen_B)
        elif self.normalizer is not None:
            seen_B = self.normalizer(seen_B)
        return seen_B if self.trunk is None else self.trunk(seen_B)

    def decide(self, features_BF: Tensor) -> Tensor:
        """What the distribution takes, `[B, I]`."""
        means_BD: Tensor = self.policy(features_BF)
        if self.log_std is None:
            return means_BD
        return torch.cat([means_BD, self.log_std.expand_as(means_BD)], -1)

    def value(self, features_BF: Tensor) -> Tensor:
        """What is expected from here, `[B]`."""
        return self.critic(features_BF).squeeze(-1)  # type: ignore[no-any-return]

    def forward(self, seen_B: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs of the distribution, and values."""
        features_BF = self.features(seen_B)
        return self.decide(features_BF), self.value(features_BF)


class Pixels(nn.Module):
    """Bytes `[B, height, width, channels]` → features, by three convolutions whose reach fits the picture."""

    def __init__(self, shape: tuple[int, ...], *, width: int = 256) -> None:
        super().__init__()
        height, breadth, channels = shape
        large = min(height, breadth) >= 36
        sizes = ((32, 8, 4), (64, 4, 2), (64, 3, 1)) if large else ((16, 3, 1), (32, 3, 1), (32, 3, 2))
        layers: list[nn.Module] = []
        for filters, kernel, stride in sizes:
            padding = 0 if large else 1
            layers += [nn.Conv2d(channels, filters, kernel, stride, padding), nn.ReLU()]
            channels = filters
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, shape[2], height, breadth)).shape[1]
        self.project = nn.Sequential(nn.Linear(flat, width), nn.ReLU())
        self.size = width
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(layer.weight, math.sqrt(2))
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, bytes_B: Tensor) -> Tensor:
        """Features of each picture."""
        return self.project(self.convolutions(bytes_B.permute(0, 3, 1, 2).float() / 255))  # type: ignore[no-any-return]


def tower(size: int, out: int, network: Network, *, gain: float) -> nn.Sequential:
    """Hidden layers and a last linear one."""
    width = network.hidden[-1] if network.hidden else size
    return nn.Sequential(*_layers(size, network), _linear(width, out, gain, network))


def _layers(size: int, network: Network) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for width in network.hidden:
        layers.append(_linear(size, width, math.sqrt(2), network))
        if network.layer_norm:
            layers.append(nn.LayerNorm(width))
        layers.append(ACTIVATIONS[network.activation]())
        size = width
    return layers


def _linear(size: int, out: int, gain: float, network: Network) -> nn.Linear:
    layer = nn.Linear(size, out)
    if network.orthogonal:
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return layer
