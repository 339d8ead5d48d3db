"""Policies that learn nothing, to measure learnt ones by. They see what every policy sees.

Axes: `_M` worlds, `_N` agents, `_K` task slots, `_A` numbers of an action.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped,unused-ignore]

from loomrl.envs.teamwork import dynamics
from loomrl.envs.teamwork.dynamics import STRENGTH
from loomrl.envs.teamwork.observation import (
    CAPACITY,
    EXPERTISE,
    HOLDER,
    PER_ACTION,
    PRIORITY,
    SKILL,
    TIME_LEFT,
    WORK_LEFT,
    Seen,
    TeamView,
)
from loomrl.envs.teamwork.settings import TeamSettings, team_settings

Policy = Callable[[Seen], NDArray[Any]]
"""Observations `[M, O]` → actions `[M, A]`."""

PACE = 0.75
"""The effort that gets most out of an agent in the long run."""


def random_policy(settings: TeamSettings, *, seed: int = 0) -> Policy:
    """Every action with the same probability."""
    generator = np.random.default_rng(seed)
    return lambda seen_MO: generator.uniform(-1, 1, (len(seen_MO), PER_ACTION * settings.agents))


def greedy_policy(settings: TeamSettings) -> Policy:
    """Every task to the most expert agent that is free when it is offered; who holds none helps."""

    def act(seen_MO: Seen) -> NDArray[Any]:
        return _actions(np.diagonal(TeamView.of(seen_MO, settings).matrix_MNN, axis1=1, axis2=2))

    return act


def assignment_policy(settings: TeamSettings) -> Policy:
    """The best matching of all agents, busy ones included, and all waiting tasks, by what they would be paid.

    The task on offer is taken only if the agent that it is matched with is free; it waits for a better one otherwise.
    """

    def act(seen_MO: Seen) -> NDArray[Any]:
        view = TeamView.of(seen_MO, settings)
        value_MNK = _values(view, settings)
        bid_MN = np.full(value_MNK.shape[:2], -1.0)
        for world in np.flatnonzero(value_MNK[:, :, 0].any(1)):
            agents, tasks = linear_sum_assignment(value_MNK[world], maximize=True)
            chosen = agents[(tasks == 0) & (value_MNK[world, agents, tasks] > 0)]
            bid_MN[world, chosen] = 1.0  # of a busy agent, it is no bid: the task waits
        return _actions(bid_MN)

    return act


def _actions(bid_MN: NDArray[Any]) -> NDArray[Any]:
    """These bids, with a pace that lasts and idle hands that help."""
    effort_MN = np.full_like(bid_MN, 2 * PACE - 1)
    return np.stack([bid_MN, effort_MN, np.ones_like(bid_MN)], axis=2).reshape(len(bid_MN), -1)


def _values(view: TeamView, settings: TeamSettings) -> NDArray[Any]:
    """Each agent's earnings with each waiting task after those in hand, `[M, N, K]`."""
    agents = view.agents_MN7
    tasks = view.tasks_MK5
    skill_MK = np.maximum(np.rint(tasks[:, :, SKILL] * settings.skills).astype(np.int64) - 1, 0)
    holder_MK = np.rint(tasks[:, :, HOLDER] * settings.agents) - 1
    match_MNK = np.take_along_axis(agents[:, :, EXPERTISE:], skill_MK[:, None], axis=2)
    pace_MNK = dynamics.LAYMAN_PACE + (1 - dynamics.LAYMAN_PACE) * match_MNK
    capacity_MN1 = agents[:, :, CAPACITY, None] * STRENGTH[1]
    steps_MNK = tasks[:, None, :, WORK_LEFT] * settings.complexity[1] / (PACE * capacity_MN1 * pace_MNK)
    holds_MNK = holder_MK[:, None] == np.arange(settings.agents)[:, None]

    spare_MNK = tasks[:, None, :, TIME_LEFT] * settings.deadline[1] - steps_MNK
    spare_MNK -= (steps_MNK * holds_MNK).sum(2, keepdims=True)
    paid_MNK = dynamics.COMPLETION * match_MNK * (1 + spare_MNK / settings.deadline[1]) + match_MNK + dynamics.OVERDUE
    waits_MK = (tasks[:, :, PRIORITY] > 0) & (holder_MK < 0)
    can_MNK = (spare_MNK >= 0) & waits_MK[:, None]
    return np.where(can_MNK, paid_MNK * tasks[:, None, :, PRIORITY], 0.0)


BASELINES: dict[str, Callable[[TeamSettings], Policy]] = {
    "random": random_policy,
    "greedy": greedy_policy,
    "assignment": assignment_policy,
}


def greedy(**settings: Any) -> Policy:
    """For `loomrl evaluate --policy loomrl.envs.teamwork.baseline:greedy`."""
    return greedy_policy(team_settings(**settings))


def assignment(**settings: Any) -> Policy:
    """For `loomrl evaluate --policy loomrl.envs.teamwork.baseline:assignment`."""
    return assignment_policy(team_settings(**settings))
