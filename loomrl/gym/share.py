"""Shares of a whole: by weight, with a minimum for each."""

from collections.abc import Mapping
from typing import NamedTuple

FLOOR = 0.01
"""The share left to those without a minimum, even if the minimum shares add up to one."""


class Stake(NamedTuple):
    """The claim of one participant."""

    weight: float
    min_share: float = 0.0


def shares(stakes: Mapping[str, Stake]) -> dict[str, float]:
    """Each stake's share: by weight, raised to its minimum, the rest divided by weight again."""
    raised: dict[str, float] = {}
    free = dict(stakes)
    while free:
        rest = max(1.0 - sum(raised.values()), FLOOR)
        total = sum(stake.weight for stake in free.values())
        parts = {name: rest * stake.weight / total for name, stake in free.items()}
        short = {name: stake.min_share for name, stake in free.items() if stake.min_share > parts[name]}
        if not short:
            return raised | parts
        raised |= short
        free = {name: stake for name, stake in free.items() if name not in short}
    return raised
