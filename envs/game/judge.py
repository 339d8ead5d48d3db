"""Judges of positions: proofs in the small games, Stockfish in chess."""

from typing import Protocol

from loomrl.envs.game.solver import DRAW, WIN, Search, ordered
from loomrl.envs.game.spiel import State

POSITIONS = 500
"""Positions that a proof may need. Following a proof move by move needs no more than the proof did."""


class Judge(Protocol):
    """Judges by the position alone."""

    async def value(self, state: State, player: int) -> float | None:
        """1 if `player` can force a win, 0.5 for a draw, 0 for a loss; None if unknown."""

    def best(self, state: State) -> int:
        """The best legal action that is known."""


class SolverJudge:
    """Judges by proof."""

    def __init__(self, *, draws: bool) -> None:
        self._goals = ((WIN, 1.0), (DRAW, 0.5)) if draws else ((WIN, 1.0),)

    async def value(self, state: State, player: int) -> float | None:
        """By a proof for either result, or None."""
        for least, worth in self._goals:
            holds = Search(str, player, least, POSITIONS).prove(state).holds
            if holds is None:
                return None
            if holds:
                return worth
        return 0.0

    def best(self, state: State) -> int:
        """The first action proven to win, else to draw; those proven to lose come last."""
        actions = ordered(state)
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
