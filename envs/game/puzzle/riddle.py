"""A puzzle in progress: it is won when it is solved within a number of moves, and lost otherwise."""

from collections.abc import Sequence
from typing import Protocol

from loomrl.envs.game.notation import plain
from loomrl.envs.game.play import FEW, Answer, listed


class Puzzle(Protocol):
    """A puzzle's state."""

    @property
    def rules(self) -> str:
        """The goal, and the notation of moves."""

    def shown(self) -> str:
        """The state for people."""

    def moves(self) -> Sequence[str]:
        """The legal moves in notation."""

    def after(self, move: str) -> "Puzzle":
        """The puzzle after one of these moves."""

    def distance(self) -> int | None:
        """Minimum number of moves to the solution; None if it is out of reach."""


class Riddle:
    """One attempt at a puzzle. Two moves, or a quarter, more than the shortest solution are allowed."""

    def __init__(self, puzzle: Puzzle) -> None:
        self.outcome: float | None = None
        self.answer: Answer | None = None
        self._puzzle = puzzle
        self._shortest = puzzle.distance() or 0
        self._left = self._shortest + max(2, self._shortest // 4)

    @property
    def slips(self) -> int:
        """None: there is no opponent."""
        return 0

    def opening(self) -> str:
        """The rules and the first state."""
        return f"{self._puzzle.rules} You have {self._left} moves.\n{self._shown()}"

    def moves(self) -> Sequence[str]:
        """The legal moves in notation."""
        return self._puzzle.moves()

    async def worth(self) -> float | None:
        """From one half at the start to 1 when solved; 0 if the solution is out of reach."""
        distance = self._puzzle.distance()
        return 0.0 if distance is None else self._shortest / (self._shortest + distance)

    def best(self) -> str:
        """The first move of a shortest solution."""
        known = ((move, self._puzzle.after(move).distance()) for move in self.moves())
        return min((distance, move) for move, distance in known if distance is not None)[1]

    async def move(self, text: str) -> str | None:
        """Make a move; None for an illegal one."""
        move = plain(text)
        if move not in self.moves():
            return None
        self._puzzle = self._puzzle.after(move)
        self._left -= 1
        if self._puzzle.distance() == 0:
            self.outcome = 1.0
        elif self._left == 0:
            self.outcome = 0.0
        return f"{self._shown()}\nMoves left: {self._left}."

    def _shown(self) -> str:
        moves = self.moves()
        lines = [self._puzzle.shown(), *([listed(moves, FEW)] if len(moves) <= FEW else [])]
        return "\n".join(lines)
