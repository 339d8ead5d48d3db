"""The next environment's turn: start-time fair queuing over environments, with weights and minimum shares.

Each environment has a virtual time. A group served moves it ahead by 1 / share; the one furthest behind is next. An
environment that had nothing for a while starts from now, so it neither lost its share nor has a claim on the past.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loomrl.gym.curriculum import Stake, shares


@dataclass(frozen=True, slots=True)
class Claim:
    """An environment's demand: its settings, its number of groups, and its virtual time."""

    environment: str
    weight: float
    min_share: float
    ready: int
    served: float = 0.0


@dataclass(slots=True)
class Allotment:
    """The number of an environment's groups that are taken, and its virtual time after that."""

    count: int
    served: float


def allot(claims: Sequence[Claim], count: int) -> dict[str, Allotment]:
    """Divide `count` turns among the claims that have groups; fewer if there are not enough groups."""
    allotted = {claim.environment: Allotment(0, claim.served) for claim in claims}
    now = max((claim.served for claim in claims), default=0.0)
    for _ in range(count):
        waiting = [claim for claim in claims if allotted[claim.environment].count < claim.ready]
        if not waiting:
            break
        share = shares({claim.environment: Stake(claim.weight, claim.min_share) for claim in waiting})
        starts = {name: max(now, allotted[name].served + 1 / share[name]) for name in share}
        winner = min(starts, key=lambda name: (starts[name], name))
        now = starts[winner]
        allotted[winner].count += 1
        allotted[winner].served = now
    return {name: taken for name, taken in allotted.items() if taken.count}
