"""The work of one learner, and its micro-batches as tensors.

Axes: `_N` samples, `_T` tokens of one sample, `_K` action tokens of one micro-batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from loomrl.algorithms.language.flat import UNMASKED
from loomrl.algorithms.language.loss import token_weights
from loomrl.algorithms.language.packing import MicroBatch, Packed, Reader, Sample, UpdateStep, attention_mask, rows
from loomrl.algorithms.losses import kl_estimate

if TYPE_CHECKING:
    from loomrl.algorithms.language.advantage import Column


Kind = Literal["imitate", "reinforce", "prefer", "weigh", "follow"]
"""How samples are learnt from: demonstrations, rewards, pairs, answers that are desirable or not, the best answers."""


@dataclass(frozen=True, slots=True)
class LanguageWork:
    """One update as one learner sees it: all samples, and this learner's part of each step."""

    kind: Kind
    samples: tuple[Sample, ...]
    steps: tuple[UpdateStep, ...]
    rate: float
    """Learning rate."""
    groups: tuple[str, ...] = ()
    """Group of each sample. Preferences have none: there every better sample is followed by the worse one."""
    epochs: int = 1
    """Passes over the samples."""
    labels: tuple[float, ...] = ()
    """Weight of each sample, negative if it is undesirable."""
    multipliers: tuple[float, ...] = ()
    """Weight of every objective in addition to each sample's preference."""
    noise: int = 0
    """Seed of dropout."""
    mismatched: "LanguageWork | None" = None
    """Prompts with the answers to others, which are scored and never learnt."""


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """A micro-batch as tensors, with the indices of its samples."""

    packed: Packed
    order: tuple[int, ...]
    shares: tuple[float, ...] = ()
    """Each sample's share of its attempt."""
    targets: tuple[int, ...] = (0,)
    """Each sample's trained tokens."""

    @staticmethod
    def of(
        samples: Sequence[Sample], micro_batch: MicroBatch, device: Any, *, read: Reader | None = None
    ) -> "TokenBatch":
        """The tensors of these rows of samples; with `read`, of one flat row."""
        order = tuple(index for row in micro_batch for index in row)
        packed = rows(samples, micro_batch, read=read).to(device)
        sizes = [samples[index].size for index in order]
        targets = tuple(size.targets for size in sizes) or (0,)
        return TokenBatch(packed, order, tuple(size.share for size in sizes), targets)

    @property
    def count(self) -> int:
        """The number of samples; the empty micro-batch has one without targets."""
        return max(1, len(self.order))

    def weights(self, step: UpdateStep, average: Literal["token", "sequence"]) -> Tensor:
        """The weight of each action token in the step's loss; over a whole step the weights sum to one."""
        sample_K = self.packed.sample_K
        targets_N = np.array(self.targets)
        weight_N = token_weights(
            targets_N, average=average, tokens=step.targets, samples=step.samples, shares_N=self.shares
        )
        return torch.from_numpy(weight_N).to(sample_K.device)[sample_K]

    def pairs(self) -> tuple[list[int], list[int]]:
        """The positions of the better samples, and those of their worse counterparts."""
        at = {index: position for position, index in enumerate(self.order)}
        better = [index for index in self.order if index % 2 == 0]
        return [at[index] for index in better], [at[index + 1] for index in better]


def inputs(packed: Packed) -> dict[str, Any]:
    """The input of `LanguageModule`."""
    return {
        "ids_BT": packed.ids_BT,
        "positions_BT": packed.positions_BT,
        "attention": attention_mask(packed.segment_BT) if packed.reading is None else UNMASKED.to(packed.ids_BT.device),
        "reading": packed.reading,
        "row_K": packed.row_K,
        "column_K": packed.column_K,
        "target_K": packed.target_K,
        "shown_BT": packed.shown_BT,
        "pictures": packed.pictures,
    }


def with_columns(samples: Sequence[Sample], columns: "Mapping[str, Column]") -> list[Sample]:
    """The samples with further columns."""
    return [
        replace(s, columns={**s.columns, **{name: np.asarray(c[i], np.float32) for name, c in columns.items()}})
        for i, s in enumerate(samples)
    ]


def kl(logp: NDArray[np.floating], reference: NDArray[np.floating], estimator: Any) -> NDArray[np.float32]:
    """`kl_estimate` of arrays."""
    made: NDArray[np.float32] = kl_estimate(
        torch.as_tensor(logp, dtype=torch.float32), torch.as_tensor(reference, dtype=torch.float32), estimator=estimator
    ).numpy()
    return made


def gather(found: dict[int, Any]) -> dict[int, Any]:
    """The results of all learners, on each of them."""
    if not dist.is_initialized():
        return found
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, found)
    return {index: scores for part in everyone for index, scores in part.items()}
