"""The arm of a session: sticky, and monotone in the shares.

Weighted rendezvous hashing: every arm draws a score for the session, and the highest wins. Raising an arm's share
raises only its own scores, so it wins sessions and loses none.
"""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from loomrl.store.ab_tests import AbTest
from loomrl.store.endpoints import Arm, Endpoint, Role


@dataclass(frozen=True, slots=True)
class ArmAssignment:
    """The arm that a unit fell to, and the A/B test that it did so in; outside of tests the test is empty."""

    arm: Arm
    test: str = ""


def uniform(*parts: str) -> float:
    """A number in (0, 1) that depends on the parts only."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return (int.from_bytes(digest) + 0.5) / 2**64


def choose_arm(endpoint: str, arms: Sequence[Arm], session: str) -> Arm | None:
    """The arm that answers a session; None if no arm has a share."""
    heard = [arm for arm in arms if arm.role is not Role.SHADOW and arm.share > 0]
    if len(heard) < 2:
        return heard[0] if heard else None
    return max(heard, key=lambda arm: -arm.share / math.log(uniform(endpoint, arm.name, session)))


def assign_arm(endpoint: Endpoint, tests: Iterable[AbTest], unit: str) -> ArmAssignment | None:
    """A unit's arm: by the running test that has its slot, else by the endpoint's shares; None if no arm has any.

    A test whose arm was removed from the endpoint assigns no unit: the rest would not be the planned test.
    """
    for test in tests:
        if test.start <= uniform("layer", test.layer, unit) < test.end:
            arms = [replace(arm, share=test.shares[arm.name]) for arm in endpoint.arms if arm.name in test.shares]
            arm = choose_arm(f"test {test.name}", arms, unit) if len(arms) == len(test.shares) else None
            if arm is not None:
                return ArmAssignment(next(each for each in endpoint.arms if each.name == arm.name), test.name)
    arm = choose_arm(endpoint.name, endpoint.arms, unit)
    return None if arm is None else ArmAssignment(arm)


def shadows(endpoint: str, arms: Sequence[Arm], session: str) -> list[Arm]:
    """The shadow arms that get a copy of the session."""
    return [
        arm for arm in arms if arm.role is Role.SHADOW and uniform(endpoint, "shadow", arm.name, session) < arm.share
    ]


def stable(arms: Sequence[Arm]) -> Arm | None:
    """The arm that answers when another fails."""
    return next((arm for arm in arms if arm.role is Role.STABLE), None)
