"""The engine's open sequences as columns; row i here is row i of the cache.

Axes: S slots, C positions up to the context, N rows at work, K stop tokens, T positions of one sequence.
"""

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loomrl.inference.engine import Completion, CompletionPiece, EngineTurn, FinishReason, Request, Top
from loomrl.inference.form import FormMatcher
from loomrl.inference.torch.adapters import LowRankAdapter
from loomrl.types import Odds


@dataclass(slots=True, eq=False)
class TokenFeed:
    """Tokens that the reader has not taken yet."""

    more: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if a piece is due, or the request has ended."""
    due_at: float = 0.0
    """The time from which the next token makes a piece due."""
    _ids: list[int] = field(default_factory=list)
    _logprobs: list[float] = field(default_factory=list)
    _versions: list[int] = field(default_factory=list)
    _top: list[tuple[list[int], list[float]]] = field(default_factory=list)
    _shifts: list[float] = field(default_factory=list)

    def add(
        self,
        id: int,
        logprob: float,
        version: int,
        *,
        top: tuple[list[int], list[float]] | None,
        shift: float | None,
    ) -> None:
        """Add the token of one step; the likeliest ones if they were asked for, and its shift if odds are shifted."""
        self._ids.append(id)
        self._logprobs.append(logprob)
        self._versions.append(version)
        if shift is not None:
            self._shifts.append(shift)
        if top is not None:
            self._top.append(top)

    def take(self, finish: FinishReason | None) -> CompletionPiece:
        """The tokens since the last call."""
        top = None
        if self._top:
            ids, logprobs = zip(*self._top, strict=True)
            top = Top(np.array(ids, np.int32), np.array(logprobs, np.float32))
        piece = CompletionPiece(
            np.array(self._ids, np.int32),
            np.array(self._logprobs, np.float32),
            np.array(self._versions, np.int32),
            finish,
            top,
            np.array(self._shifts, np.float32) if self._shifts else None,
        )
        self._shifts = []
        self._ids = []
        self._logprobs = []
        self._versions = []
        self._top = []
        return piece


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def uniforms(seed_N: NDArray[np.uint64], index_N: NDArray[np.uint64]) -> NDArray[np.float64]:
    """The `index`-th number in [0, 1) of each seed's stream: SplitMix64, which allows random access."""
    bits_N = mix(mix(seed_N) + index_N * GOLDEN)
    return (bits_N >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mix(x_N: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same bits for the same number, and very different ones for numbers that differ little."""
    x_N = x_N + GOLDEN
    x_N = (x_N ^ (x_N >> np.uint64(30))) * MULTIPLIERS[0]
    x_N = (x_N ^ (x_N >> np.uint64(27))) * MULTIPLIERS[1]
    mixed_N: NDArray[np.uint64] = x_N ^ (x_N >> np.uint64(31))
    return mixed_N


class ShiftedOdds(NamedTuple):
    """Rows `M` that draw from logits of their own, and the ids that each row may draw; None if all may draw all."""

    row_M: Tensor
    logits_MV: Tensor
    allowed_NV: Tensor | None


def bend(logits_V: Tensor, odds: Odds, ids_T: NDArray[np.int32], said_T: NDArray[np.int32]) -> None:
    """Add a caller's bias and penalties in place, given all ids so far and those of the answer."""
    device = logits_V.device
    if odds.logit_bias:
        ids, biases = zip(*odds.logit_bias, strict=True)
        logits_V[torch.tensor(ids, device=device)] += torch.tensor(biases, device=device)
    if odds.repetition_penalty != 1:
        seen = torch.from_numpy(np.unique(ids_T).astype(np.int64)).to(device)
        x = logits_V[seen]
        logits_V[seen] = torch.where(x > 0, x / odds.repetition_penalty, x * odds.repetition_penalty)
    if (odds.presence_penalty or odds.frequency_penalty) and len(said_T):
        found, count = np.unique(said_T, return_counts=True)
        penalty = torch.from_numpy(odds.presence_penalty + odds.frequency_penalty * count).to(logits_V)
        logits_V[torch.from_numpy(found.astype(np.int64)).to(device)] -= penalty


def cut(logits_V: Tensor, odds: Odds, temperature: float) -> None:
    """Leave only the likeliest ids, in place."""
    if odds.min_p:
        logits_V[logits_V < logits_V.max() + temperature * math.log(odds.min_p)] = -torch.inf
    if 0 < odds.top_k < len(logits_V):
        logits_V[logits_V < logits_V.topk(odds.top_k).values[-1]] = -torch.inf


class RowDraw(NamedTuple):
    """One token per row, its log-probability in the whole distribution, and how much likelier shifted odds made it; all
    log-probabilities, to look up more.
    """

    token_N: Tensor
    logprob_N: Tensor
    shift_N: Tensor
    logp_NV: Tensor

    def columns(self) -> Tensor:
        """[3, N] tokens, log-probabilities and shifts, to be copied at once."""
        return torch.stack([self.token_N.double(), self.logprob_N.double(), self.shift_N.double()])

    def entropy(self) -> Tensor:
        """The entropy of each row's whole distribution, in nats."""
        entropy_N: Tensor = torch.special.entr(self.logp_NV.exp()).sum(-1)
        return entropy_N


def draw(
    logits_NV: Tensor,
    temperature_N: Tensor,
    top_p_N: Tensor | None,
    uniform_N: Tensor,
    shifted: ShiftedOdds | None = None,
) -> RowDraw:
    """Draw from each row's distribution.

    Temperature 0 takes the likeliest token, with its log-probability at 1. `top_p_N` is None if no row uses top-p.
    """
    greedy_N = temperature_N == 0
    scale_N = torch.where(greedy_N, 1.0, temperature_N).float()
    logp_NV = torch.log_softmax(logits_NV.float() / scale_N[:, None], dim=-1)
    odds_NV = logp_NV
    if shifted is not None and len(shifted.row_M):
        odds_NV = logp_NV.clone()
        odds_NV[shifted.row_M] = torch.log_softmax(shifted.logits_MV / scale_N[shifted.row_M, None], dim=-1)
    weight_NV = odds_NV.double().exp_()
    left_N = torch.zeros_like(temperature_N)
    if shifted is not None and shifted.allowed_NV is not None:
        left_N = _leave(shifted.allowed_NV, weight_NV, odds_NV, normalise=top_p_N is not None)
    best_N = weight_NV.argmax(-1)
    if top_p_N is not None:
        weight_NV = _nucleus(weight_NV, top_p_N)
    bound_NV = weight_NV.cumsum(-1)
    at_N1 = torch.searchsorted(bound_NV, uniform_N[:, None] * bound_NV[:, -1:], right=True)
    token_N = at_N1[:, 0].clamp_(max=logits_NV.shape[1] - 1)
    token_N = torch.where(greedy_N, best_N, token_N)
    logprob_N = logp_NV.gather(1, token_N[:, None])[:, 0]
    shift_N = odds_NV.gather(1, token_N[:, None])[:, 0] - logprob_N - left_N.float()
    return RowDraw(token_N, logprob_N, shift_N, logp_NV)


LEAST = 1e-250
"""The share of its odds below which what a row may draw is weighed anew: the weights themselves are lost."""


def _leave(allowed_NV: Tensor, weight_NV: Tensor, odds_NV: Tensor, *, normalise: bool) -> Tensor:
    """Leave, in place, the weights of what is allowed, and return the logarithm of their share.

    Rows that may draw all keep their bits.
    """
    # a product, because exponentials of -inf take ten times as long
    weight_NV.mul_(allowed_NV.to(weight_NV.dtype))
    share_N = torch.where(allowed_NV.all(-1), 1.0, weight_NV.sum(-1))
    left_N = share_N.log()
    for row in (share_N < LEAST).nonzero()[:, 0]:
        kept_V = odds_NV[row].double().masked_fill(~allowed_NV[row], -torch.inf)
        left_N[row] = kept_V.logsumexp(-1)
        weight_NV[row] = (kept_V - left_N[row]).exp()
        share_N[row] = 1.0
    if normalise:
        weight_NV.div_(share_N[:, None])
    return left_N


def _nucleus(weight_NV: Tensor, top_p_N: Tensor) -> Tensor:
    """The weights with all tokens outside the top-p nucleus set to zero; the likeliest always stays."""
    sorted_NV, order_NV = weight_NV.sort(dim=-1, descending=True, stable=True)
    before_NV = sorted_NV.cumsum(-1) - sorted_NV
    kept_NV = sorted_NV.masked_fill(before_NV >= top_p_N[:, None], 0.0)
    return torch.zeros_like(weight_NV).scatter_(1, order_NV, kept_NV)


NOTHING = -1
"""Marks empty entries."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenRequest:
    """A request and the future of its answer; `feed` takes its tokens if they are read as they come."""

    request: Request
    turn: EngineTurn
    answer: asyncio.Future[Completion]
    feed: TokenFeed | None = None
    adapter: LowRankAdapter | None = None
    """The adapter that the request names."""
    form: FormMatcher | None = None
    """The place of the answer in the form that the request asks for."""


class Rows:
    """Sequences in rows 0 … N-1. The last token of each has not been read by the model yet."""

    def __init__(self, *, slots: int, context: int) -> None:
        self.opened: list[OpenRequest] = []
        self._ids_SC = np.zeros((slots, context), np.int32)
        self._logprobs_SC = np.zeros((slots, context), np.float32)
        self._versions_SC = np.zeros((slots, context), np.int32)
        self._entropies_SC = np.zeros((slots, context), np.float32)
        self._shifts_SC = np.zeros((slots, context), np.float32)
        self._prompt_S = np.zeros(slots, np.int64)
        self._length_S = np.zeros(slots, np.int64)
        self._limit_S = np.zeros(slots, np.int64)
        self._seed_S = np.zeros(slots, np.uint64)
        self._temperature_S = np.zeros(slots)
        self._top_p_S = np.zeros(slots)
        self._stop_SK = np.full((slots, 1), NOTHING, np.int64)

    def __len__(self) -> int:
        return len(self.opened)

    def add(self, opened: OpenRequest) -> int:
        """Add a request after the last row; returns its row."""
        row = len(self.opened)
        request = opened.request
        self.opened.append(opened)
        length = len(request.prompt_T)
        self._ids_SC[row, :length] = request.prompt_T
        self._prompt_S[row] = self._length_S[row] = length
        self._limit_S[row] = min(length + request.sampling.max_tokens, self._ids_SC.shape[1])
        self._seed_S[row] = request.seed % 2**64
        self._temperature_S[row] = request.sampling.temperature
        self._top_p_S[row] = request.sampling.top_p
        self._set_stop(row, request.stop)
        return row

    def read(self, row: int) -> NDArray[np.int32]:
        """All ids of a row but the last: those the model must have read before its next step."""
        ids_T: NDArray[np.int32] = self._ids_SC[row, : self._length_S[row] - 1]
        return ids_T

    def prompt(self, row: int) -> NDArray[np.int32]:
        """The prompt of a row without its last id: what another member of its group must have read before its first
        step.
        """
        ids_T: NDArray[np.int32] = self._ids_SC[row, : self._prompt_S[row] - 1]
        return ids_T

    def columns(self) -> NDArray[np.float64]:
        """The next step's inputs for N rows: unread id, its position, temperature, top-p, and a uniform number."""
        count = len(self.opened)
        position_N = self._length_S[:count] - 1
        return np.stack(
            [
                self._ids_SC[np.arange(count), position_N],
                position_N,
                self._temperature_S[:count],
                self._top_p_S[:count],
                uniforms(*self.counters()),
            ]
        )

    def counters(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """The seed of each row's stream of uniform numbers, and the index of its next one."""
        count = len(self.opened)
        drawn_N = (self._length_S[:count] - self._prompt_S[:count]).astype(np.uint64)
        return self._seed_S[:count], drawn_N

    def left(self) -> NDArray[np.int64]:
        """The most tokens that each row may still get."""
        count = len(self.opened)
        left_N: NDArray[np.int64] = self._limit_S[:count] - self._length_S[:count]
        return left_N

    def shift(self, logits_NV: Tensor) -> ShiftedOdds | None:
        """The logits of the rows whose odds a caller changes, and the ids that forms leave; None without any."""
        if not any(opened.request.shifts for opened in self.opened):
            return None
        allowed_NV = self._allow(logits_NV.shape[1], logits_NV.device)
        changed = {row: odds for row, opened in enumerate(self.opened) if (odds := opened.request.odds) is not None}
        row_M = torch.tensor(list(changed), dtype=torch.long, device=logits_NV.device)
        logits_MV = logits_NV[row_M].float()
        for (row, odds), logits_V in zip(changed.items(), logits_MV, strict=True):
            ids_T = self._ids_SC[row, : self._length_S[row]]
            bend(logits_V, odds, ids_T, ids_T[self._prompt_S[row] :])
            if allowed_NV is not None:
                logits_V.masked_fill_(~allowed_NV[row], -torch.inf)
            cut(logits_V, odds, float(self._temperature_S[row]))  # last, so that some id of a form stays
        return ShiftedOdds(row_M, logits_MV, allowed_NV)

    def _allow(self, ids: int, device: torch.device) -> Tensor | None:
        """The ids that each row may draw; None if no row has a form."""
        if all(opened.form is None for opened in self.opened):
            return None
        everything_B = np.full(-(-ids // 8), 255, np.uint8)
        bits = [everything_B if (form := opened.form) is None else form.find_allowed() for opened in self.opened]
        packed_NB = np.stack([bits_B[: len(everything_B)] for bits_B in bits])
        return torch.from_numpy(np.unpackbits(packed_NB, axis=1, count=ids, bitorder="little").view(np.bool_)).to(
            device
        )

    @property
    def want_entropies(self) -> bool:
        """True if a request asks for them."""
        return any(opened.request.sampling.entropies for opened in self.opened)

    def append(
        self,
        row_N: NDArray[np.int64],
        drawn_3N: NDArray[np.float64],
        version_N: NDArray[np.int32],
        entropies_N: NDArray[np.float32] | None = None,
    ) -> NDArray[np.int64]:
        """Append sampled tokens, with their log-probabilities and shifts, to these rows; returns those that ended."""
        ids_N = drawn_3N[0].astype(np.int64)
        at_N = self._length_S[row_N]
        self._ids_SC[row_N, at_N] = ids_N
        self._logprobs_SC[row_N, at_N] = drawn_3N[1]
        self._versions_SC[row_N, at_N] = version_N
        self._shifts_SC[row_N, at_N] = drawn_3N[2]
        if entropies_N is not None:
            self._entropies_SC[row_N, at_N] = entropies_N
        self._length_S[row_N] += 1
        stopped_N = (self._stop_SK[row_N] == ids_N[:, None]).any(axis=1)
        ended_N: NDArray[np.int64] = row_N[stopped_N | (self._length_S[row_N] >= self._limit_S[row_N])]
        return ended_N

    def completion(self, row: int) -> Completion:
        """The sampled tokens of a row."""
        span = slice(self._prompt_S[row], self._length_S[row])
        ids_T = self._ids_SC[row, span].copy()
        stopped = bool((self._stop_SK[row] == ids_T[-1]).any())
        request = self.opened[row].request
        return Completion(
            ids_T,
            self._logprobs_SC[row, span].copy(),
            self._versions_SC[row, span].copy(),
            FinishReason.STOP if stopped else FinishReason.LENGTH,
            self._entropies_SC[row, span].copy() if request.sampling.entropies else None,
            self._shifts_SC[row, span].copy() if request.shifts else None,
        )

    def remove(self, rows: Iterable[int]) -> list[tuple[int, int, int]]:
        """Close gaps: last rows move into the places of removed ones; returns (source, target, length read) of each
        move.
        """
        moves = []
        for row in sorted(rows, reverse=True):
            last = len(self.opened) - 1
            if row != last:
                self._move(last, row)
                moves.append((last, row, int(self._length_S[row]) - 1))
            self.opened[row] = self.opened[last]
            self.opened.pop()
        return moves

    def _move(self, source: int, target: int) -> None:
        length = self._length_S[source]
        columns = (self._ids_SC, self._logprobs_SC, self._versions_SC, self._entropies_SC, self._shifts_SC)
        for x_SC in columns:
            x_SC[target, :length] = x_SC[source, :length]
        for x_S in (self._prompt_S, self._length_S, self._limit_S, self._seed_S, self._temperature_S, self._top_p_S):
            x_S[target] = x_S[source]
        self._stop_SK[target] = self._stop_SK[source]

    def _set_stop(self, row: int, stop: frozenset[int]) -> None:
        missing = len(stop) - self._stop_SK.shape[1]
        if missing > 0:
            self._stop_SK = np.pad(self._stop_SK, ((0, 0), (0, missing)), constant_values=NOTHING)
        self._stop_SK[row] = NOTHING
        self._stop_SK[row, : len(stop)] = sorted(stop)
