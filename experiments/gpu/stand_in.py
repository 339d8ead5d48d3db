"""`varlen_attn` on a CPU, slowly: what the kernels of a GPU promise, so that the path to them is rehearsed.

Axes: `_L` queries, `_M` keys, `_H` heads of keys, `_G` queries of each, `_D` their width.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import varlen


@cache
def install() -> None:
    """Give the CPU these operators, for this process."""
    operators: Any = varlen
    operators._varlen_attn.register_kernel("cpu")(_forward)
    operators._varlen_attn_backward.register_kernel("cpu")(_backward)


def _forward(
    query_LHD: Tensor, key_MHD: Tensor, value_MHD: Tensor, query_ends: Tensor, key_ends: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    _, _, _, scale, window, *_ = others
    made_LHD = torch.empty_like(query_LHD)
    for mine, read in _segments(query_ends, key_ends):
        p_HGLM = _weights(query_LHD[mine], key_MHD[read], scale, window)
        made_LHD[mine] = torch.einsum("hglm,mhd->lhgd", p_HGLM, value_MHD[read]).flatten(1, 2)
    sums_HL = query_LHD.new_zeros(query_LHD.shape[1], len(query_LHD), dtype=torch.float32)
    return made_LHD, sums_HL, torch.zeros(2, dtype=torch.uint64)


def _backward(gradient_LHD: Tensor, *saved: Any) -> tuple[Tensor, Tensor, Tensor]:
    query_LHD, key_MHD, value_MHD, _, _, query_ends, key_ends, _, _, _, _, scale, window = saved
    by_query, by_key, by_value = (torch.zeros_like(tensor) for tensor in (query_LHD, key_MHD, value_MHD))
    for mine, read in _segments(query_ends, key_ends):
        p_HGLM = _weights(query_LHD[mine], key_MHD[read], scale, window)
        gradient_LHGD = gradient_LHD[mine].unflatten(1, p_HGLM.shape[:2])
        by_value[read] = torch.einsum("hglm,lhgd->mhd", p_HGLM, gradient_LHGD)
        by_p_HGLM = torch.einsum("lhgd,mhd->hglm", gradient_LHGD, value_MHD[read])
        by_score_HGLM = p_HGLM * (by_p_HGLM - (by_p_HGLM * p_HGLM).sum(-1, keepdim=True)) * scale
        by_query[mine] = torch.einsum("hglm,mhd->lhgd", by_score_HGLM, key_MHD[read]).flatten(1, 2)
        query_LHGD = query_LHD[mine].unflatten(1, p_HGLM.shape[:2])
        by_key[read] = torch.einsum("hglm,lhgd->mhd", by_score_HGLM, query_LHGD)
    return by_query, by_key, by_value


def _segments(query_ends: Tensor, key_ends: Tensor) -> Iterator[tuple[slice, slice]]:
    q = query_ends.tolist()
    k = key_ends.tolist()
    return zip(map(slice, q, q[1:]), map(slice, k, k[1:]), strict=False)


def _weights(query_LHD: Tensor, key_MHD: Tensor, scale: float, window: list[int]) -> Tensor:
    """Softmaxes `[key heads, queries of each, L, M]`, causal: they end with the last query and the last key."""
    before = len(key_MHD) - len(query_LHD)
    mask_LM = torch.ones(len(query_LHD), len(key_MHD), dtype=torch.bool).tril(before)
    mask_LM = mask_LM.triu(before - window[0]) if window[0] >= 0 else mask_LM
    query_LHGD = query_LHD.unflatten(1, (key_MHD.shape[1], -1))
    scores_HGLM = scale * torch.einsum("lhgd,mhd->hglm", query_LHGD, key_MHD)
    return scores_HGLM.masked_fill(~mask_LM, -torch.inf).softmax(-1)
