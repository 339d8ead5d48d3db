"""Samples of many lengths as the work of one update: optimizer steps, micro-batches, rows, tensors.

Axes: `_N` samples, `_T` tokens of one sample, `_BT` rows of packed tokens, `_K` a flat list of the tokens to learn.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loomrl.algorithms.language.flat import Reading, Segment, on_device

if TYPE_CHECKING:
    from loomrl.config.language import Optimizer

Row = tuple[int, ...]
"""Indices of the samples in one row, in order."""
MicroBatch = tuple[Row, ...]
"""Rows of one forward pass. Empty if a learner only takes part in collective operations."""
Reader = Callable[[Sequence[Segment]], Reading]
"""Makes segments the `reading` of a flat row."""

ROW_LENGTHS = (1.0, 1.5, 2.0)
"""Candidate row lengths, as multiples of the longest sample."""
LONGER = 0.1
"""Share of a row's work that attention adds per longest sample: measured on a small model with short samples."""
READ_AGAIN = 16
"""Tokens of a prompt whose keys, copied for a further reader, take the memory of one token that is computed."""
ID_BYTES = 4


class SampleSize(NamedTuple):
    """A sample's tokens, and its trained tokens (mask true, never the first token)."""

    tokens: int
    targets: int
    share: float = 1.0
    """Share of its attempt's trained tokens."""
    prompt: bytes = b""
    """Its ids before the first trained one; empty if they cannot be shared with another sample."""


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """One optimizer step as one learner sees it. `targets` and `samples` count over all learners.

    `samples` are the attempts with targets; a thread counts as its share of one. All learners have the same number of
    micro-batches in a step.
    """

    micro_batches: tuple[MicroBatch, ...]
    targets: int
    samples: float


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One sequence to learn from: ids, a mask of the policy's tokens, and float columns per token."""

    ids_T: NDArray[np.int32]
    mask_T: NDArray[np.bool_]
    columns: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    pictures: tuple[bytes, ...] = ()
    """The pictures behind the image tokens that the policy did not choose, in order."""
    attempt: str = ""
    """The attempt that it is a thread of; empty if it is the whole attempt. The first thread comes last."""
    share: float = 1.0
    """Share of its attempt's trained tokens."""
    preference: tuple[float, ...] = ()
    """Its weight of each objective, if there are several."""

    @property
    def size(self) -> SampleSize:
        """Its length, its number of trained tokens, and its prompt."""
        return SampleSize(len(self.ids_T), int(self.mask_T[1:].sum()), self.share, self._prompt)

    @property
    def _prompt(self) -> bytes:
        first = int(self.mask_T.argmax())
        return b"" if self.pictures else self.ids_T[:first].tobytes()


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """One micro-batch as tensors.

    `hidden_BTH[row_K, column_K]` are the hidden states that predict `target_K`; `sample_K` says to which sample,
    counted through the rows, a target belongs. Samples in a row are `segment_BT` 1, 2, …; padding continues the last
    of them, and as attention is causal it changes nothing. A flat row has a `reading` in the place of segments.
    """

    ids_BT: Tensor
    positions_BT: Tensor
    segment_BT: Tensor
    row_K: Tensor
    column_K: Tensor
    target_K: Tensor
    sample_K: Tensor
    columns: Mapping[str, Tensor]
    shown_BT: Tensor
    """Tokens that are replaced by a picture if they are image tokens: the unchosen ones of samples with pictures."""
    pictures: tuple[bytes, ...] = ()
    """Pictures of all samples, in the order of the rows."""
    reading: Reading | None = None

    def to(self, device: torch.device) -> "Packed":
        """A copy on another device."""
        kept = ("columns", "pictures", "reading")
        tensors = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name not in kept}
        columns = {name: column.to(device) for name, column in self.columns.items()}
        reading = None if self.reading is None else on_device(self.reading, device)
        return Packed(**tensors, columns=columns, pictures=self.pictures, reading=reading)


def attempts_of(samples: Sequence[Sample]) -> list[list[int]]:
    """The samples of each attempt: one, or all its threads, which follow each other."""
    attempts: list[list[int]] = []
    for index, sample in enumerate(samples):
        goes_on = bool(sample.attempt) and index > 0 and samples[index - 1].attempt == sample.attempt
        if goes_on:
            attempts[-1].append(index)
        else:
            attempts.append([index])
    return attempts


def pack(lengths: Sequence[int], *, row: int) -> list[list[int]]:
    """Rows of at most `row` tokens (a longer sample gets its own): longest sample first, each into the fullest row."""
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        at = bisect_left(free, (lengths[index], -1))
        room, into = free.pop(at) if at < len(free) else (row, len(rows))
        if into == len(rows):
            rows.append([])
        rows[into].append(index)
        insort(free, (room - lengths[index], into))
    return rows


def plan_update(
    sizes: Sequence[SampleSize],
    *,
    optimizer: "Optimizer",
    learners: int,
    rng: np.random.Generator,
    units: Sequence[Sequence[int]] | None = None,
    flat: bool = False,
) -> tuple[tuple[UpdateStep, ...], ...]:
    """The steps of each learner: `plan[learner][step]`, `epochs * minibatches` of them. Deterministic in `rng`.

    Every sample is used once per epoch, by one learner. `units` are samples that stay together in one row, such as the
    pairs of a preference; None makes each sample a unit. Fewer units than minibatches make fewer steps. `flat` makes
    every micro-batch one row, in which samples of one prompt follow each other.
    """
    alone = units if units is not None else [[index] for index in range(len(sizes))]
    assert optimizer.micro_batch_tokens != "auto", "the number is chosen before a run begins"
    steps = [
        _step([alone[i] for i in part], sizes, optimizer.micro_batch_tokens, learners, flat=flat)
        for _ in range(optimizer.epochs)
        for part in np.array_split(rng.permutation(len(alone)), max(1, min(optimizer.minibatches, len(alone))))
    ]
    return tuple(zip(*steps, strict=True))


def _step(
    units: Sequence[Sequence[int]], sizes: Sequence[SampleSize], budget: int, learners: int, *, flat: bool
) -> list[UpdateStep]:
    lengths = [size.tokens for size in sizes]
    shares = _shares(units, lengths, learners)
    if flat:
        work = [_flat_micro_batches(share, sizes, budget) for share in shares]
    else:
        work = [_micro_batches(share, lengths, budget) for share in shares]
    passes = max(len(micro_batches) for micro_batches in work)
    sizes_N = [sizes[index] for unit in units for index in unit]
    targets = sum(size.targets for size in sizes_N)
    samples = sum(size.share for size in sizes_N if size.targets)
    return [UpdateStep((*mine, *[()] * (passes - len(mine))), targets, samples) for mine in work]


def _shares(units: Sequence[Sequence[int]], lengths: Sequence[int], learners: int) -> list[list[Sequence[int]]]:
    """Units assigned to learners, longest first, each to the learner with the fewest tokens."""
    load = [0] * learners
    shares: list[list[Sequence[int]]] = [[] for _ in range(learners)]
    for weight, unit in sorted(((sum(lengths[i] for i in unit), unit) for unit in units), key=lambda pair: -pair[0]):
        learner = load.index(min(load))
        load[learner] += weight
        shares[learner].append(unit)
    return shares


def _micro_batches(units: Sequence[Sequence[int]], lengths: Sequence[int], budget: int) -> list[MicroBatch]:
    """Rows of the candidate length that gives the least work."""
    totals = [sum(lengths[index] for index in unit) for unit in units]
    longest = max(totals, default=1)
    attempts = [(times, _fill_rows(totals, int(min(budget, times * longest)), budget)) for times in ROW_LENGTHS]
    _, best = min(attempts, key=lambda attempt: _count_padded(attempt[1], totals) * (1 + LONGER * attempt[0]))
    return [tuple(tuple(index for at in row for index in units[at]) for row in rows) for rows in best]


def _fill_rows(totals: Sequence[int], row: int, budget: int) -> list[list[list[int]]]:
    """Rows of units, fullest first, in as few micro-batches as `budget` allows."""
    filled: list[list[list[int]]] = []
    width = 0
    for members in sorted(pack(totals, row=row), key=lambda members: -sum(totals[at] for at in members)):
        if not filled or (len(filled[-1]) + 1) * width > budget:
            filled.append([])
            width = sum(totals[at] for at in members)
        filled[-1].append(members)
    return filled


def _count_padded(micro_batches: Sequence[Sequence[Sequence[int]]], totals: Sequence[int]) -> int:
    """Tokens that pass through the model; a micro-batch is as wide as its first row."""
    return sum(len(rows) * sum(totals[at] for at in rows[0]) for rows in micro_batches)


def _flat_micro_batches(units: Sequence[Sequence[int]], sizes: Sequence[SampleSize], budget: int) -> list[MicroBatch]:
    """One row each, of at most `budget` tokens if no unit has more; a prompt counts once where it is shared."""
    families: dict[bytes | int, list[Sequence[int]]] = {}
    for unit in units:
        prompts = {sizes[index].prompt for index in unit}
        shared_prompt = prompts.pop() if len(prompts) == 1 else b""
        families.setdefault(shared_prompt or unit[0], []).append(unit)
    pieces: list[list[int]] = []
    costs: list[int] = []
    for prompt, family in families.items():
        shared = len(prompt) // ID_BYTES if isinstance(prompt, bytes) else 0
        spared = shared - shared // READ_AGAIN
        for number, unit in enumerate(family):
            added = sum(sizes[index].tokens for index in unit) - spared * len(unit)
            if number and costs[-1] + added <= budget:
                pieces[-1].extend(unit)
                costs[-1] += added
            else:
                pieces.append([*unit])
                costs.append(added + spared)
    return [(tuple(index for at in members for index in pieces[at]),) for members in pack(costs, row=budget)]


def rows(samples: Sequence[Sample], micro_batch: MicroBatch, *, read: Reader | None = None) -> Packed:
    """The tensors of one micro-batch; an empty one is a row of one token without targets. With `read` they are one flat
    row.
    """
    chosen = [samples[index] for row in micro_batch for index in row] or [_nothing(samples)]
    lengths_N = np.array([len(sample.ids_T) for sample in chosen])
    start_N = np.cumsum(lengths_N) - lengths_N
    sample_L = np.repeat(np.arange(len(chosen)), lengths_N)
    position_L = np.arange(len(sample_L)) - np.repeat(start_N, lengths_N)
    if read is None:
        layout = _lay_rows(micro_batch, lengths_N, start_N, position_L)
    else:
        layout = _lay_flat([sample.size for sample in chosen], sample_L, position_L, read)
    ids_BT = np.zeros(layout.positions_BT.shape, np.int64)
    shown_BT = np.zeros(ids_BT.shape, np.bool_)
    ids_L = np.concatenate([sample.ids_T for sample in chosen])
    ids_BT[layout.row_L, layout.column_L] = ids_L
    shown_L = np.concatenate([bool(sample.pictures) & ~sample.mask_T for sample in chosen])
    shown_BT[layout.row_L, layout.column_L] = shown_L
    learnt_K = np.flatnonzero(np.concatenate([sample.mask_T for sample in chosen]) & (position_L > 0))
    return Packed(
        ids_BT=torch.from_numpy(ids_BT),
        positions_BT=torch.from_numpy(layout.positions_BT),
        segment_BT=torch.from_numpy(layout.segment_BT),
        row_K=torch.from_numpy(layout.row_L[learnt_K]),
        column_K=torch.from_numpy(layout.column_L[learnt_K - 1]),
        target_K=torch.from_numpy(ids_L[learnt_K].astype(np.int64)),
        sample_K=torch.from_numpy(sample_L[learnt_K]),
        columns={name: torch.from_numpy(_join_column(chosen, name)[learnt_K]) for name in chosen[0].columns},
        shown_BT=torch.from_numpy(shown_BT),
        pictures=tuple(picture for sample in chosen for picture in sample.pictures),
        reading=layout.reading,
    )


class _Layout(NamedTuple):
    """The place of every token, and the positions of all places."""

    row_L: NDArray[np.int64]
    column_L: NDArray[np.int64]
    positions_BT: NDArray[np.int64]
    segment_BT: NDArray[np.int64]
    reading: Reading | None


def _lay_rows(
    micro_batch: MicroBatch,
    lengths_N: NDArray[np.int64],
    start_N: NDArray[np.int64],
    position_L: NDArray[np.int64],
) -> _Layout:
    row_N = np.repeat(np.arange(max(1, len(micro_batch))), [len(row) for row in micro_batch] or [1])
    offset_N = start_N - start_N[np.searchsorted(row_N, row_N)]
    column_L = position_L + np.repeat(offset_N, lengths_N)
    begins_BT = np.zeros((row_N[-1] + 1, column_L.max() + 1), np.int64)
    begins_BT[row_N, offset_N] = 1
    columns_T = np.arange(begins_BT.shape[1])
    positions_BT = columns_T - np.maximum.accumulate(begins_BT * columns_T, axis=1)
    positions_BT = np.minimum(positions_BT, lengths_N.max() - 1)  # padding may outrun what the model has positions for
    return _Layout(np.repeat(row_N, lengths_N), column_L, positions_BT, begins_BT.cumsum(axis=1), None)


def _lay_flat(
    sizes: Sequence[SampleSize], sample_L: NDArray[np.int64], position_L: NDArray[np.int64], read: Reader
) -> _Layout:
    """Each sample's tokens follow each other, but for a prompt that the sample before it has too."""
    segments: list[Segment] = []
    places: list[tuple[int, int, int]] = []
    end = 0
    for number, size in enumerate(sizes):
        goes_on = number > 0 and sizes[number - 1].prompt == size.prompt
        begins = not goes_on and number + 1 < len(sizes) and sizes[number + 1].prompt == size.prompt
        shared = len(size.prompt) // ID_BYTES if goes_on or begins else 0
        prompt = 0
        if goes_on:
            prompt = places[-1][1]
        elif shared:
            prompt = end
            segments.append(Segment(end, shared))
            end += shared
        segments.append(Segment(end, size.tokens - shared, prompt, shared))
        places.append((shared, prompt, end - shared))
        end += size.tokens - shared
    shared_N, prompt_N, answer_N = np.array(places).T
    column_L = position_L + np.where(position_L < shared_N[sample_L], prompt_N[sample_L], answer_N[sample_L])
    positions_BT = np.zeros((1, end), np.int64)
    positions_BT[0, column_L] = position_L
    return _Layout(np.zeros_like(column_L), column_L, positions_BT, np.ones_like(positions_BT), read(segments))


def attention_mask(segment_BT: Tensor) -> Tensor | None:
    """The attention mask `[B, 1, T, T]`: earlier tokens of the same sample. None, for plain causal attention, if no row
    is shared.

    Boolean, as `attn_implementation="sdpa"` needs it; "eager" would add it to the scores and mask nothing.
    """
    if bool((segment_BT == 1).all()):
        return None
    same_BTT = segment_BT[:, :, None] == segment_BT[:, None, :]
    return same_BTT.tril()[:, None]


def _join_column(samples: Sequence[Sample], name: str) -> NDArray[np.float32]:
    return np.concatenate([sample.columns[name] for sample in samples])


def _nothing(samples: Sequence[Sample]) -> Sample:
    columns = samples[0].columns if samples else {}
    nothing = {name: np.zeros((1, *column.shape[1:]), np.float32) for name, column in columns.items()}
    return Sample(np.zeros(1, np.int32), np.zeros(1, np.bool_), nothing)
