"""The observation of a team, as numbers in 0..1: 7 per agent, then 5 per task slot, then a matrix of agents by agents.

Axes: `_M` worlds, `_N` agents, `_K` task slots, `_O` numbers of an observation.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from loomrl.envs.teamwork.dynamics import STRENGTH, Teams
from loomrl.envs.teamwork.settings import TeamSettings
from loomrl.errors import ConfigError

Seen = NDArray[np.float32]

CAPACITY, WORKLOAD, SUCCESS, COLLABORATION, EXPERTISE = range(5)
"""Numbers of an agent. From `EXPERTISE` on, one per skill; with fewer than three skills the rest is 0."""
PRIORITY, WORK_LEFT, TIME_LEFT, SKILL, HOLDER = range(5)
"""Numbers of a task. Skill s of S is (s + 1) / S; holder i of N is (i + 1) / N, and 0 while the task waits."""
PER_AGENT = 7
PER_TASK = 5
PER_ACTION = 3


def observation_size(settings: TeamSettings) -> int:
    """`7n + 5·max_tasks`, and n² more of a full view."""
    matrix = settings.agents**2 if settings.view == "full" else 0
    return PER_AGENT * settings.agents + PER_TASK * settings.max_tasks + matrix


def observation_space(settings: TeamSettings) -> Box:
    """Numbers in 0..1."""
    return Box(0.0, 1.0, (observation_size(settings),), np.float32)


def action_space(agents: int) -> Box:
    """Accept, effort and collaborate of every agent."""
    return Box(-1.0, 1.0, (PER_ACTION * agents,), np.float32)


@dataclass(frozen=True, slots=True)
class TeamView:
    """Observations cut into their blocks; writing to a block writes to the observation."""

    agents_MN7: Seen
    tasks_MK5: Seen
    """The line in its order; then tasks in hand, by their holders; then empty slots, all 0."""
    matrix_MNN: Seen
    """Trust between two agents; in the diagonal, each agent's expertise for the task at the head of the line."""

    @classmethod
    def of(cls, seen_MO: Seen, settings: TeamSettings) -> Self:
        """The blocks of a batch of observations; ConfigError for those of a basic view."""
        if settings.view != "full":
            raise ConfigError("view=basic: this policy reads more than that shows. Take view=full, or another policy.")
        agents = settings.agents
        slots = settings.max_tasks
        tasks = PER_AGENT * agents
        matrix = PER_AGENT * agents + PER_TASK * slots
        return cls(
            seen_MO[:, :tasks].reshape(-1, agents, PER_AGENT),
            seen_MO[:, tasks:matrix].reshape(-1, slots, PER_TASK),
            seen_MO[:, matrix:].reshape(-1, agents, agents),
        )


def observe(teams: Teams) -> Seen:
    """Every world's observation, `[M, O]`, in new memory."""
    return _observe_basics(teams) if teams.settings.view == "basic" else _observe_all(teams)


def _observe_basics(teams: Teams) -> Seen:
    """An agent: capacity, load, tasks completed per step, success rate, collaboration score, expertise in research
    and in analysis. Of a task slot: complexity, priority, deadline, exists, assigned.
    """
    settings = teams.settings
    worlds = teams.order_MK.shape[0]
    order_MK = teams.order_MK
    at = np.arange(worlds)[:, None]
    agents_MN7 = np.zeros((worlds, settings.agents, PER_AGENT), np.float32)
    agents_MN7[:, :, 0] = teams.capacity_MN / STRENGTH[1]
    agents_MN7[:, :, 1] = np.where(teams.held_MN < 0, 0.0, teams.left_MK[at, teams.held_MN] / settings.complexity[1])
    agents_MN7[:, :, 2] = teams.completed_MN / max(teams.step, 1)
    agents_MN7[:, :, 3] = teams.success_MN
    agents_MN7[:, :, 4] = teams.collaboration_MN
    agents_MN7[:, :, 5 : 5 + settings.skills] = teams.chance.expertise_MNS
    tasks_MK5 = np.zeros((worlds, settings.max_tasks, PER_TASK), np.float32)
    tasks_MK5[:, :, 0] = teams.complexity_MK[at, order_MK] / settings.complexity[1]
    tasks_MK5[:, :, 1] = teams.priority_MK[at, order_MK]
    tasks_MK5[:, :, 2] = teams.time_MK[at, order_MK] / settings.deadline[1]
    tasks_MK5[:, :, 3] = teams.present_MK[at, order_MK]
    tasks_MK5[:, :, 4] = teams.holder_MK[at, order_MK] >= 0
    return np.concatenate([agents_MN7.reshape(worlds, -1), tasks_MK5.reshape(worlds, -1)], axis=1)


def _observe_all(teams: Teams) -> Seen:
    settings = teams.settings
    skills = teams.settings.skills
    worlds = teams.order_MK.shape[0]
    order_MK = teams.order_MK
    seen_MO = np.zeros((worlds, observation_size(settings)), np.float32)
    view = TeamView.of(seen_MO, settings)
    at = np.arange(worlds)[:, None]
    work_MK = teams.left_MK / settings.complexity[1]

    agents = view.agents_MN7
    agents[:, :, CAPACITY] = teams.capacity_MN / STRENGTH[1]
    agents[:, :, WORKLOAD] = np.where(teams.held_MN < 0, 0.0, work_MK[at, teams.held_MN])
    agents[:, :, SUCCESS] = teams.success_MN
    agents[:, :, COLLABORATION] = teams.collaboration_MN
    agents[:, :, EXPERTISE : EXPERTISE + skills] = teams.chance.expertise_MNS

    tasks = view.tasks_MK5
    present_MK = teams.present_MK[at, order_MK]
    holder_MK = teams.holder_MK[at, order_MK]
    skill_MK = teams.skill_MK[at, order_MK]
    tasks[:, :, PRIORITY] = teams.priority_MK[at, order_MK]
    tasks[:, :, WORK_LEFT] = work_MK[at, order_MK]
    tasks[:, :, TIME_LEFT] = teams.time_MK[at, order_MK] / settings.deadline[1]
    tasks[:, :, SKILL] = np.where(present_MK, (skill_MK + 1) / skills, 0.0)
    tasks[:, :, HOLDER] = (holder_MK + 1) / settings.agents

    view.matrix_MNN[:] = teams.trust_MNN
    itself = np.arange(settings.agents)
    offered_M = present_MK[:, 0] & (holder_MK[:, 0] < 0)
    match_MN = teams.chance.expertise_MNS[at[:, 0], :, skill_MK[:, 0]]
    view.matrix_MNN[:, itself, itself] = np.where(offered_M[:, None], match_MN, 0.0)
    return seen_MO


def seen_by_each(seen_MO: Seen, settings: TeamSettings) -> NDArray[np.float32]:
    """The same observations as each agent sees them, `[M, N, O]`: itself first, then who comes after it, in a ring."""
    agents = settings.agents
    told_MNO = np.repeat(seen_MO[:, None], agents, axis=1)
    if settings.view == "basic":
        agents_MN7 = seen_MO[:, : PER_AGENT * agents].reshape(-1, agents, PER_AGENT)
        for agent in range(agents):
            ring = (np.arange(agents) + agent) % agents
            told_MNO[:, agent, : PER_AGENT * agents] = agents_MN7[:, ring].reshape(len(seen_MO), -1)
        return told_MNO
    view = TeamView.of(seen_MO, settings)
    held_MK = view.tasks_MK5[:, :, HOLDER] > 0
    holder_MK = np.rint(view.tasks_MK5[:, :, HOLDER] * agents) - 1
    for agent in range(agents):
        ring = (np.arange(agents) + agent) % agents
        own = TeamView.of(told_MNO[:, agent], settings)
        own.agents_MN7[:] = view.agents_MN7[:, ring]
        own.tasks_MK5[:, :, HOLDER] = np.where(held_MK, ((holder_MK - agent) % agents + 1) / agents, 0.0)
        own.matrix_MNN[:] = view.matrix_MNN[:, ring][:, :, ring]
    return told_MNO
