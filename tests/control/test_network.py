"""Networks: two critics that are computed as one are two, and begin as their settings say."""

import pytest
import torch
from torch import nn

from loomrl.config.control import Network
from loomrl.control.network import Actor, Pixels, Twins, tower
from loomrl.control.space import Acts, Seen
from loomrl.errors import ConfigError


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


@pytest.mark.parametrize("shape", [(4, 84, 84), (3, 12, 14)])
def test_channels_may_be_the_first_axis(shape: tuple[int, ...]) -> None:
    first, last = Pixels(shape, width=32), Pixels((*shape[1:], shape[0]), width=32)
    last.load_state_dict(first.state_dict())
    pictures_BCHW = torch.randint(256, (5, *shape), dtype=torch.uint8)
    features_BF = first(pictures_BCHW)
    assert features_BF.shape == (5, 32)
    torch.testing.assert_close(features_BF, last(pictures_BCHW.permute(0, 2, 3, 1)))


def test_the_features_of_a_picture_are_a_setting_and_of_nothing_else() -> None:
    seen, acts = Seen("pixels", (12, 12, 1)), Acts("discrete", (4,))
    assert Actor(seen, acts, Network(), normalize=False).size == 256
    assert Actor(seen, acts, Network(features=17), normalize=False).size == 17
    with pytest.raises(ConfigError, match=r"network\.features=17 is of pictures, and these observations are 3 numbers"):
        Actor(Seen("numbers", (3,)), acts, Network(features=17), normalize=False)
