"""Games of marks in a row, as in PettingZoo: boards, opponents of any strength, and lines that beat them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random

Board = tuple[int, ...]
"""Cell by cell: 0 is empty, 1 and 2 are the marks of the first and the second player."""
_DEEPEST = 8
"""Search depth in own moves."""


@dataclass(frozen=True)
class LineGame:
    """`needed` marks in a row, column or diagonal win. Cells are numbered row by row."""

    rows: int
    columns: int
    needed: int
    falls: bool
    """Marks fall to the bottom of a column: a move is a column, else it is a cell."""

    @cached_property
    def lines(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """For every cell, the winning lines through it."""
        found: list[list[tuple[int, ...]]] = [[] for _ in range(self.rows * self.columns)]
        for row in range(self.rows):
            for column in range(self.columns):
                for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
                    places = [(row + down * i, column + right * i) for i in range(self.needed)]
                    if all(r < self.rows and 0 <= c < self.columns for r, c in places):
                        line = tuple(r * self.columns + c for r, c in places)
                        for cell in line:
                            found[cell].append(line)
        return tuple(map(tuple, found))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Moves, sorted from the middle outwards."""
        return tuple(sorted(range(self.columns if self.falls else len(self.lines)), key=self._off_centre))

    def moves(self, board: Board) -> list[int]:
        """Legal moves; the top row shows whether a column has room."""
        return [move for move in self.order if board[move] == 0]

    def put(self, board: Board, move: int, mark: int) -> tuple[Board, bool]:
        """The board after a move, and whether the move wins."""
        cell = move
        if self.falls:
            cell = max(place for place in range(move, len(board), self.columns) if board[place] == 0)
        after = (*board[:cell], mark, *board[cell + 1 :])
        return after, any(all(after[place] == mark for place in line) for line in self.lines[cell])

    def finishing(self, board: Board, mark: int) -> int | None:
        """A move that wins at once."""
        return next((move for move in self.moves(board) if self.put(board, move, mark)[1]), None)

    def _off_centre(self, move: int) -> tuple[int, int]:
        row, column = divmod(move, self.columns)
        across = abs(2 * column - self.columns + 1)
        return (across if self.falls else across + abs(2 * row - self.rows + 1)), move


@dataclass(frozen=True)
class LineOpponent:
    """Wins or blocks if it looks, else plays at random. Its moves follow from its seed and the board."""

    game: LineGame
    skill: float
    """Probability of looking at the board before a move."""
    seed: str

    def move(self, board: Board, mark: int) -> int:
        """Its move with this mark."""
        rng = Random(f"{self.seed}:{board}")
        seen = None
        if rng.random() < self.skill:
            seen = self.game.finishing(board, mark)
            seen = self.game.finishing(board, 3 - mark) if seen is None else seen
        return rng.choice(self.game.moves(board)) if seen is None else seen


@lru_cache(maxsize=4096)
def winning_line(opponent: LineOpponent, board: Board, mark: int) -> tuple[int, ...]:
    """The fewest moves that beat this opponent from here, `mark` to move; empty where no line is found."""
    for depth in range(1, _DEEPEST + 1):
        line = _search(opponent, board, mark, depth, {})
        if line:
            return line
    return ()


def _search(
    opponent: LineOpponent, board: Board, mark: int, depth: int, seen: dict[Board, tuple[int, ...]]
) -> tuple[int, ...]:
    if board in seen:
        return seen[board]
    game = opponent.game
    finish = game.finishing(board, mark)
    if finish is not None or depth == 1:
        return () if finish is None else (finish,)
    seen[board] = ()
    for move in game.moves(board):
        after, _ = game.put(board, move, mark)
        if 0 not in after:
            continue
        answered, lost = game.put(after, opponent.move(after, 3 - mark), 3 - mark)
        rest = () if lost or 0 not in answered else _search(opponent, answered, mark, depth - 1, seen)
        if rest:
            seen[board] = (move, *rest)
            break
    return seen[board]


def picture(game: LineGame, board: Sequence[int], labels: Sequence[int]) -> str:
    """The board as text: X is the first player's mark, O the second's; `labels` name the moves."""
    if game.falls:
        cells = [".XO"[mark] for mark in board]
    else:
        cells = ["_XO"[mark] if mark else str(label) for mark, label in zip(board, labels, strict=True)]
    rows = [cells[start : start + game.columns] for start in range(0, len(cells), game.columns)]
    rows += [list(map(str, labels))] if game.falls else []
    return "\n".join(map(" ".join, rows))
