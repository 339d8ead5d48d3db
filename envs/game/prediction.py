"""Predictions of a reply: a distribution over moves, scored by the logarithmic rule."""

import math
import re
from collections.abc import Mapping, Sequence

from loomrl.envs.game.notation import plain

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
