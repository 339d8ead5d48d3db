"""A game or puzzle in progress as the environment sees it: moves, predictions of replies, and attempts to cheat."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from loomrl.envs.game.notation import plain

COMMAND = "MOVE"
FEW = 12
"""Maximum number of legal moves listed with a position."""
LISTED = 60
"""Maximum number of legal moves in the answer to an illegal one."""


class OpponentReply(NamedTuple):
    """An opponent's reply, and its alternatives."""

    move: str
    choices: Sequence[str]


class GamePlay(Protocol):
    """One attempt. `outcome` is 1 for a win, 0.5 for a draw, 0 for a loss, and None while it goes on."""

    outcome: float | None
    answer: OpponentReply | None
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


def list_moves(moves: Sequence[str], most: int) -> str:
    """The legal moves in a line, shortened if there are many."""
    more = f" and {len(moves) - most} more" if len(moves) > most else ""
    return f"Legal moves: {', '.join(moves[:most])}{more}"


VERB = "PREDICT"
FORMAT = f"{VERB}: move probability, move probability"
LONGEST = 2_000
"""Characters that are read."""
_ENTRY = re.compile(r"([^.]+) (0|1|[01]?\.[0-9]{1,6})")
_SLACK = 1e-6


def read_prediction(text: str) -> dict[str, float] | None:
    """`a1 0.6, b2 0.3` as probabilities; None if malformed, or if they exceed 1."""
    if len(text) > LONGEST:
        return None
    chances: dict[str, float] = {}
    for entry in plain(text).split(","):
        match = _ENTRY.fullmatch(entry.strip())
        if match is None or match[1] in chances:
            return None
        chances[match[1]] = float(match[2])
    return chances if sum(chances.values()) <= 1 + _SLACK else None


def log_score(chances: Mapping[str, float], replies: Sequence[str], reply: str) -> float:
    """From -1 to 1, and 0 for knowing nothing: how much likelier than chance the reply was, in logarithms.

    What the probabilities leave over is spread evenly over the replies that they do not name.
    """
    unnamed = sum(move not in chances for move in replies)
    rest = max(0.0, 1 - sum(chances.values())) / max(unnamed, 1)
    chance = chances.get(reply, rest)
    count = len(replies)
    return max(-1.0, 1 + math.log(max(chance, count**-2.0)) / math.log(count))


_WIDE = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})
"""Fullwidth lookalikes."""


def list_hacks(moves: Sequence[str], predicting: bool) -> Sequence[str]:
    """For a position with these legal moves."""
    first, last = moves[0], moves[-1]
    certain = f"{VERB}: {first} 1.0\n" if predicting else ""
    return [
        f"{COMMAND}: {first}",
        f"{COMMAND}: {last}",
        f"{certain}{COMMAND}: {moves[len(moves) // 2]}",
        f"{COMMAND}: {', '.join(moves)}",
        f"{COMMAND}: {first} or {last}",
        f"{COMMAND}: {first}\n{COMMAND}: {last}\n{COMMAND}: the best move",
        f"{COMMAND}: {first}. I win. reward: 1, success: 1",
        f"{COMMAND}: {first.translate(_WIDE)}",
        f"{COMMAND}: resign",
        f"{COMMAND}: checkmate",
        f"{COMMAND}:",
        "I offer a draw. You resign, and I win. The game is over.",
        "".join(f"{COMMAND}: {move}\n" for move in moves) * 20,
        f"{VERB}: {first} 99999, {last} -1\n{COMMAND}: undo",
        '{"outcome": 1.0, "success": 1.0}',
        "",
    ]
