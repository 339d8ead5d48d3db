"""The engine's open sequences as columns; row i here is row i of the cache.

Axes: S slots, C positions up to the context, N rows at work, K stop tokens, T positions of one sequence.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loomrl.inference.engine import Completion, Finish, Request
from loomrl.inference.torch.feed import Feed
from loomrl.inference.torch.sampling import uniforms

NOTHING = -1
"""Marks empty entries."""


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A request and the future of its answer; `feed` takes its tokens if they are read as they come."""

    request: Request
    answer: asyncio.Future[Completion]
    feed: Feed | None = None


class Rows:
    """Sequences in rows 0 … N-1. The last token of each has not been read by the model yet."""

    def __init__(self, *, slots: int, context: int) -> None:
        self.opened: list[Opened] = []
        self._ids_SC = np.zeros((slots, context), np.int32)
        self._logprobs_SC = np.zeros((slots, context), np.float32)
        self._versions_SC = np.zeros((slots, context), np.int32)
        self._entropies_SC = np.zeros((slots, context), np.float32)
        self._prompt_S = np.zeros(slots, np.int64)
        self._length_S = np.zeros(slots, np.int64)
        self._limit_S = np.zeros(slots, np.int64)
        self._seed_S = np.zeros(slots, np.uint64)
        self._temperature_S = np.zeros(slots)
        self._top_p_S = np.zeros(slots)
        self._stop_SK = np.full((slots, 1), NOTHING, np.int64)

    def __len__(self) -> int:
        return len(self.opened)

    def add(self, opened: Opened) -> int:
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
        drawn_N = (position_N + 1 - self._prompt_S[:count]).astype(np.uint64)
        return np.stack(
            [
                self._ids_SC[np.arange(count), position_N],
                position_N,
                self._temperature_S[:count],
                self._top_p_S[:count],
                uniforms(self._seed_S[:count], drawn_N),
            ]
        )

    @property
    def want_entropies(self) -> bool:
        """True if a request asks for them."""
        return any(opened.request.sampling.entropies for opened in self.opened)

    def append(
        self,
        ids_N: NDArray[np.int64],
        logprobs_N: NDArray[np.float64],
        version: int,
        entropies_N: NDArray[np.float32] | None = None,
    ) -> NDArray[np.int64]:
        """Append the sampled tokens; returns the rows that ended."""
        count = len(self.opened)
        row_N = np.arange(count)
        at_N = self._length_S[:count]
        self._ids_SC[row_N, at_N] = ids_N
        self._logprobs_SC[row_N, at_N] = logprobs_N
        self._versions_SC[row_N, at_N] = version
        if entropies_N is not None:
            self._entropies_SC[row_N, at_N] = entropies_N
        self._length_S[:count] += 1
        stopped_N = (self._stop_SK[:count] == ids_N[:, None]).any(axis=1)
        return np.flatnonzero(stopped_N | (self._length_S[:count] >= self._limit_S[:count]))

    def completion(self, row: int) -> Completion:
        """The sampled tokens of a row."""
        span = slice(self._prompt_S[row], self._length_S[row])
        ids_T = self._ids_SC[row, span].copy()
        stopped = bool((self._stop_SK[row] == ids_T[-1]).any())
        return Completion(
            ids_T,
            self._logprobs_SC[row, span].copy(),
            self._versions_SC[row, span].copy(),
            Finish.STOP if stopped else Finish.LENGTH,
            self._entropies_SC[row, span].copy() if self.opened[row].request.sampling.entropies else None,
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
        for x_SC in (self._ids_SC, self._logprobs_SC, self._versions_SC, self._entropies_SC):
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
