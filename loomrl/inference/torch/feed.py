"""Tokens of one request between the engine, which adds one per step, and their reader, who takes all that are new."""

import asyncio
from dataclasses import dataclass, field

import numpy as np

from loomrl.inference.engine import Finish, Piece, Top


@dataclass(slots=True, eq=False)
class Feed:
    """Tokens that nobody has taken yet."""

    more: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if there are tokens, or the request has ended."""
    _ids: list[int] = field(default_factory=list)
    _logprobs: list[float] = field(default_factory=list)
    _versions: list[int] = field(default_factory=list)
    _top: list[tuple[list[int], list[float]]] = field(default_factory=list)

    def add(self, id: int, logprob: float, version: int, top: tuple[list[int], list[float]] | None) -> None:
        """Add the token of one step, with the likeliest ones if they were asked for."""
        self._ids.append(id)
        self._logprobs.append(logprob)
        self._versions.append(version)
        if top is not None:
            self._top.append(top)
        self.more.set()

    def take(self, finish: Finish | None) -> Piece:
        """The tokens since the last call."""
        top = None
        if self._top:
            ids, logprobs = zip(*self._top, strict=True)
            top = Top(np.array(ids, np.int32), np.array(logprobs, np.float32))
        piece = Piece(
            np.array(self._ids, np.int32),
            np.array(self._logprobs, np.float32),
            np.array(self._versions, np.int32),
            finish,
            top,
        )
        self._ids = []
        self._logprobs = []
        self._versions = []
        self._top = []
        return piece
