"""Attempts to be paid without playing well."""

from collections.abc import Sequence

from loomrl.envs.game.play import COMMAND
from loomrl.envs.game.prediction import VERB

_WIDE = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})
"""Fullwidth lookalikes."""


def hacked(moves: Sequence[str], predicting: bool) -> Sequence[str]:
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
