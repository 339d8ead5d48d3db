"""Tricks that would pay without work, and do not."""

import numpy as np
import pytest
from small_teams import IDLE, chaos, place, play, play_out, small_team

from loomrl.envs.teamwork.baseline import greedy_policy
from loomrl.envs.teamwork.dynamics import JOINT_SHARE, OVERDUE
from loomrl.envs.teamwork.observation import observe
from loomrl.envs.teamwork.settings import team_settings

SETTINGS = team_settings()


def constant(accept, effort, join):
    return lambda teams: np.broadcast_to([accept, effort, join], (*teams.capacity_MN.shape, 3))


@pytest.mark.parametrize("join", [-1.0, 1.0])
def test_taking_every_task_without_working_earns_exactly_what_doing_nothing_does(join):
    idle, _ = play_out(constant(*IDLE), SETTINGS, worlds=32)
    hoarding, earned = play_out(constant(1.0, -1.0, join), SETTINGS, worlds=32)
    np.testing.assert_allclose(hoarding.tally.reward_M, idle.tally.reward_M)
    np.testing.assert_allclose(earned["match"].sum(1), 0.0, atol=1e-9)


def test_doing_nothing_is_worse_than_acting_at_random_which_is_worse_than_greedy():
    greedy = greedy_policy(SETTINGS)
    policies = constant(*IDLE), chaos(), lambda teams: greedy(observe(teams))
    rewards = [play_out(policy, SETTINGS, worlds=32)[0].tally.reward_M for policy in policies]
    assert (rewards[0] < rewards[1]).all()
    assert rewards[1].mean() + 100 < rewards[2].mean()


def test_match_is_paid_once_and_only_for_tasks_that_are_completed():
    teams, earned = play_out(chaos(), SETTINGS, worlds=32)
    assert (earned["match"].sum(1) >= 0).all()
    assert (earned["match"].sum(1) <= teams.tally.completed_M * 1.0).all()
    twice = small_team([[1.0], [1.0]])
    place(twice, 0, work=50.0)
    assert play(twice, (1, -1, -1), (1, -1, -1), steps=10)["match"].sum() == 1.0


def test_a_lost_task_costs_more_than_its_match_paid():
    assert OVERDUE > 1.0  # match and priority are at most 1, and both are multiplied by the priority
    teams = small_team([[1.0], [1.0]], steps=10)
    place(teams, 0, priority=0.2, steps=5)
    assert sum(part_N.sum() for part_N in play(teams, (1, -1, -1), IDLE, steps=10).values()) < -OVERDUE * 0.2


def test_help_without_a_completion_pays_nothing():
    teams = small_team([[1.0], [1.0]])
    place(teams, 0, work=50.0, steps=15)
    earned = play(teams, (1, 1, 1), (-1, 1, 1), steps=15)
    assert teams.tally.active_MN.tolist() == [[15, 15]]
    assert earned["collaboration"].sum() == 0
    assert earned["completion"].sum() == 0


def test_a_token_of_help_is_no_collaboration():
    teams = small_team([[1.0], [1.0]])
    place(teams, 0, work=4.0)
    play(teams, (1, 0, 1), (-1, -0.9, 1))
    earned = play(teams, (-1, 0, -1), IDLE, steps=15)
    share = teams.tally.work_MNS[0, 1, 0] / 4.0
    assert 0 < share < JOINT_SHARE
    assert teams.tally.completed_M.tolist() == [1]
    assert earned["collaboration"].sum() == 0
    assert earned["completion"][1] / earned["completion"].sum() == pytest.approx(share)


def test_collaboration_is_paid_in_no_step_without_a_joint_completion():
    teams, policy = small_team([[1.0, 0.3], [0.4, 1.0], [0.6, 0.6]], arrival=0.6, steps=150), chaos(3)
    paid = 0
    while not teams.is_over:
        before = teams.tally.joint_M.copy()
        parts = teams.advance(policy(teams))
        assert (parts["collaboration"].sum() > 0) == (teams.tally.joint_M > before).any()
        paid += parts["collaboration"].sum() > 0
    assert paid > 3


def test_saying_that_help_is_welcome_pays_nothing_where_nobody_comes():
    both = {}
    for join in (-1.0, 1.0):
        teams = small_team([[1.0], [1.0]])
        place(teams, 0, work=3.0)
        earned = play(teams, (1, 0, join), IDLE, steps=20)
        both[join] = sum(part_N.sum() for part_N in earned.values())
    assert both[-1.0] == both[1.0]


def test_a_full_line_keeps_no_task_away():
    arrived = [play_out(policy, SETTINGS)[0].tally.arrived_M for policy in (constant(*IDLE), chaos(), chaos(1))]
    np.testing.assert_array_equal(arrived[0], arrived[1])
    np.testing.assert_array_equal(arrived[0], arrived[2])
