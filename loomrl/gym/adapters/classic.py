"""PettingZoo's classic games as tasks: opponents that grow stronger with the level, rendered boards, and oracles.

An opponent is created per episode from level and seed; it is called with environment and agent and returns an action.
An oracle may call it to learn its next move.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from random import Random
from typing import Any

from loomrl.gym.adapters.line_game import LineGame, LineOpponent, picture, winning_line
from loomrl.gym.generate import between

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
    answered, _ = TICTACTOE.put(empty, opponent.move(empty, 1), 1)
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
class Pattern:
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
    return Pattern((*first, *(rng.randrange(3) for _ in range(length - len(first)))))


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
