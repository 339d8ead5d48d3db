"""The arm of a session: sticky, and monotone in the shares.

Weighted rendezvous hashing: every arm draws a score for the session, and the highest wins. Raising an arm's share
raises only its own scores, so it wins sessions and loses none.
"""

import hashlib
import math
from collections.abc import Sequence

from loomrl.store.endpoints import Arm, Role


def uniform(*parts: str) -> float:
    """A number in (0, 1) that depends on the parts only."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + 0.5) / 2**64


def chosen(endpoint: str, arms: Sequence[Arm], session: str) -> Arm | None:
    """The arm that answers a session; None if no arm has a share."""
    heard = [arm for arm in arms if arm.role is not Role.SHADOW and arm.share > 0]
    if not heard:
        return None
    return max(heard, key=lambda arm: -arm.share / math.log(uniform(endpoint, arm.name, session)))


def shadows(endpoint: str, arms: Sequence[Arm], session: str) -> list[Arm]:
    """The arms that answer a session unheard."""
    return [
        arm for arm in arms if arm.role is Role.SHADOW and uniform(endpoint, "shadow", arm.name, session) < arm.share
    ]


def stable(arms: Sequence[Arm]) -> Arm | None:
    """The arm that helps out when another fails."""
    return next((arm for arm in arms if arm.role is Role.STABLE), None)
