"""All chance of an episode, drawn as it begins: nothing that a team does changes what it will meet.

Axes: `_M` worlds, `_N` agents, `_S` skills, `_T` steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loomrl.envs.teamwork.settings import TeamSettings

Floats = NDArray[np.float64]

EXPERT = (0.8, 1.0)
"""Expertise of an agent in its own field."""
LAYMAN = (0.05, 0.45)
"""Expertise in every other one."""
STRENGTH = (0.7, 1.3)
"""Capacity of an agent that is rested."""
PRIORITY = (0.2, 1.0)


@dataclass(frozen=True, slots=True)
class Chance:
    """The teams' members, and all arrivals by time. World i follows from its own generator alone."""

    expertise_MNS: Floats
    strength_MN: Floats
    arrives_TM: NDArray[np.bool_]
    """Before the arrivals of the steps, from step 0 on, those that wait at the reset."""
    skill_TM: NDArray[np.int64]
    complexity_TM: Floats
    priority_TM: Floats
    allowed_TM: Floats
    """Steps until the deadline."""


def draw(settings: TeamSettings, generators: Sequence[np.random.Generator]) -> Chance:
    """One episode for every generator. Fields are handed out evenly: with S agents or more, each has its expert."""
    agents = settings.agents
    skills = settings.skills
    rows = settings.waiting + settings.steps + 1
    sizes = (agents * skills, agents, skills, 5 * rows)
    luck = np.stack([generator.random(sum(sizes)) for generator in generators])
    breadth, strength, fields, tasks = np.split(luck, np.cumsum(sizes)[:-1], axis=1)

    fields_MS = fields.argsort(axis=1)
    expert_MNS = fields_MS[:, np.arange(agents) % skills, None] == np.arange(skills)
    breadth_MNS = breadth.reshape(-1, agents, skills)
    arrives, skill, complexity, priority, allowed = tasks.reshape(-1, rows, 5).transpose(2, 1, 0)
    low, high = settings.deadline
    return Chance(
        expertise_MNS=np.where(expert_MNS, _between(breadth_MNS, EXPERT), _between(breadth_MNS, LAYMAN)),
        strength_MN=_between(strength, STRENGTH),
        arrives_TM=(arrives < settings.arrival) | (np.arange(rows) < settings.waiting)[:, None],
        skill_TM=(skill * skills).astype(np.int64),
        complexity_TM=_between(complexity, settings.complexity),
        priority_TM=_between(priority, PRIORITY),
        allowed_TM=np.floor(_between(allowed, (low, high + 1))),
    )


def _between(luck: Floats, bounds: tuple[float, float]) -> Floats:
    low, high = bounds
    return low + (high - low) * luck
