"""The only import of OpenSpiel: games by name, positions, and tree search."""

import math
from functools import cache, lru_cache
from typing import Any, Protocol, Self

from loomrl.errors import ConfigError

SEARCH_MB = 4
"""Memory limit of a tree search."""


class BoardState(Protocol):
    """The used part of an OpenSpiel position. `apply_action` would end the process on an illegal action."""

    def current_player(self) -> int:
        """0 or 1; negative where the game is over."""

    def legal_actions(self) -> list[int]:
        """The current player's legal actions, in ascending order."""

    def action_to_string(self, action: int) -> str:
        """OpenSpiel's notation of a legal action."""

    def apply_action_with_legality_check(self, action: int) -> None:
        """Do a legal action."""

    def child(self, action: int) -> Self:
        """The position after a legal action."""

    def clone(self) -> Self:
        """The same position again."""

    def is_terminal(self) -> bool:
        """True if the game is over."""

    def player_return(self, player: int) -> float:
        """Positive if this player has won, negative if it has lost."""

    def history(self) -> list[int]:
        """All actions so far."""

    def observation_tensor(self, player: int) -> list[float]:
        """The position as numbers."""


def open_state(game: str, start: str = "") -> BoardState:
    """The first position of a game such as `hex(board_size=4)`; for chess, that of the FEN `start`."""
    opened = _game(game)
    state: BoardState = opened.new_initial_state(start) if start else opened.new_initial_state()
    return state


def search(game: str, state: BoardState, simulations: int, seed: int) -> int:
    """The action that Monte Carlo tree search with random rollouts prefers. Equal arguments, equal action."""
    pyspiel = _pyspiel()
    evaluator = pyspiel.RandomRolloutEvaluator(1, seed)
    bot = pyspiel.MCTSBot(_game(game), evaluator, math.sqrt(2), simulations, SEARCH_MB, False, seed, False)
    return int(bot.step(state))


def lan(state: Any, action: int) -> str:
    """A chess move as engines write it, such as `e7e8q`."""
    return str(_pyspiel().chess.action_to_move(action, state.board()).to_lan())


def fen(state: Any) -> str:
    """A chess position in a line."""
    return str(state.board().to_fen())


def line(state: Any) -> str:
    """A chess game as engines read it, with all its moves, so that they know what has been repeated."""
    moves = " ".join(move.to_lan() for move in state.moves_history())
    return f"{state.start_fen()} moves {moves}"


def is_repetition(state: Any) -> bool:
    """True if a chess game ended by threefold repetition."""
    return bool(state.is_repetition_draw())


@lru_cache(maxsize=64)
def _game(name: str) -> Any:
    if name.startswith("y("):
        _make_room_for_y()
    return _pyspiel().load_game(name)


@cache
def _make_room_for_y() -> None:
    """Open the largest board first.

    Positions of Y refer to a table of all sizes, which moves away under them when a larger board than any before it is
    opened (OpenSpiel 2.0.2): they crash the process, or have no legal actions.
    """
    _pyspiel().load_game("y(board_size=19)").new_initial_state()


def _pyspiel() -> Any:
    try:
        import pyspiel
    except ModuleNotFoundError as error:
        raise ConfigError("Game: OpenSpiel is not installed. Run: pip install 'loomrl[games]'") from error
    return pyspiel
