"""Exact play in small games: results that a player can force, proven within a number of positions; judges of positions.

A verdict depends on the position alone, never on what was searched before, so that equal tasks go equally in every
process. A player who follows the first winning move of a proof needs no more positions than the proof did.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol

from loomrl.envs.game.spiel import BoardState

Key = Callable[[BoardState], Hashable]
WIN = 1
DRAW = 0


class Proof(NamedTuple):
    """`holds` is None where `positions` were not enough."""

    holds: bool | None
    positions: int


class _Exhausted(Exception):
    """Ends a search that has used up its positions."""


class Search:
    """One search: can `player` force at least `least`? Its results are reused by later questions."""

    def __init__(self, key: Key, player: int, least: int, most: int) -> None:
        self._key = key
        self._player = player
        self._least = least
        self._left = self._most = most
        self._known: dict[Hashable, bool] = {}

    def prove(self, state: BoardState) -> Proof:
        """The verdict on a position."""
        try:
            return Proof(self._holds(state), self._most - self._left)
        except _Exhausted:
            return Proof(None, self._most)

    def _holds(self, state: BoardState) -> bool:
        if state.is_terminal():
            return self._enough(state)
        mine = state.current_player() == self._player
        key = (mine, self._key(state))
        if key not in self._known:
            if self._left <= 0:
                raise _Exhausted
            self._left -= 1
            self._known[key] = self._any(state, mine) == mine
        return self._known[key]

    def _any(self, state: BoardState, wanted: bool) -> bool:
        """True if some action leads to the verdict that the player to move wants; quick ones are tried first."""
        children = []
        for action in state.legal_actions():
            child = state.child(action)
            if not child.is_terminal():
                children.append(child)
            elif self._enough(child) == wanted:
                return True
        return any(self._holds(child) == wanted for child in sorted(children, key=_replies))

    def _enough(self, state: BoardState) -> bool:
        return outcome(state, self._player) >= self._least


def outcome(state: BoardState, player: int) -> int:
    """Result of a finished game: 1 won, 0 drawn, -1 lost."""
    result = state.player_return(player)
    return (result > 0) - (result < 0)


def order_actions(state: BoardState) -> list[int]:
    """Legal actions in the order in which a search tries them."""
    children = [(action, state.child(action)) for action in state.legal_actions()]
    return [action for action, child in sorted(children, key=lambda pair: _replies(pair[1]))]


def _replies(state: BoardState) -> int:
    return 0 if state.is_terminal() else len(state.legal_actions())


POSITIONS = 500
"""Positions that a proof may need. Following a proof move by move needs no more than the proof did."""


class PositionJudge(Protocol):
    """Judges by the position alone."""

    async def value(self, state: BoardState, player: int) -> float | None:
        """1 if `player` can force a win, 0.5 for a draw, 0 for a loss; None if unknown."""

    def best(self, state: BoardState) -> int:
        """The best legal action that is known."""


class SolverJudge:
    """Judges by proof."""

    def __init__(self, *, draws: bool) -> None:
        self._goals = ((WIN, 1.0), (DRAW, 0.5)) if draws else ((WIN, 1.0),)

    async def value(self, state: BoardState, player: int) -> float | None:
        """By a proof for either result, or None."""
        for least, worth in self._goals:
            holds = Search(str, player, least, POSITIONS).prove(state).holds
            if holds is None:
                return None
            if holds:
                return worth
        return 0.0

    def best(self, state: BoardState) -> int:
        """The first action proven to win, else to draw; those proven to lose come last."""
        actions = order_actions(state)
        player = state.current_player()
        unknown = []
        for least, _ in self._goals:
            search = Search(str, player, least, POSITIONS)
            for action in actions:
                holds = search.prove(state.child(action)).holds
                if holds:
                    return action
                if holds is None:
                    unknown.append(action)
        return [*unknown, *actions][0]
