"""Prompts that several rows begin with: kept once, outside of their rows, and read once a step for all of them.

Axes: N rows at work, M of them that begin with a prefix, H heads of keys and values, G queries that share one, P
positions of a prefix, D width of a head; I queries of a head (M * G).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loomrl.inference.torch.adapters import LowRankAdapter

NOTHING = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """The keys and values of a prompt; of none if all of it is in the rows."""

    ids_T: NDArray[np.int32]
    layers: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """[H, D, P] keys, in the order in which few queries read them fastest, and [H, P, D] values."""
    adapter: LowRankAdapter | None = None
    """The adapter that it was read with."""

    @property
    def length(self) -> int:
        """Positions that are here instead of in the rows."""
        return len(self.ids_T)

    def add(self, key_HTD: Tensor, value_HTD: Tensor) -> None:
        """Copy the first positions of the next layer."""
        key_HPD = key_HTD[:, : self.length]
        value_HPD = value_HTD[:, : self.length]
        self.layers.append((key_HPD.transpose(1, 2).contiguous(), value_HPD.clone()))

    def cut(self, length: int) -> "Prefix":
        """Its first positions."""
        layers = [(key_HDP[..., :length], value_HPD[:, :length]) for key_HDP, value_HPD in self.layers]
        return Prefix(self.ids_T[:length], layers, self.adapter)


class Attended(NamedTuple):
    """A softmax over some of the positions: it can be joined with one over the others."""

    peak: Tensor
    """The largest score of each query."""
    total: Tensor
    """The sum of the weights, where that of the largest score is 1."""
    sum: Tensor
    """The values by their weights."""

    def join(self, other: "Attended") -> Tensor:
        """The output of attention to the positions of both."""
        peak = torch.maximum(self.peak, other.peak)
        mine = (self.peak - peak).exp_()
        others = (other.peak - peak).exp_()
        return (self.sum * mine).addcmul_(other.sum, others).div_((self.total * mine).addcmul_(other.total, others))


def attend(score: Tensor, value: Tensor) -> Attended:
    """Attention to some of the positions. The scores are lost."""
    peak = score.amax(-1, keepdim=True)
    weight = score.sub_(peak).exp_()
    return Attended(peak, weight.sum(-1, keepdim=True), torch.bmm(weight, value))


@dataclass(frozen=True, slots=True, eq=False)
class PrefixArrangement:
    """The prefixes of the first N rows."""

    base_N: Tensor
    """Positions that are in the row's prefix instead of the row."""
    member_M: Tensor
    """The rows that have one, by prefix."""
    back_M: Tensor
    """The places of these rows among the M, in the order of the rows."""
    spans: Sequence[tuple[Prefix, int, int]]
    """Each prefix, and where its rows are among the M."""

    def attend(self, q_NHGD: Tensor, layer: int) -> Attended:
        """Attention to the prefixes, for the heads of all rows: [N * H, G, …]."""
        count, heads, shared, width = q_NHGD.shape
        q_HID = q_NHGD[self.member_M].transpose(0, 1).reshape(heads, -1, width)
        parts = []
        for prefix, first, end in self.spans:
            key_HDP, value_HPD = prefix.layers[layer]
            parts.append(attend(torch.bmm(q_HID[:, first * shared : end * shared], key_HDP), value_HPD))
        joint = (torch.cat(xs, 1) for xs in zip(*parts, strict=True))
        found = [x_HI.view(heads, -1, shared, x_HI.shape[-1]).transpose(0, 1) for x_HI in joint]
        if len(self.member_M) == count:
            return Attended(*(x_MHG[self.back_M].flatten(0, 1) for x_MHG in found))
        whole = [q_NHGD.new_zeros(count, heads, shared, x.shape[-1]) for x in found]
        whole[0].fill_(-torch.inf)
        for x_NHG, x_MHG in zip(whole, found, strict=True):
            x_NHG[self.member_M] = x_MHG
        return Attended(*(x_NHG.flatten(0, 1) for x_NHG in whole))


class Prefixes:
    """The prefix of each row; rows with equal beginnings share one.

    All are of one version of the weights.
    """

    def __init__(self, slots: int) -> None:
        self._of: list[Prefix | None] = [None] * slots
        self._known: PrefixArrangement | None = None

    def distinct(self) -> int:
        """The number of different beginnings."""
        return len({prefix for prefix in self._of if prefix is not None})

    def __getitem__(self, row: int) -> Prefix:
        return self._of[row] or Prefix(NOTHING)

    def __setitem__(self, row: int, prefix: Prefix | None) -> None:
        self._of[row] = prefix
        self._known = None

    def forget(self) -> None:
        """Drop all."""
        self._of = [None] * len(self._of)
        self._known = None

    def longest(self, ids_T: NDArray[np.int32], adapter: LowRankAdapter | None) -> Prefix | None:
        """The longest one of this adapter that these ids go on from."""
        found: Prefix | None = None
        for prefix in dict.fromkeys(self._of):
            if prefix is None or prefix.adapter is not adapter:
                continue
            if (found.length if found else 0) < prefix.length <= len(ids_T):
                found = prefix if np.array_equal(ids_T[: prefix.length], prefix.ids_T) else found
        return found

    def arrange(self, count: int) -> PrefixArrangement:
        """Those of the first rows; those of later ones are dropped."""
        if self._known is None or len(self._known.base_N) != count:
            self._of[count:] = [None] * (len(self._of) - count)
            self._known = _arrange(self._of[:count])
        return self._known


def _arrange(prefixes: Sequence[Prefix | None]) -> PrefixArrangement:
    rows: dict[Prefix, list[int]] = {}
    for row, prefix in enumerate(prefixes):
        if prefix is not None and prefix.length:
            rows.setdefault(prefix, []).append(row)
    spans = []
    first = 0
    for prefix, found in rows.items():
        spans.append((prefix, first, first + len(found)))
        first += len(found)
    base_N = torch.tensor([prefix.length if prefix else 0 for prefix in prefixes])
    member_M = torch.tensor([row for found in rows.values() for row in found], dtype=torch.long)
    return PrefixArrangement(base_N, member_M, member_M.argsort(), spans)
