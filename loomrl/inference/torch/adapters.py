"""Low-rank adapters beside one base model: every row of a batch computes with its own.

Axes: N rows at work, M of them that have an adapter, I inputs and O outputs of a layer, R rank.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from loomrl.errors import PolicyError
from loomrl.inference.weights.adapter import NARROW, WIDEN, factors_of
from loomrl.inference.weights.sealed import Sealed, checksum, not_what_was_sealed

Parts = Sequence[tuple[str, int]]
"""Layers that read the same input, and the number of outputs of each."""


class LowRankLayer(NamedTuple):
    """The addition to a layer, x · narrow · widen: float32 like the learner's, whatever the base computes in."""

    narrow_IR: Tensor
    widen_RO: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class LowRankAdapter:
    """The additions of one policy version, by the names of the layers."""

    version: int
    layers: Mapping[str, LowRankLayer]

    def read_back(self, sealed: Sealed) -> None:
        """A PolicyError names the tensors whose values in memory differ from the sealed ones."""
        own: dict[str, Tensor] = {}
        for name, layer in self.layers.items():
            own[name + NARROW] = layer.narrow_IR.t()
            own[name + WIDEN] = layer.widen_RO.t()
        wrong = [name for name, given in sealed.weights.items() if checksum(own[name]) != checksum(given.float())]
        if wrong:
            raise not_what_was_sealed(sealed, wrong)


@dataclass(frozen=True, slots=True, eq=False)
class AdapterRows:
    """The rows of a batch, by adapter."""

    count: int
    spans: Sequence[tuple[LowRankAdapter, int, int]]
    """Each adapter, and where its rows are among the M."""
    member_M: Tensor | None
    """The rows in this order; None if one adapter has all."""

    def add(self, x_NI: Tensor, parts: Parts, y_NO: Tensor) -> None:
        """Add each row's additions to the outputs of some layers, in place."""
        if self.member_M is not None and len(x_NI) != self.count:
            raise PolicyError(
                f"{parts[0][0]} computes {len(x_NI)} vectors for {self.count} rows of different adapters, so that it "
                "is unknown which are whose. Give each adapter of this model an engine of its own."
            )
        x_MI = x_NI.float() if self.member_M is None else x_NI[self.member_M].float()
        outputs = y_NO.split([width for _, width in parts], 1)
        for (name, _), part_NO in zip(parts, outputs, strict=True):
            self._add(name, x_MI, part_NO)

    def _add(self, name: str, x_MI: Tensor, y_NO: Tensor) -> None:
        layers = [adapter.layers.get(name) for adapter, _, _ in self.spans]
        if self.member_M is None:
            _add(x_MI, layers[0], y_NO)
            return
        y_MO = y_NO[self.member_M]
        for layer, (_, first, end) in zip(layers, self.spans, strict=True):
            _add(x_MI[first:end], layer, y_MO[first:end])
        y_NO.index_copy_(0, self.member_M, y_MO)


def _add(x: Tensor, layer: LowRankLayer | None, y: Tensor) -> None:
    if layer is None:
        return
    if y.dtype == torch.float32:
        y.addmm_(x @ layer.narrow_IR, layer.widen_RO)
    else:
        y.add_(x @ layer.narrow_IR @ layer.widen_RO)


class AdaptedModel:
    """A model whose layers add what the adapters of the present rows say."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._hooked: set[str] = set()
        self._arranged: tuple[Sequence[LowRankAdapter | None], AdapterRows | None] = (), None
        self.rows: AdapterRows | None = None

    def open(self, sealed: Sealed) -> LowRankAdapter:
        """The adapter in the model's memory; a PolicyError if it does not fit."""
        device = self._model.device
        layers = {
            name: LowRankLayer(*(_copy(factor.to(device).t()) for factor in (narrow_RI, widen_OR)))
            for name, (narrow_RI, widen_OR) in factors_of(self._model, sealed).items()
        }
        for name in layers.keys() - self._hooked:
            self._hook(name)
        return LowRankAdapter(sealed.version, layers)

    @contextmanager
    def reading(self, adapter: LowRankAdapter | None) -> Iterator[None]:
        """In this context, everything is computed with one adapter."""
        with self._using(None if adapter is None else AdapterRows(1, [(adapter, 0, 1)], None)):
            yield

    @contextmanager
    def stepping(self, adapters: Sequence[LowRankAdapter | None]) -> Iterator[AdapterRows | None]:
        """In this context, row i is computed with `adapters[i]`."""
        if self._arranged[0] != adapters:
            self._arranged = adapters, _arrange(adapters, self._model.device)
        with self._using(self._arranged[1]):
            yield self._arranged[1]

    @contextmanager
    def _using(self, rows: AdapterRows | None) -> Iterator[None]:
        self.rows = rows
        try:
            yield
        finally:
            self.rows = None

    def _hook(self, name: str) -> None:
        def add(_: Any, inputs: tuple[Tensor], output: Tensor) -> None:
            if self.rows is not None:
                width = output.shape[-1]
                self.rows.add(inputs[0].flatten(0, -2), ((name, width),), output.view(-1, width))

        self._model.get_submodule(name).register_forward_hook(add)
        self._hooked.add(name)


def _copy(x: Tensor) -> Tensor:
    """Memory of the engine's own: what it was given may be lent."""
    return x.clone(memory_format=torch.contiguous_format)


def _arrange(adapters: Sequence[LowRankAdapter | None], device: torch.device) -> AdapterRows | None:
    """The rows that have these adapters; None if no row has any."""
    rows: dict[LowRankAdapter, list[int]] = {}
    for row, adapter in enumerate(adapters):
        if adapter is not None:
            rows.setdefault(adapter, []).append(row)
    if not rows:
        return None
    spans = []
    first = 0
    for adapter, found in rows.items():
        spans.append((adapter, first, first + len(found)))
        first += len(found)
    if len(spans) == 1 and first == len(adapters):
        return AdapterRows(len(adapters), spans, None)
    member_M = torch.tensor([row for found in rows.values() for row in found], device=device)
    return AdapterRows(len(adapters), spans, member_M)
