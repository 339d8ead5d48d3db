"""Sampling one token per row, each from its own random stream.

Axes: N rows, V the vocabulary, K likeliest tokens.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def uniforms(seed_N: NDArray[np.uint64], index_N: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The `index`-th number in [0, 1) of each seed's stream: SplitMix64, which allows random access."""
    bits_N = _mix(_mix(seed_N) + index_N * GOLDEN)
    return (bits_N >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x_N = x_N + GOLDEN
    x_N = (x_N ^ (x_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x_N = (x_N ^ (x_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_N: NDArray[np.uint64] = x_N ^ (x_N >> np.uint64(31))
    return mixed_N


class Draw(NamedTuple):
    """One token per row and its log-probability in the whole distribution; all log-probabilities, to look up more."""

    token_N: Tensor
    logprob_N: Tensor
    logp_NV: Tensor

    def entropy(self) -> Tensor:
        """Of each row's whole distribution, in nats."""
        entropy_N: Tensor = torch.special.entr(self.logp_NV.exp()).sum(-1)
        return entropy_N


def draw(logits_NV: Tensor, temperature_N: Tensor, top_p_N: Tensor | None, uniform_N: Tensor) -> Draw:
    """Draw from each row's distribution.

    Temperature 0 takes the likeliest token, with its log-probability at 1. `top_p_N` is None if no row uses top-p.
    """
    greedy_N = temperature_N == 0
    scale_N = torch.where(greedy_N, 1.0, temperature_N)
    logp_NV = torch.log_softmax(logits_NV.float() / scale_N.float()[:, None], dim=-1)
    weight_NV = logp_NV.double().exp_()
    if top_p_N is not None:
        weight_NV = _nucleus(weight_NV, top_p_N)
    bound_NV = weight_NV.cumsum(-1)
    at_N1 = torch.searchsorted(bound_NV, uniform_N[:, None] * bound_NV[:, -1:], right=True)
    token_N = at_N1[:, 0].clamp_(max=logits_NV.shape[1] - 1)
    token_N = torch.where(greedy_N, logp_NV.argmax(-1), token_N)
    return Draw(token_N, logp_NV.gather(1, token_N[:, None])[:, 0], logp_NV)


def _nucleus(weight_NV: Tensor, top_p_N: Tensor) -> Tensor:
    """The weights with all tokens outside the top-p nucleus set to zero; the likeliest always stays."""
    sorted_NV, order_NV = weight_NV.sort(dim=-1, descending=True, stable=True)
    before_NV = sorted_NV.cumsum(-1) - sorted_NV
    kept_NV = sorted_NV.masked_fill(before_NV >= top_p_N[:, None], 0.0)
    return torch.zeros_like(weight_NV).scatter_(1, order_NV, kept_NV)
