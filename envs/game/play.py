"""A game or puzzle in progress, as the environment sees it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

COMMAND = "MOVE"
FEW = 12
"""Up to so many legal moves are listed with every position."""
LISTED = 60
"""And so many at most where one was asked for that is none."""


class Answer(NamedTuple):
    """What an opponent replied, and what it could have."""

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
        """What may be played now, as it is written."""

    async def move(self, text: str) -> str | None:
        """Make a move, and let the opponent reply: what is to be seen then. None where there is no such move."""

    async def worth(self) -> float | None:
        """How the position stands, from 0 to 1; None where that is not known."""

    def best(self) -> str:
        """The move that a perfect player would make."""


def listed(moves: Sequence[str], most: int) -> str:
    """The legal moves in a line, the first of them where there are many."""
    more = f" and {len(moves) - most} more" if len(moves) > most else ""
    return f"Legal moves: {', '.join(moves[:most])}{more}"
