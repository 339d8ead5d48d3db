"""Pink noise: as strong as white noise, and lasting."""

import torch

from loomrl.control.noise import PinkNoise


def test_pink_noise_is_standard_normal_and_its_power_falls_as_one_over_the_frequency() -> None:
    noise_TND = PinkNoise().draw(4096, (20, 2), torch.Generator().manual_seed(1))
    assert abs(float(noise_TND.std()) - 1) < 0.05
    power_F = torch.fft.rfft(noise_TND, dim=0).abs().square().mean((1, 2))
    octaves = torch.tensor([float(power_F[2**k : 2 ** (k + 1)].sum()) for k in range(3, 10)])
    assert octaves.max() / octaves.min() < 1.5  # white noise: 64


def test_pink_noise_goes_on_where_the_last_call_ended() -> None:
    whole = PinkNoise().draw(20, (3, 1), torch.Generator().manual_seed(1))
    noise = PinkNoise()
    chance = torch.Generator().manual_seed(1)
    assert torch.equal(torch.cat([noise.draw(8, (3, 1), chance), noise.draw(12, (3, 1), chance)]), whole)
