"""A step whose whole work is in tensors that stay where they are, so that a GPU can replay it as one CUDA graph.

No GPU has run it yet; on a CPU the same functions are called one by one.

Axes: N rows at work, of which the last may be padding; S slots of the cache, and one more for the padding; C positions
up to the context, A heads of queries, H heads of keys and values, D width of a head, F fields of a row.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from loomrl.errors import ConfigError
from loomrl.inference.torch.adapters import AdapterRows, LowRankAdapter
from loomrl.inference.torch.fused import KNOWN, FusedNetwork, is_fusible, prove
from loomrl.inference.torch.network import KeyValues, zeros_like
from loomrl.inference.torch.rows import GOLDEN, MULTIPLIERS, draw

SINGLE = 8
"""Buckets up to this size are powers of two, larger ones multiples of twice as many rows."""
KERNEL = (torch.bfloat16, torch.float16)
"""Types of numbers that the GPU's own attention computes with."""


class RowCache(KeyValues):
    """Keys and values with a row's tokens one after another, [S, C, H, D], as the GPU's own attention reads them."""

    def _open(self, x_1H1D: Tensor) -> Tensor:
        return zeros_like(x_1H1D, self._slots, self._context, x_1H1D.shape[1], x_1H1D.shape[3]).transpose(1, 2)


class RowSpan(NamedTuple):
    """The part of the cache that each row reads, equal for all layers."""

    slot_N: Tensor
    start_N1: Tensor
    """The place of each row's first token among those of all slots; the last number is not used."""
    used_N: Tensor
    """The number of tokens that a row attends to, its new one included."""
    query_N1: Tensor
    """The place of each row's query, and the number of all."""


RowReading = Callable[[Tensor, tuple[Tensor, Tensor], RowSpan, float], Tensor]
"""Attention of queries [N, A, D] to keys and values [S, H, C, D] of `RowCache`."""


def read_gathered(q_NAD: Tensor, kept: tuple[Tensor, Tensor], span: RowSpan, scale: float) -> Tensor:
    """By copies of the rows, as far as the context: on any device, in any type of numbers."""
    key_NHCD, value_NHCD = (x_SHCD[span.slot_N] for x_SHCD in kept)
    seen_NC = torch.arange(key_NHCD.shape[2], device=q_NAD.device) < span.used_N[:, None]
    grouped = q_NAD.shape[1] > key_NHCD.shape[1]
    attended_NA1D = scaled_dot_product_attention(
        q_NAD[:, :, None], key_NHCD, value_NHCD, seen_NC[:, None, None], scale=scale, enable_gqa=grouped
    )
    return attended_NA1D[:, :, 0]


def read_in_place(q_NAD: Tensor, kept: tuple[Tensor, Tensor], span: RowSpan, scale: float) -> Tensor:
    """By the GPU's own attention, where the rows are.

    A slot is one block of the cache, named by its start. torch 2.11 has no block tables, and with them torch 2.13 can
    give numbers that are not finite (pytorch issue 194167).
    """
    key_KHD, value_KHD = (x_SHCD.transpose(1, 2).flatten(0, 1) for x_SHCD in kept)
    context = kept[0].shape[2]
    attended_NAD: Tensor = torch.ops.aten._flash_attention_forward(
        q_NAD, key_KHD, value_KHD, span.query_N1, span.start_N1, 1, context, 0.0, False, False,
        scale=scale, seqused_k=span.used_N,
    )[0]  # fmt: skip
    return attended_NAD


class GraphNetwork(FusedNetwork):
    """A network whose step can be captured: its shapes depend on the number of rows alone."""

    kept: RowCache

    def __init__(self, model: PreTrainedModel, *, slots: int, context: int) -> None:
        super().__init__(model, slots=slots, context=context)
        self._in_products = False  # no prefixes outside of the rows: they come and go
        self._read_cache: RowReading = read_gathered
        if model.device.type == "cuda" and model.dtype in KERNEL:
            self._read_cache = read_in_place
        self._slot = list(range(slots))
        self.padding = slots
        """The slot whose contents nothing depends on."""

    def _open_cache(self, *, slots: int, context: int) -> KeyValues:
        return RowCache(self.model, slots=slots + 1, context=context)

    def slots(self, count: int) -> Sequence[int]:
        """The slots of the first rows."""
        return self._slot[:count]

    def _read(self, prompts: Sequence[NDArray[np.int32]], rows: Sequence[int], *args: object, **kwargs: object) -> None:
        super()._read(prompts, [self._slot[row] for row in rows], *args, **kwargs)  # type: ignore[arg-type]

    def copy(self, source: int, target: int, length: int) -> None:
        """Let row `target` begin as row `source` does, up to `length`."""
        self.kept.copy(self._slot[source], self._slot[target], length)

    def move(self, source: int, target: int, length: int) -> None:
        """Put a row into the place of one that has ended: they change slots, and nothing is copied."""
        self._slot[source], self._slot[target] = self._slot[target], self._slot[source]

    def clear(self, row: int, length: int) -> None:
        """Zero what a row has read, and the token after that, which a step under way may have added."""
        self.kept.clear(self._slot[row], min(length + 1, self._context))

    def _step(self, ids_N: Tensor, position_N: Tensor, length: int, rows: AdapterRows | None) -> Tensor:
        slot_N = torch.tensor(self.slots(len(ids_N)), device=ids_N.device)
        return self.compute(ids_N, position_N, slot_N, rows)

    def compute(self, ids_N: Tensor, position_N: Tensor, slot_N: Tensor, rows: AdapterRows | None) -> Tensor:
        """The logits after one more token in each of these slots."""
        row_N1 = torch.arange(len(ids_N) + 1, dtype=torch.int32, device=ids_N.device)
        start_N = slot_N * self._context
        start_N1 = torch.cat([start_N, start_N[-1:]]).int()
        span = RowSpan(slot_N, start_N1, (position_N + 1).int(), row_N1)
        attend = partial(self._attend_span, start_N + position_N, span)
        return self._compute(ids_N, self._rotate(position_N), attend, rows)

    def _attend_span(
        self, place_N: Tensor, span: RowSpan, layer: int, q_NAD: Tensor, k_NHD: Tensor, v_NHD: Tensor
    ) -> Tensor:
        kept = self.kept.layers[layer]
        for x_SHCD, new_NHD in zip(kept, (k_NHD, v_NHD), strict=True):
            x_SHCD.transpose(1, 2).flatten(0, 1).index_copy_(0, place_N, new_NHD)
        return self._read_cache(q_NAD, kept, span, self._scale)


def open_graph_network(model: PreTrainedModel, *, slots: int, context: int) -> GraphNetwork:
    """A network whose step can be captured; a ConfigError for a model that it does not take."""
    if not is_fusible(model):
        names = ", ".join(kind.__name__ for kind in KNOWN)
        raise ConfigError(
            f"engine.graphs=true: {type(model).__name__} with these settings is not a plain {names}. Leave graphs out."
        )
    network = GraphNetwork(model, slots=slots, context=context)
    prove(network, slots=slots, context=context)
    return network


ID, SLOT, KEY, POSITION, INDEX, TEMPERATURE, TOP_P = range(7)
"""The fields of a row: int64, the last two by the bits of a float64. `INDEX` counts the uniform numbers of `KEY`."""


class LateDraw:
    """The [3, N] results of a step, on their way from the device."""

    def __init__(self, drawn_3N: Tensor) -> None:
        on_gpu = drawn_3N.is_cuda
        self._drawn_3N = torch.empty(drawn_3N.shape, dtype=drawn_3N.dtype, pin_memory=on_gpu)
        self._drawn_3N.copy_(drawn_3N, non_blocking=on_gpu)
        self._done = torch.cuda.Event() if on_gpu else None
        if self._done is not None:
            self._done.record()

    def read(self) -> NDArray[np.float64]:
        """Tokens, log-probabilities and shifts, once the step has ended."""
        if self._done is not None:
            self._done.synchronize()
        found: NDArray[np.float64] = self._drawn_3N.numpy()
        return found


class StaticStep:
    """A step that reads its inputs from fixed places, draws, and leaves the next step's inputs there."""

    def __init__(self, network: GraphNetwork) -> None:
        self._network = network
        device = network.model.device
        self._x_FS = torch.zeros(7, network.padding, dtype=torch.long, device=device)
        self._drawn_3S = torch.zeros(3, network.padding, dtype=torch.float64, device=device)
        self._graphs: dict[tuple[int, bool], torch.cuda.CUDAGraph] = {}
        self._adapter: LowRankAdapter | None = None

    def bucket(self, count: int) -> int:
        """The rows of the smallest graph that has room for so many."""
        size = 1 << (count - 1).bit_length() if count <= SINGLE else -(-count // (2 * SINGLE)) * 2 * SINGLE
        return min(size, self._network.padding)

    def set(self, x_FN: NDArray[np.int64], source_N: NDArray[np.int64]) -> None:
        """Set the inputs of a bucket: row i is what row `source_N[i]` was, or the given one where that is negative.

        A row that was there has an id that only the device knows.
        """
        count = x_FN.shape[1]
        padded = np.zeros((8, self.bucket(count)), np.int64)
        padded[SLOT] = self._network.padding
        padded[[TEMPERATURE, TOP_P]] = np.float64(1).view(np.int64)
        padded[7] = -1
        padded[:7, :count] = x_FN
        padded[7, :count] = source_N
        given = torch.from_numpy(padded)
        if self._x_FS.is_cuda:
            given = given.pin_memory().to(self._x_FS.device, non_blocking=True)
        kept_FN = self._x_FS[:, given[7].clamp(min=0)]
        self._x_FS[:, : given.shape[1]] = torch.where(given[7] < 0, given[:7], kept_FN)

    def run(self, count: int, *, nucleus: bool, adapter: LowRankAdapter | None = None) -> LateDraw:
        """One token in each of the first rows, which all have this adapter; `nucleus` if any has a top-p below 1."""
        size = self.bucket(count)
        if adapter is not self._adapter:
            self.forget()
            self._adapter = adapter
        if self._x_FS.is_cuda:
            graph = self._graphs.get((size, nucleus)) or self._capture(size, nucleus)
            graph.replay()
        else:
            self._compute(size, nucleus)
        return LateDraw(self._drawn_3S[:, :count])

    def forget(self) -> None:
        """Drop the graphs: what they read has moved."""
        self._graphs = {}

    def _capture(self, size: int, nucleus: bool) -> torch.cuda.CUDAGraph:
        before_FS = self._x_FS.clone()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # kernels are loaded at their first use, which a capture does not allow
            self._compute(size, nucleus)
        torch.cuda.current_stream().wait_stream(aside)
        self._x_FS.copy_(before_FS)
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self._graphs.values())).pool() if self._graphs else None
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):  # a learner may be in another
            self._compute(size, nucleus)
        self._graphs[size, nucleus] = graph
        return graph

    def _compute(self, size: int, nucleus: bool) -> None:
        x_FN = self._x_FS[:, :size]
        adapters = self._network.adapted.stepping([self._adapter] * size) if self._adapter else nullcontext()
        with adapters as rows:
            logits_NV = self._network.compute(x_FN[ID], x_FN[POSITION], x_FN[SLOT], rows)
        found = draw(
            logits_NV,
            x_FN[TEMPERATURE].view(torch.float64),
            x_FN[TOP_P].view(torch.float64) if nucleus else None,
            device_uniforms(x_FN[KEY], x_FN[INDEX]),
        )
        self._drawn_3S[:, :size] = found.columns()
        x_FN[ID] = found.token_N
        x_FN[POSITION : INDEX + 1] += x_FN[SLOT] < self._network.padding  # padding stays at its first place


def device_uniforms(key_N: Tensor, index_N: Tensor) -> Tensor:
    """`rows.uniforms` of mixed seeds, to the bit, in signed numbers: devices have no arithmetic for unsigned ones."""
    bits_N = _mix(key_N + index_N * _signed(GOLDEN))
    return _shift(bits_N, 11).double() * 2.0**-53


def _mix(x_N: Tensor) -> Tensor:
    x_N = x_N + _signed(GOLDEN)
    for places, multiplier in zip((30, 27), MULTIPLIERS, strict=True):
        x_N = (x_N ^ _shift(x_N, places)) * _signed(multiplier)
    return x_N ^ _shift(x_N, 31)


def _shift(x_N: Tensor, places: int) -> Tensor:
    """Shifted to the right as an unsigned number."""
    return (x_N >> places) & ((1 << (64 - places)) - 1)


def _signed(number: np.uint64) -> int:
    return int(number.astype(np.int64))
