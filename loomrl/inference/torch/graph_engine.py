"""The embedded engine by CUDA graphs: the GPU is given the next step before the last one's tokens are read."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from typing_extensions import override

from loomrl.inference.torch.adapters import LowRankAdapter
from loomrl.inference.torch.engine import TorchEngine
from loomrl.inference.torch.graphs import GraphNetwork, LateDraw, StaticStep, open_graph_network
from loomrl.inference.torch.network import CachedNetwork
from loomrl.inference.torch.rows import OpenRequest, mix
from loomrl.inference.vision import Vision

UNKNOWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A step that was begun and whose tokens were not read yet."""

    opened: list[OpenRequest]
    version_N: NDArray[np.int32]
    drawn: LateDraw


class GraphEngine(TorchEngine):
    """Samples as `TorchEngine` does, from equal logits the same tokens; a request that ends costs one step too many.

    Steps in which a request has a form, other odds, the likeliest tokens or entropies, or requests have different
    adapters, are made one operation at a time.
    """

    _network: GraphNetwork | None

    @override
    def _build(self, model: PreTrainedModel, *, slots: int, context: int, vision: Vision | None) -> CachedNetwork:
        network = open_graph_network(model, slots=slots, context=context)
        self._static = StaticStep(network)
        self._flight: Flight | None = None
        self._placed: list[OpenRequest] = []
        """The rows whose inputs are on the device."""
        return network

    @override
    def _step(self) -> bool:
        with torch.inference_mode():
            # all rows are read anew, so all their tokens must be known
            ended = self._land() if self._stale else 0
        return super()._step() or ended > 0

    @override
    def _advance(self) -> int:
        if self._is_plain():
            ended = self._land()
            return ended + (super()._advance() if self._rows.opened else 0)
        flight = self._launch()
        ended = self._read(self._flight)
        self._flight = flight
        return ended

    def _is_plain(self) -> bool:
        opened = self._rows.opened
        wants_more = any(one.request.shifts or one.request.top or one.request.sampling.entropies for one in opened)
        return wants_more or len(self._adapters_of(opened)) > 1

    def _adapters_of(self, opened: list[OpenRequest]) -> set[LowRankAdapter | None]:
        return {self._adapter(one) for one in opened}

    def _land(self) -> int:
        """Read the step under way; what is on the device is then known here too."""
        ended = self._read(self._flight)
        self._flight = None
        self._placed = []
        return ended

    def _launch(self) -> Flight | None:
        """Begin a step; None if all rows end with the tokens that are under way."""
        opened = list(self._rows.opened)
        if self._flight is not None and opened == self._flight.opened and self._rows.left().max() <= 1:
            return None
        if opened != self._placed:
            self._place(opened)
        (adapter,) = self._adapters_of(opened)
        nucleus = any(one.request.sampling.top_p < 1 for one in opened)
        return Flight(opened, self._versions(), self._static.run(len(opened), nucleus=nucleus, adapter=adapter))

    def _place(self, opened: list[OpenRequest]) -> None:
        """Tell the device which rows there are, and where each of them was."""
        columns = self._rows.columns()
        seed_N, index_N = self._rows.counters()
        ids_N, position_N = columns[:2].astype(np.int64)
        slots = self._open_network().slots(len(opened))
        keys_N = mix(seed_N).view(np.int64)
        x_FN = np.stack([ids_N, slots, keys_N, position_N, index_N.view(np.int64), *columns[2:4].view(np.int64)])
        before = {one: row for row, one in enumerate(self._placed)}
        self._static.set(x_FN, np.array([before.get(one, UNKNOWN) for one in opened]))
        self._placed = opened

    def _read(self, flight: Flight | None) -> int:
        """Settle the tokens of a step in the rows that are still open."""
        if flight is None:
            return 0
        row_of = {one: row for row, one in enumerate(self._rows.opened)}
        column_N = np.array([column for column, one in enumerate(flight.opened) if one in row_of], np.int64)
        row_N = np.array([row_of[flight.opened[column]] for column in column_N], np.int64)
        return self._settle(row_N, flight.drawn.read()[:, column_N], flight.version_N[column_N])

    @override
    def pause(self) -> None:
        with torch.inference_mode():
            self._land()
        super().pause()

    @override
    def _free(self) -> None:
        self._static.forget()  # before what the graphs point to is anybody's
        super()._free()

    @override
    async def close(self) -> None:
        await super().close()
        del self._static

    @override
    def _open_network(self) -> GraphNetwork:
        assert self._network is not None, "the engine is open"
        return self._network
