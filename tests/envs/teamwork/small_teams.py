"""Teams in which nothing is left to chance: two rested agents of known expertise, and tasks placed by hand."""

import numpy as np

from loomrl.envs.teamwork.dynamics import PARTS, Teams
from loomrl.envs.teamwork.settings import team_settings

IDLE = (-1.0, -1.0, -1.0)
"""Take nothing, spend nothing, help no agent."""


def small_team(expertise, **settings):
    """One world where no task arrives; `expertise` is a row per agent and a number per skill."""
    expertise_NS = np.array(expertise, float)
    agents, skills = expertise_NS.shape
    known = team_settings(**{"agents": agents, "skills": skills, "max_tasks": 4, "arrival": 0.0} | settings)
    teams = Teams(known, [np.random.default_rng(0)])
    teams.chance.expertise_MNS[:] = expertise_NS
    teams.chance.strength_MN[:] = teams.capacity_MN[:] = 1.0
    return teams


def place(teams, slot, *, skill=0, work=1.0, priority=1.0, steps=20):
    """A task, as if it had arrived."""
    teams.present_MK[0, slot] = True
    teams.skill_MK[0, slot], teams.left_MK[0, slot] = skill, work
    teams.priority_MK[0, slot], teams.time_MK[0, slot] = priority, steps
    teams.order_MK = teams._line()


def play(teams, *rows, steps=1):
    """The same action of every agent for some steps; what each agent earned by part."""
    earned = {name: np.zeros(len(rows)) for name in PARTS}
    for _ in range(steps):
        for name, part_MN in teams.advance(np.array([rows])).items():
            earned[name] += part_MN[0]
    return earned


def play_out(policy, settings, *, worlds=8, seed=0):
    """Whole episodes of a policy `(teams) -> actions`; where they ended, and the parts of their rewards `[M, N]`."""
    teams = Teams(settings, [np.random.default_rng(seed + world) for world in range(worlds)])
    earned = teams.no_parts()
    while not teams.is_over:
        for name, part_MN in teams.advance(policy(teams)).items():
            earned[name] += part_MN
    return teams, earned


def chaos(seed=0):
    """A policy that does anything at all."""
    generator = np.random.default_rng(seed)
    return lambda teams: generator.uniform(-1, 1, (*teams.capacity_MN.shape, 3))
