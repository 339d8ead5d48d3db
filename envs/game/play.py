"""A game or puzzle in progress, as the environment sees it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

COMMAND = "MOVE"
FEW = 12
"""Up to so many legal moves are listed with every position."""
LISTED = 60
"""Maximum number of legal moves in the answer to an illegal one."""


class Answer(NamedTuple):
    """An opponent's reply, and its alternatives."""

    move: str
    choices: Sequence[str]


class Play(Protocol):
    """One attempt. `outcome` is 1 for a win, 0.5 for a draw, 0 for a loss, and None while it goes on."""

    outcome: float | None
    answer: Answer | None
    """The opponent's reply to the last move, if there was one."""

    @property
    def slips(self) -> int:
        """Moves that chance made for an opponent who said none."""

    def opening(self) -> str:
        """The rules and the first position."""

    def moves(self) -> Sequence[str]:
        """The legal moves in notation."""

    async def move(self, text: str) -> str | None:
        """Make a move and let the opponent reply; returns the new observation. None for an illegal move."""

    async def worth(self) -> float | None:
        """The value of the position, from 0 to 1; None if unknown."""

    def best(self) -> str:
        """The move that a perfect player would make."""


def listed(moves: Sequence[str], most: int) -> str:
    """The legal moves in a line, shortened if there are many."""
    more = f" and {len(moves) - most} more" if len(moves) > most else ""
    return f"Legal moves: {', '.join(moves[:most])}{more}"
