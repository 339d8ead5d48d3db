"""Sequence parallelism: learners that share every flat row, each with a slice of its tokens (DeepSpeed's Ulysses).

In attention each has whole rows and a share of the heads (`flat.Spread`). Not torch's own `context_parallel`: it knows
neither rows of many samples nor shared prompts.

Axes: `_K` action tokens of the whole row, `_S` those that this learner's slice scores.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_reduce
from torch.nn.functional import pad

from loomrl.algorithms.language.batch import inputs
from loomrl.algorithms.language.flat import Reading, Segment, Spread
from loomrl.algorithms.language.packing import Packed, Reader
from loomrl.algorithms.language.score import Scores
from loomrl.errors import ConfigError
from loomrl.inference.footprint import key_heads


class RowGroup:
    """The learners that share rows, as one of them sees it."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = group.rank()
        self.size = group.size()

    @staticmethod
    def join(size: int) -> "RowGroup":
        """The group of this learner: `size` learners of neighbouring ranks. All learners call it together."""
        group, _ = dist.new_subgroups(group_size=size)
        return RowGroup(group)

    def reader(self, read: Reader) -> Reader:
        """A reader of rows that are filled up to slices of one length, by a segment that nothing else reads."""

        def read_padded(segments: Sequence[Segment]) -> Reading:
            length = sum(segment.length for segment in segments)
            rest = -length % self.size
            return read([*segments, Segment(length, rest)] if rest else segments)

        return read_padded

    def scores(self, module: Callable[[dict[str, Any]], Scores], packed: Packed) -> Scores:
        """The module's scores of the whole row, to which each learner adds its slice.

        So every loss can be computed as by one learner. Its gradient goes to the slices: the sum over learners is that
        of the whole row.
        """
        assert packed.reading is not None, "the settings refuse dense rows"
        length = -(-packed.ids_BT.shape[1] // self.size)
        start = self.rank * length
        given = inputs(packed)
        own_S = torch.nonzero(packed.column_K // length == self.rank)[:, 0]
        for name in ("ids_BT", "positions_BT", "shown_BT"):
            given[name] = pad(given[name], (0, length * self.size - packed.ids_BT.shape[1]))[:, start : start + length]
        for name in ("row_K", "column_K", "target_K"):
            given[name] = given[name][own_S]
        given["column_K"] = given["column_K"] - start
        part = module({**given, "reading": Spread(packed.reading, self.group.group_name, self.size)})
        count = len(packed.target_K)
        return {name: _Whole.apply(own, own_S, count, self.group) for name, own in part.items()}  # type: ignore[no-untyped-call]


class _Whole(torch.autograd.Function):
    """Numbers of all tokens from the learners' own. As each computes the same loss of them, gradients are not added."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, own_S: Tensor, count: int, group: Any) -> Tensor:
        ctx.save_for_backward(own_S)
        placed = own.new_zeros(count, *own.shape[1:]).index_copy_(0, own_S, own)
        return torch.clone(all_reduce(placed, "sum", group))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient of the own tokens."""
        (own_S,) = ctx.saved_tensors
        return gradients[0].index_select(0, own_S), None, None, None


def refuse_unshared(config: Any, size: int) -> None:
    """A ConfigError if so many learners cannot share the rows of a model with this configuration."""
    rotations = str(getattr(config.get_text_config(), "rope_parameters", None))
    if size > 1 and ("'dynamic'" in rotations or "'longrope'" in rotations):
        raise ConfigError(
            f"learners.sequence_parallel={size}: the {config.model_type} model turns its keys by the longest position "
            "of a pass, which slices do not agree on. Use learners.sequence_parallel=1."
        )
    heads = key_heads(config)
    if heads % size:
        fitting = ", ".join(str(each) for each in range(1, heads + 1) if heads % each == 0)
        raise ConfigError(
            f"learners.sequence_parallel={size}: the {config.model_type} model has {heads} key-value heads, to be "
            f"shared in equal parts. Choose from {fitting}."
        )
