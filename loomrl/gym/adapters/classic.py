"""PettingZoo's classic games as tasks: opponents that grow stronger with the level, rendered boards, and oracles.

An opponent is created per episode from level and seed; it is called with environment and agent and returns an action.
An oracle may call it to learn its next move.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count
from random import Random
from typing import Any

from loomrl.gym.generate import between

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

    def place_mark(self, board: Board, move: int, mark: int) -> tuple[Board, bool]:
        """The board after a move, and whether the move wins."""
        cell = move
        if self.falls:
            cell = max(place for place in range(move, len(board), self.columns) if board[place] == 0)
        after = (*board[:cell], mark, *board[cell + 1 :])
        return after, any(all(after[place] == mark for place in line) for line in self.lines[cell])

    def finishing(self, board: Board, mark: int) -> int | None:
        """A move that wins at once."""
        return next((move for move in self.moves(board) if self.place_mark(board, move, mark)[1]), None)

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
        after, _ = game.place_mark(board, move, mark)
        if 0 not in after:
            continue
        answered, lost = game.place_mark(after, opponent.move(after, 3 - mark), 3 - mark)
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


TICTACTOE = LineGame(rows=3, columns=3, needed=3, falls=False)
CONNECT_FOUR = LineGame(rows=6, columns=7, needed=4, falls=True)

Opponent = Callable[[Any, str], Any]


@dataclass(frozen=True)
class LinePlayer:
    """An opponent for three-in-a-row games on PettingZoo's board."""

    opponent: LineOpponent

    def __call__(self, env: Any, agent: str) -> int:
        """The opponent's move."""
        return _theirs(self.opponent.game, self.opponent.move(*_board(env, agent)))


@lru_cache(maxsize=4096)
def tictactoe(level: int, seed: int) -> Opponent:
    """Wins or blocks in the positions where it looks ahead: three of ten at level 1, nine at level 10."""
    tries = (LineOpponent(TICTACTOE, between(level, 30, 93) / 100, f"{level}:{seed}:{number}") for number in count())
    return LinePlayer(next(opponent for opponent in tries if _can_be_beaten(opponent)))


def _can_be_beaten(opponent: LineOpponent) -> bool:
    """From either seat; about one seed in a hundred cannot be beaten."""
    empty = (0,) * 9
    answered, _ = TICTACTOE.place_mark(empty, opponent.move(empty, 1), 1)
    return bool(winning_line(opponent, empty, 1) and winning_line(opponent, answered, 2))


def connect_four(level: int, seed: int) -> Opponent:
    """Wins or blocks in the positions where it looks ahead: half of them at level 1, most at level 10."""
    return LinePlayer(LineOpponent(CONNECT_FOUR, between(level, 50, 86) / 100, f"{level}:{seed}"))


def line_oracle(env: Any, agent: str, opponent: Any) -> int:
    """The next move of the shortest winning line against this opponent."""
    game = opponent.opponent.game
    board, mark = _board(env, agent)
    line = winning_line(opponent.opponent, board, mark)
    return _theirs(game, line[0] if line else game.moves(board)[0])


def show_line(env: Any, agent: str, observation: Any) -> str:
    """The board and the agent's mark."""
    board, mark = _board(env, agent)
    game = _game(env)
    labels = [_theirs(game, move) for move in range(7 if game.falls else 9)]
    return f"You are {'_XO'[mark]}.\n{picture(game, board, labels)}"


def _game(env: Any) -> LineGame:
    return TICTACTOE if env.unwrapped.metadata["name"].startswith("tictactoe") else CONNECT_FOUR


def _board(env: Any, agent: str) -> tuple[tuple[int, ...], int]:
    """The board row by row, and the agent's mark. PettingZoo's own tic-tac-toe numbers its cells column by column."""
    world = env.unwrapped
    board = world.board
    cells = board if isinstance(board, list) else [board.squares[_theirs(TICTACTOE, cell)] for cell in range(9)]
    return tuple(cells), world.possible_agents.index(agent) + 1


def _theirs(game: LineGame, move: int) -> int:
    """The move in PettingZoo's numbering."""
    return move if game.falls else move % 3 * 3 + move // 3


@dataclass(frozen=True)
class PatternPlayer:
    """Repeats a sequence of moves forever."""

    moves: tuple[int, ...]

    def __call__(self, env: Any, agent: str) -> int:
        """The move of this round."""
        played: int = env.unwrapped.num_moves
        return self.moves[played % len(self.moves)]


def pattern(level: int, seed: int) -> Opponent:
    """A sequence of one to six moves, longer at higher levels."""
    rng = Random(f"{level}:{seed}")
    length = between(level, 1, 6)
    first = rng.sample(range(3), min(length, 3))
    return PatternPlayer((*first, *(rng.randrange(3) for _ in range(length - len(first)))))


def rps_oracle(env: Any, agent: str, opponent: Any) -> int:
    """The move that beats the opponent's next one."""
    coming: int = opponent(env, "")
    moves: int = env.unwrapped.action_space(agent).n
    return next(move for move in range(moves) if _beats(move, coming))


def _beats(one: int, other: int) -> bool:
    """PettingZoo's rule: of two alike in parity the lower one wins, else the higher one."""
    return one != other and (one < other) == ((one + other) % 2 == 0)


def show_rps(env: Any, agent: str, observation: Any) -> str:
    """The round, and the opponent's last move."""
    world = env.unwrapped
    if not world.num_moves:
        return f"Round 1 of {world.max_cycles}."
    last = world._moves[int(observation)].lower()
    return f"Round {min(world.num_moves + 1, world.max_cycles)} of {world.max_cycles}. The other one played {last}."
