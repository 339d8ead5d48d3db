"""Attention over one flat row of samples, without a dense mask: every token reads its own sample, and a shared prompt
is in the row once.

Axes: `_L` tokens of the flat row, `_M` keys in the order of their readers, `_N` segments of a block, `_A` their tokens,
`_B` the tokens that they read, `_HD` heads and their width.
"""

from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

FLAT = "loomrl_flat"
"""The name of this attention among those of transformers."""
EVEN = 0.75
"""The shortest segment of a block, as a share of the longest."""
UNMASKED = torch.empty(1, 1, 0, 0)
"""The mask that keeps a model from making one of its own, which a `Reading` replaces."""
GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
"""Fewer keys than queries: torch 2.11 takes them without being asked."""


class Segment(NamedTuple):
    """Tokens that follow each other in the row; each reads those before it, and all of the prefix."""

    start: int
    length: int
    prefix_start: int = 0
    prefix: int = 0
    """The prefix's length."""


class SegmentBlock(NamedTuple):
    """Segments with prefixes of one length, padded to the longest: padding comes after, so nothing reads it."""

    query_NA: Tensor
    key_NB: Tensor


class Blocks(NamedTuple):
    """A row for `scaled_dot_product_attention`, block by block."""

    blocks: tuple[SegmentBlock, ...]
    place_L: Tensor
    """The place of each token among the tokens of all blocks."""


class Variable(NamedTuple):
    """A row for `varlen_attn`, whose causal attention ends with the last query and the last key of a segment."""

    key_M: Tensor
    query_ends: Tensor
    key_ends: Tensor
    longest_query: int
    longest_key: int


Reading = Blocks | Variable
"""The tokens that every token of a flat row reads."""


class Spread(NamedTuple):
    """A row of which each process of a group has a slice of the tokens, and reads the whole with a share of the heads.

    Axes: `_S` the tokens of a slice, `_J` the share of the heads.
    """

    whole: Reading
    group: Any
    """The group's name."""
    size: int

    def exchange(self, tensor: Tensor) -> Tensor:
        """All tokens of the own heads for all heads of the own tokens, `[1, H, S, D]` → `[1, J, L, D]`; and back,
        `[1, L, J, D]` → `[1, S, H, D]`.
        """
        received = all_to_all_single_autograd(tensor[0].contiguous(), None, None, self.group)
        exchanged: Tensor = received.unflatten(0, (self.size, -1)).transpose(0, 1).flatten(1, 2)[None]
        return exchanged


def blocks_of(segments: Sequence[Segment]) -> Blocks:
    """The segments in blocks of little padding."""
    blocks = []
    place_L = np.zeros(sum(segment.length for segment in segments), np.int64)
    before = 0
    for members in _even(segments):
        start_N, length_N, prefix_start_N, prefix_N = np.array(members).T
        token_A = np.arange(length_N[0])
        query_NA = start_N[:, None] + np.minimum(token_A, length_N[:, None] - 1)
        prefix_NP = prefix_start_N[:, None] + np.arange(prefix_N[0])
        key_NB = np.concatenate([prefix_NP, query_NA], axis=1)
        blocks.append(SegmentBlock(torch.from_numpy(query_NA), torch.from_numpy(key_NB)))
        is_own = token_A < length_N[:, None]
        place_L[query_NA[is_own]] = before + np.flatnonzero(is_own)
        before += query_NA.size
    return Blocks(tuple(blocks), torch.from_numpy(place_L))


def _even(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    members: list[Segment] = []
    for segment in sorted(segments, key=lambda s: (s.prefix, -s.length)):
        if members and (segment.prefix != members[0].prefix or segment.length < EVEN * members[0].length):
            yield members
            members = []
        members.append(segment)
    if members:
        yield members


def variable_of(segments: Sequence[Segment]) -> Variable:
    """The segments, which are in the order of the row, with their keys."""
    keys: list[NDArray[np.int64]] = []
    for segment in segments:
        keys.append(np.arange(segment.prefix_start, segment.prefix_start + segment.prefix))
        keys.append(np.arange(segment.start, segment.start + segment.length))
    queries = [segment.length for segment in segments]
    read = [segment.length + segment.prefix for segment in segments]
    return Variable(torch.from_numpy(np.concatenate(keys)), _ends(queries), _ends(read), max(queries), max(read))


def _ends(lengths: Sequence[int]) -> Tensor:
    return torch.from_numpy(np.cumsum([0, *lengths], dtype=np.int32))


def on_device(reading: Reading, device: torch.device) -> Reading:
    """A copy on another device."""
    if isinstance(reading, Variable):
        key_M, query_ends, key_ends = (tensor.to(device) for tensor in reading[:3])
        return Variable(key_M, query_ends, key_ends, *reading[3:])
    blocks = tuple(SegmentBlock(*(tensor.to(device) for tensor in block)) for block in reading.blocks)
    return Blocks(blocks, reading.place_L.to(device))


def use_flat(lm: PreTrainedModel) -> bool:
    """Make the model's attention take a `Reading`, and stay `sdpa` without one; False if it cannot.

    Two samples that share a prompt are read flat and alone: layers that mix tokens otherwise would give one's to the
    other.
    """
    config: Any = lm.config.get_text_config()
    usual = config._attn_implementation
    if not lm._supports_attention_backend:
        return False
    ALL_ATTENTION_FUNCTIONS.register(FLAT, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(FLAT, sdpa_mask)
    config._attn_implementation = FLAT
    ids_LT = torch.tensor([[1, 2, 3, 4], [1, 2, 0, 3]], device=lm.device) % config.vocab_size
    positions_T = torch.arange(4, device=lm.device)
    reading = on_device(blocks_of([Segment(0, 2), Segment(2, 2, 0, 2), Segment(4, 2, 0, 2)]), lm.device)
    with torch.no_grad():
        flat_LH = lm.base_model(
            input_ids=torch.cat([ids_LT[0], ids_LT[1, 2:]])[None],
            attention_mask=UNMASKED.to(lm.device),
            position_ids=torch.cat([positions_T, positions_T[2:]])[None],
            use_cache=False,
            reading=reading,
        ).last_hidden_state[0]
        alone_NTH = lm.base_model(input_ids=ids_LT, use_cache=False).last_hidden_state
    apart = (flat_LH - torch.cat([alone_NTH[0], alone_NTH[1, 2:]])).float().norm() / flat_LH.float().norm()
    if apart < (1e-4 if flat_LH.dtype == torch.float32 else 0.02):
        return True
    config._attn_implementation = usual
    return False


def attend(  # noqa: PLR0913 - transformers decides
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    reading: Reading | Spread | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """The attention function of a layer, as transformers calls it."""
    if reading is None:
        if sliding_window is not None and attention_mask is not None:
            attention_mask = attention_mask.triu(1 - sliding_window)  # the same mask is given to layers of all kinds
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
    if isinstance(reading, Spread):
        own_1LJD, _ = attend(
            module,
            reading.exchange(query),
            reading.exchange(key),
            reading.exchange(value),
            attention_mask,
            reading=reading.whole,
            scaling=scaling,
            dropout=dropout,
            sliding_window=sliding_window,
        )
        return reading.exchange(own_1LJD), None
    query_LHD, key_LHD, value_LHD = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    grouped = key_LHD.shape[1] != query_LHD.shape[1]
    if isinstance(reading, Variable):
        made_LHD: Any = varlen_attn(
            query_LHD,
            key_LHD.index_select(0, reading.key_M),
            value_LHD.index_select(0, reading.key_M),
            reading.query_ends,
            reading.key_ends,
            reading.longest_query,
            reading.longest_key,
            scale=scaling,
            window_size=(-1 if sliding_window is None else sliding_window - 1, 0),
            **(GROUPED if grouped else {}),
        )
        return made_LHD[None], None
    made = []
    for query_NA, key_NB in reading.blocks:
        mask_AB = _mask(query_NA.shape[1], key_NB.shape[1], sliding_window, query.device)
        made_NHAD = scaled_dot_product_attention(
            _gather(query_LHD, query_NA),
            _gather(key_LHD, key_NB),
            _gather(value_LHD, key_NB),
            attn_mask=mask_AB,
            dropout_p=dropout,
            is_causal=mask_AB is None,
            scale=scaling,
            enable_gqa=grouped,
        )
        made.append(made_NHAD.transpose(1, 2).flatten(0, 1))
    return torch.cat(made).index_select(0, reading.place_L)[None], None


def _mask(queries: int, keys: int, window: int | None, device: torch.device) -> Tensor | None:
    """`[A, B]`, causal at their ends; None where plain causal attention does."""
    is_windowed = window is not None and window < keys
    if queries == keys and not is_windowed:
        return None
    mask_AB = torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
    return mask_AB if window is None else mask_AB.triu(keys - queries + 1 - window)


def _gather(tensor_LHD: Tensor, index_NA: Tensor) -> Tensor:
    """`[N, H, A, D]`."""
    chosen: Tensor = tensor_LHD.index_select(0, index_NA.flatten()).unflatten(0, index_NA.shape)
    return chosen.transpose(1, 2)
