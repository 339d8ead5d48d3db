"""PettingZoo's classic games made into tasks: opponents that grow with the level, pictures, and oracles.

An opponent is made for an episode from level and seed; it is called with environment and agent, and gives an action. An
oracle may ask it what it is going to do.
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
    """Plays a game of lines on PettingZoo's board."""

    opponent: LineOpponent

    def __call__(self, env: Any, agent: str) -> int:
        """Its move."""
        return _theirs(self.opponent.game, self.opponent.move(*_board(env, agent)))


@lru_cache(maxsize=4096)
def tictactoe(level: int, seed: int) -> Opponent:
    """Wins and blocks where it looks at the board: in three of ten positions at level 1, in nine at level 10."""
    tries = (LineOpponent(TICTACTOE, between(level, 30, 93) / 100, f"{level}:{seed}:{number}") for number in count())
    return LinePlayer(next(opponent for opponent in tries if _can_be_beaten(opponent)))


def _can_be_beaten(opponent: LineOpponent) -> bool:
    """From either seat; one in some hundred cannot."""
    empty = (0,) * 9
    answered, _ = TICTACTOE.put(empty, opponent.move(empty, 1), 1)
    return bool(winning_line(opponent, empty, 1) and winning_line(opponent, answered, 2))


def connect_four(level: int, seed: int) -> Opponent:
    """Wins and blocks where it looks at the board: in half of the positions at level 1, in most at level 10."""
    return LinePlayer(LineOpponent(CONNECT_FOUR, between(level, 50, 86) / 100, f"{level}:{seed}"))


def line_oracle(env: Any, agent: str, opponent: Any) -> int:
    """The next move of the shortest line that beats this very opponent."""
    game = opponent.opponent.game
    board, mark = _board(env, agent)
    line = winning_line(opponent.opponent, board, mark)
    return _theirs(game, line[0] if line else game.moves(board)[0])


def show_line(env: Any, agent: str, observation: Any) -> str:
    """The board, and whose marks are whose."""
    board, mark = _board(env, agent)
    game = _game(env)
    labels = [_theirs(game, move) for move in range(7 if game.falls else 9)]
    return f"You are {'_XO'[mark]}.\n{picture(game, board, labels)}"


def _game(env: Any) -> LineGame:
    return TICTACTOE if env.unwrapped.metadata["name"].startswith("tictactoe") else CONNECT_FOUR


def _board(env: Any, agent: str) -> tuple[tuple[int, ...], int]:
    """Row by row, and the mark of the agent. PettingZoo's own tic-tac-toe counts its cells column by column."""
    world = env.unwrapped
    board = world.board
    cells = board if isinstance(board, list) else [board.squares[_theirs(TICTACTOE, cell)] for cell in range(9)]
    return tuple(cells), world.possible_agents.index(agent) + 1


def _theirs(game: LineGame, move: int) -> int:
    """The move as PettingZoo counts it."""
    return move if game.falls else move % 3 * 3 + move // 3


@dataclass(frozen=True)
class Pattern:
    """Repeats the same moves for ever."""

    moves: tuple[int, ...]

    def __call__(self, env: Any, agent: str) -> int:
        """The move of this round."""
        played: int = env.unwrapped.num_moves
        return self.moves[played % len(self.moves)]


def pattern(level: int, seed: int) -> Opponent:
    """A pattern that is longer as the level grows, from one move to six."""
    rng = Random(f"{level}:{seed}")
    length = between(level, 1, 6)
    first = rng.sample(range(3), min(length, 3))
    return Pattern((*first, *(rng.randrange(3) for _ in range(length - len(first)))))


def rps_oracle(env: Any, agent: str, opponent: Any) -> int:
    """What beats the move that comes."""
    coming: int = opponent(env, "")
    moves: int = env.unwrapped.action_space(agent).n
    return next(move for move in range(moves) if _beats(move, coming))


def _beats(one: int, other: int) -> bool:
    """PettingZoo's rule: of two alike in parity the lower one wins, else the higher one."""
    return one != other and (one < other) == ((one + other) % 2 == 0)


def show_rps(env: Any, agent: str, observation: Any) -> str:
    """The round, and what the other one played in the last."""
    world = env.unwrapped
    if not world.num_moves:
        return f"Round 1 of {world.max_cycles}."
    last = world._moves[int(observation)].lower()
    return f"Round {min(world.num_moves + 1, world.max_cycles)} of {world.max_cycles}. The other one played {last}."
