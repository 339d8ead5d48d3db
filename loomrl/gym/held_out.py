"""Tasks that no training draws, and the attempts at them by which policies are compared."""

import math

from loomrl.config import EvaluationConfig, PolicyChoice
from loomrl.gym.cast import Cast
from loomrl.gym.curriculum import HELD_OUT_SEEDS, Draw
from loomrl.gym.episode import Attempt
from loomrl.gym.host import Plan
from loomrl.types import Source

SEEDS_APART = 1_000_003
"""So that two evaluation seeds share no task unless one has a million episodes."""


def held_out(cast: Cast, settings: EvaluationConfig) -> list[Draw]:
    """Tasks that no training draws, evenly over families and levels, also where there are fewer tasks than of both."""
    families, levels = cast.families, settings.levels
    first = HELD_OUT_SEEDS.start + settings.seed * SEEDS_APART % len(HELD_OUT_SEEDS)
    round_trip = math.lcm(len(families), len(levels))
    return [
        Draw(families[index % len(families)], levels[(index + index // round_trip) % len(levels)], first + index)
        for index in range(settings.episodes)
    ]


def held_out_plans(cast: Cast, settings: EvaluationConfig, *, run: str, name: str, policy: PolicyChoice) -> list[Plan]:
    """One attempt at each of these tasks by the policy called `name`; the same for every run."""
    plans = []
    for index, draw in enumerate(held_out(cast, settings)):
        member = cast.member(draw)
        id = f"{run}/{name}/{index}"
        attempt = Attempt(
            id=id,
            task=member.task(draw),
            group=id,
            source=Source.EVALUATION,
            run=run,
            snapshot=member.snapshot,
        )
        seed = f"{name}/{draw.seed}/{index}"
        plans.append(Plan(attempt=attempt, policy=policy, settings=member.config.settings, seed=seed))
    return plans
