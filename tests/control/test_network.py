"""Networks: two critics that are computed as one are two, and begin as their settings say."""

import pytest
import torch
from torch import nn

from loomrl.config.control import Network
from loomrl.control.network import Twins, tower


@pytest.mark.parametrize("layer_norm", [False, True])
def test_twins_say_what_two_towers_say(layer_norm: bool) -> None:
    network = Network(hidden=(8, 6), activation="relu", layer_norm=layer_norm)
    twins, inputs = Twins(3, 2, network), torch.randn(5, 3)
    with torch.no_grad():
        for parameter in twins.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        for index, said in enumerate(twins(inputs)):
            torch.testing.assert_close(said, alone(twins, index, network)(inputs))


def alone(twins: Twins, index: int, network: Network) -> nn.Sequential:
    """One of the two as a tower."""
    single = tower(3, 2, network, gain=1.0)
    linear = [layer for layer in single if isinstance(layer, nn.Linear)]
    for layer, weight, bias in zip(linear, twins.weights, twins.biases, strict=True):
        layer.weight.copy_(weight[index].T)
        layer.bias.copy_(bias[index, 0])
    normal = [layer for layer in single if isinstance(layer, nn.LayerNorm)]
    for norm, gain, shift in zip(normal, twins.gains, twins.shifts, strict=True):
        norm.weight.copy_(gain[index, 0])
        norm.bias.copy_(shift[index, 0])
    return single


def test_orthogonal_critics_begin_orthogonal_and_different() -> None:
    first = Twins(4, 1, Network(hidden=(8,), orthogonal=True)).weights[0]
    for weight in first:
        torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(4))
    assert not torch.equal(first[0], first[1])
    plain = Twins(4, 1, Network(hidden=(8,), orthogonal=False)).weights[0][0]
    assert not torch.allclose(plain @ plain.T, 2 * torch.eye(4))
