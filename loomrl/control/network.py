"""Networks of control policies: towers, convolutions for pixels, observation normalisation. Plain torch.

Axes: `_B` observations, `_F` features, `_I` numbers that a distribution takes, `_S` numbers of a state.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from loomrl.config.control import Network
from loomrl.control.distribution import FORBIDDEN, open_distribution
from loomrl.control.mask import open_mask
from loomrl.control.memory import History, open_memory
from loomrl.control.space import ActionView, ObservationView
from loomrl.errors import ConfigError

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": partial(nn.ReLU, inplace=True),
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}
FEATURES = 256
"""Numbers that convolutions make of a picture, where the settings leave it open."""
SMALL = 0.01
"""Gain of the policy's last layer: the initial policy is nearly uniform."""


class Normalizer(nn.Module):
    """Normalises observations to mean 0 and standard deviation 1, by statistics in its state; unchanged before any."""

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
        """Normalised and clipped."""
        return ((numbers_BF - self.mean) * (self.variance + 1e-8).rsqrt()).clamp(-self.bound, self.bound)

    @torch.no_grad()
    def observe(self, count: float, mean: Tensor, variance: Tensor) -> None:
        """Update the statistics with those of new observations."""
        if not count:
            return
        total = float(self.count) + count
        shift = mean - self.mean
        share = count / total
        spread = self.variance * (1 - share) + variance * share + shift.square() * share * (1 - share)
        self.mean += shift * share
        self.variance.copy_(spread)
        self.count.fill_(total)


class Actor(nn.Module):
    """A policy network: observations become features, features the inputs of a distribution.

    If `squashed`, the standard deviation depends on the state and actions stay within bounds; else it is constant.
    """

    def __init__(
        self, seen: ObservationView, acts: ActionView, network: Network, *, normalize: bool, squashed: bool = False
    ) -> None:
        super().__init__()
        self.distribution = open_distribution(acts, squashed=squashed)
        self.mask = open_mask(seen, acts)
        free = acts.kind == "box" and not squashed
        numbers = acts.count if free else self.distribution.inputs
        self.normalizer = Normalizer(seen.shape[0]) if normalize and seen.kind == "numbers" else None
        self.pixels = open_pixels(seen, network)
        self.size = self.pixels.size if self.pixels is not None else seen.shape[0]
        """Input size of the towers."""
        self.memory = None if network.memory is None else open_memory(network.memory, self.size)
        if self.memory is not None:
            self.size += self.memory.size
        self.trunk = nn.Sequential(*_layers(self.size, network)) if network.shared else None
        self.policy = self._head(numbers, network, gain=SMALL)
        self.log_std = nn.Parameter(torch.full((numbers,), network.log_std)) if free else None

    def _head(self, numbers: int, network: Network, *, gain: float) -> nn.Module:
        if network.shared:
            return _linear(network.hidden[-1], numbers, gain, network)
        return tower(self.size, numbers, network, gain=gain)

    def features(self, seen_B: Tensor, history: History | None = None) -> Tensor:
        """The common input of all heads. With a memory, observations are those of whole sequences, `[T · B, …]`."""
        shown_BF = self._normalize(seen_B)
        if self.memory is not None:
            assert history is not None, "a memory needs the past"
            added = self.memory.unroll(shown_BF.unflatten(0, history.begins_TB.shape), history)
            shown_BF = torch.cat([shown_BF, added.flatten(0, 1)], -1)
        return shown_BF if self.trunk is None else self.trunk(shown_BF)

    def recall(self, seen_B: Tensor, state_BS: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The features of one observation of each episode, and the state after it; without a memory there is none."""
        if self.memory is None:
            return self.features(seen_B), None
        shown_BF = self._normalize(seen_B)
        if state_BS is None:
            state_BS = shown_BF.new_zeros(len(shown_BF), self.memory.state)
        added_BG, state_BS = self.memory.step(shown_BF, state_BS)
        shown_BF = torch.cat([shown_BF, added_BG], -1)
        return shown_BF if self.trunk is None else self.trunk(shown_BF), state_BS

    def _normalize(self, seen_B: Tensor) -> Tensor:
        if self.pixels is not None:
            return self.pixels(seen_B)  # type: ignore[no-any-return]
        return seen_B if self.normalizer is None else self.normalizer(seen_B)

    def decide(self, features_BF: Tensor, seen_B: Tensor) -> Tensor:
        """The distribution's inputs, `[B, I]`; the observations that the features are of say what they allow."""
        numbers_BI: Tensor = self.policy(features_BF)
        if self.log_std is None:
            return self.block(numbers_BI, seen_B)
        return torch.cat([numbers_BI, self.log_std.expand(numbers_BI.shape[0], -1)], -1)

    def block(self, inputs_BI: Tensor, seen_B: Tensor) -> Tensor:
        """The distribution's inputs with probability 0 for the choices that the observations forbid."""
        return inputs_BI if self.mask is None else inputs_BI.masked_fill(~self._permits(seen_B), FORBIDDEN)

    def _permits(self, seen_B: Tensor) -> Tensor:
        assert self.mask is not None
        allowed_BI: Tensor = self.mask.permits(seen_B)
        return allowed_BI


class ActorCritic(Actor):
    """A policy and its value function: two towers, or two heads on one trunk."""

    def __init__(
        self, seen: ObservationView, acts: ActionView, network: Network, *, normalize: bool, squashed: bool = False
    ) -> None:
        super().__init__(seen, acts, network, normalize=normalize, squashed=squashed)
        self.critic = self._head(1, network, gain=1.0)

    def value(self, features_BF: Tensor) -> Tensor:
        """The values, `[B]`."""
        return self.critic(features_BF).squeeze(-1)  # type: ignore[no-any-return]

    def forward(self, seen_B: Tensor, history: History | None = None) -> tuple[Tensor, Tensor]:
        """Inputs of the distribution, and values."""
        features_BF = self.features(seen_B, history)
        return self.decide(features_BF, seen_B), self.value(features_BF)


class Twins(nn.Module):
    """Two critics of equal shape without shared weights, computed together: `[B, F]` → `[2, B, out]`.

    With `batch_norm` in training mode a row's output depends on the other rows.
    """

    def __init__(self, size: int, out: int, network: Network, *, batch_norm: bool = False) -> None:
        super().__init__()
        sizes = [size, *network.hidden, out]
        gains = [*(math.sqrt(2) for _ in network.hidden), 1.0]
        pairs = [
            [_linear(i, o, g, network) for _ in range(2)] for (i, o), g in zip(pairwise(sizes), gains, strict=True)
        ]
        self.weights = nn.ParameterList(torch.stack([layer.weight.detach().T for layer in pair]) for pair in pairs)
        self.biases = nn.ParameterList(torch.stack([layer.bias.detach()[None] for layer in pair]) for pair in pairs)
        normal = network.hidden if network.layer_norm else ()
        self.gains = nn.ParameterList(torch.ones(2, 1, width) for width in normal)
        self.shifts = nn.ParameterList(torch.zeros(2, 1, width) for width in normal)
        """Shifts of layer normalisation, learnt separately by the two."""
        widths = sizes[:-1] if batch_norm else ()
        self.norms = nn.ModuleList(nn.BatchNorm1d(2 * width, eps=1e-3, momentum=0.01) for width in widths)
        self.activation = ACTIVATIONS[network.activation]()
        self._layers = list(zip(self.weights, self.biases, strict=True))
        """A plain list of the same: iterating over a ParameterList takes as long as multiplying."""

    def forward(self, inputs_BF: Tensor) -> Tensor:
        """The output of each critic."""
        x_2BF = self._normalize(inputs_BF.expand(2, *inputs_BF.shape), 0)
        *hidden, last = self._layers
        for index, (weight, bias) in enumerate(hidden):
            x_2BF = torch.baddbmm(bias, x_2BF, weight)
            if self.gains:
                x_2BF = torch.addcmul(
                    self.shifts[index], nn.functional.layer_norm(x_2BF, x_2BF.shape[-1:]), self.gains[index]
                )
            x_2BF = self._normalize(self.activation(x_2BF), index + 1)
        return torch.baddbmm(last[1], x_2BF, last[0])

    def _normalize(self, x_2BF: Tensor, layer: int) -> Tensor:
        if not self.norms:
            return x_2BF
        x_BX = self.norms[layer](x_2BF.transpose(0, 1).flatten(1))
        return x_BX.unflatten(1, (2, -1)).transpose(0, 1)  # type: ignore[no-any-return]


class Pixels(nn.Module):
    """Bytes → features, by three convolutions sized for the picture.

    Channels are the last axis or, where that is shorter, the first one, as in frames side by side.
    """

    def __init__(self, shape: tuple[int, ...], *, width: int) -> None:
        super().__init__()
        self.is_first = shape[0] < shape[2]
        """True if channels are the first axis."""
        channels, height, breadth = shape if self.is_first else (shape[2], *shape[:2])
        large = min(height, breadth) >= 36
        sizes = ((32, 8, 4), (64, 4, 2), (64, 3, 1)) if large else ((16, 3, 1), (32, 3, 1), (32, 3, 2))
        layers: list[nn.Module] = []
        before = channels
        for filters, kernel, stride in sizes:
            padding = 0 if large else 1
            layers += [nn.Conv2d(before, filters, kernel, stride, padding), nn.ReLU()]
            before = filters
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, channels, height, breadth)).shape[1]
        self.project = nn.Sequential(nn.Linear(flat, width), nn.ReLU())
        self.size = width
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(layer.weight, math.sqrt(2))
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, bytes_B: Tensor) -> Tensor:
        """Features of each picture."""
        bytes_BCHW = bytes_B if self.is_first else bytes_B.permute(0, 3, 1, 2)
        # channels side by side in memory: a third less time of convolutions, forwards and backwards, on a CPU
        picture_BCHW = bytes_BCHW.contiguous(memory_format=torch.channels_last).float().div_(255)
        return self.project(self.convolutions(picture_BCHW))  # type: ignore[no-any-return]


def open_pixels(seen: ObservationView, network: Network) -> Pixels | None:
    """The convolutions, if observations are pictures."""
    if seen.kind == "pixels":
        return Pixels(seen.shape, width=network.features or FEATURES)
    if network.features is not None:
        raise ConfigError(
            f"network.features={network.features} is of pictures, and these observations are {seen.shape[0]} numbers. "
            "Leave it out."
        )
    return None


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
