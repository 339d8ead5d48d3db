"""The rules: who gets what, what work does, what it pays; and what holds for any actions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from small_teams import IDLE, chaos, place, play, play_out, small_team

from loomrl.envs.teamwork.baseline import PACE
from loomrl.envs.teamwork.dynamics import COLLABORATION, COMPLETION, HELP_PACE, LAYMAN_PACE, OVERDUE, TRUST, Teams
from loomrl.envs.teamwork.settings import team_settings
from loomrl.errors import PolicyError

TWINS = [[1.0], [1.0]]
FULL = 1.0
HALF = 0.0
"""Effort as an action."""


def test_task_goes_to_the_highest_bid():
    teams = small_team(TWINS)
    place(teams, 2, work=5.0)
    play(teams, (0.3, FULL, -1), (0.4, FULL, -1))
    assert teams.held_MN.tolist() == [[-1, 2]]
    assert teams.holder_MK[0, 2] == 1


def test_nobody_who_does_not_want_a_task_or_has_one_gets_it():
    teams = small_team(TWINS)
    place(teams, 0, work=50.0)
    place(teams, 1, work=50.0)
    play(teams, (1.0, FULL, -1), (0.0, FULL, -1))
    play(teams, (1.0, FULL, -1), (0.0, FULL, -1))
    assert teams.held_MN.tolist() == [[0, -1]]


def test_a_refused_task_is_offered_again_after_all_others():
    teams = small_team(TWINS)
    for slot, priority in enumerate((0.2, 1.0, 0.5)):
        place(teams, slot, priority=priority)
    offered = []
    for _ in range(4):
        offered.append(int(teams.order_MK[0, 0]))
        play(teams, IDLE, IDLE)
    assert offered == [1, 2, 0, 1]


def test_of_equally_important_tasks_the_one_with_less_time_is_offered_first():
    teams = small_team(TWINS)
    place(teams, 0, steps=20)
    place(teams, 1, steps=10)
    assert teams.order_MK[0, 0] == 1


def test_match_is_paid_when_a_task_is_taken():
    teams = small_team([[0.5, 0.25], [1, 1]])
    place(teams, 0, skill=1, priority=0.8, work=50.0)
    assert play(teams, (1, FULL, -1), IDLE)["match"].tolist() == [0.25 * 0.8, 0.0]
    assert play(teams, (1, FULL, -1), IDLE, steps=5)["match"].tolist() == [0.0, 0.0]


def test_completion_pays_quality_times_priority_with_a_bonus_for_time_left():
    teams = small_team([[0.5], [1.0]], deadline=(10, 40))
    place(teams, 0, work=0.5, priority=0.8, steps=10)
    earned = play(teams, (1, FULL, -1), IDLE)
    assert earned["completion"] == pytest.approx([COMPLETION * 0.5 * 0.8 * (1 + 10 / 40), 0.0])
    assert not teams.present_MK.any()
    assert teams.held_MN.tolist() == [[-1, -1]]


def test_work_is_capacity_times_effort_at_the_pace_of_the_expertise():
    teams = small_team([[0.5], [1.0]])
    place(teams, 0, work=10.0)
    play(teams, (1, HALF, -1), IDLE)
    assert teams.left_MK[0, 0] == pytest.approx(10.0 - 0.5 * (LAYMAN_PACE + (1 - LAYMAN_PACE) * 0.5))


def test_completion_is_shared_by_work_done_and_quality_is_that_of_who_did_it():
    teams = small_team([[1.0], [0.5]], deadline=(10, 40))
    place(teams, 0, work=0.5, priority=0.8, steps=20)
    earned = play(teams, (1, HALF, 1), (-1, HALF, 1))
    helping = (HELP_PACE[0] + HELP_PACE[1] * TRUST) * (LAYMAN_PACE + (1 - LAYMAN_PACE) * 0.5)
    share_N = np.array([1.0, helping]) / (1.0 + helping)
    quality = share_N @ [1.0, 0.5]
    assert teams.tally.work_MNS[0, :, 0] == pytest.approx(0.5 * share_N)
    assert earned["completion"] == pytest.approx(COMPLETION * quality * 0.8 * (1 + 20 / 40) * share_N)
    assert earned["collaboration"] == pytest.approx(COLLABORATION * 0.8 * (1 - (share_N**2).sum()) * share_N)


def test_help_goes_to_the_task_that_welcomes_it_most():
    for welcome, helped in (((0.2, 0.9), 1), ((0.9, 0.2), 0), ((0.9, -1.0), 0)):
        teams = small_team([[1.0], [1.0], [1.0]])
        place(teams, 0, work=50.0, priority=1.0)
        place(teams, 1, work=50.0, priority=0.5)
        play(teams, (1, FULL, -1), IDLE, IDLE)
        play(teams, (1, FULL, -1), (1, FULL, -1), IDLE)
        play(teams, (-1, FULL, welcome[0]), (-1, FULL, welcome[1]), (-1, FULL, 1))
        assert np.flatnonzero(teams.work_MNK[0, 2]).tolist() == [helped]


def test_nobody_is_helped_who_does_not_welcome_it_and_nobody_helps_who_does_not_want_to():
    for holder, helper in ((-1.0, 1.0), (1.0, -1.0), (0.0, 1.0), (1.0, 0.0)):
        teams = small_team(TWINS)
        place(teams, 0, work=50.0)
        play(teams, (1, FULL, holder), (-1, FULL, helper), steps=3)
        assert teams.work_MNK[0, 1].sum() == 0
        assert teams.tally.active_MN.tolist() == [[3, 0]]


def test_trust_grows_where_a_task_is_completed_jointly_and_makes_help_faster():
    teams = small_team(TWINS, steps=400)
    first = None
    for _ in range(5):
        place(teams, 0, work=3.0)
        play(teams, (1, HALF, 1), (-1, HALF, 1))
        first = first or teams.work_MNK[0, 1, 0]
        while teams.present_MK.any():
            play(teams, (1, HALF, 1), (-1, HALF, 1))
        play(teams, IDLE, IDLE, steps=50)  # both are rested again
    assert teams.trust_MNN[0, 0, 1] > TRUST
    assert teams.trust_MNN[0, 0, 1] == teams.trust_MNN[0, 1, 0]
    place(teams, 0, work=3.0)
    play(teams, (1, HALF, 1), (-1, HALF, 1))
    assert teams.work_MNK[0, 1, 0] > first


def test_trust_that_is_not_renewed_fades():
    teams = small_team(TWINS)
    play(teams, IDLE, IDLE, steps=100)
    assert 0 < teams.trust_MNN[0, 0, 1] < 0.9 * TRUST


def test_records_tell_who_kept_promises_and_who_worked_with_others():
    teams = small_team([[1.0]] * 3)
    place(teams, 0, work=0.5)
    play(teams, (1, HALF, 1), (-1, HALF, 1), (-1, HALF, -1))  # completed by the first two
    place(teams, 0, work=50.0, steps=1)
    play(teams, IDLE, IDLE, (1, HALF, -1))  # lost by the third
    assert teams.success_MN[0].tolist() == pytest.approx([0.55, 0.5, 0.45])
    assert teams.collaboration_MN[0].tolist() == pytest.approx([0.1, 0.1, 0.0])
    place(teams, 0, work=0.1)
    play(teams, (1, HALF, -1), IDLE, IDLE)  # completed alone
    assert teams.success_MN[0].tolist() == pytest.approx([0.595, 0.5, 0.45])
    assert teams.collaboration_MN[0].tolist() == pytest.approx([0.09, 0.1, 0.0])


def test_a_lost_task_costs_its_holder_and_takes_the_match_back():
    teams = small_team(TWINS)
    place(teams, 0, priority=0.5, work=50.0, steps=3)
    earned = play(teams, (1, FULL, -1), IDLE, steps=3)
    assert earned["match"].tolist() == [0.0, 0.0]
    assert earned["overdue"].tolist() == [-OVERDUE * 0.5, 0.0]
    assert earned["completion"].sum() == 0
    assert teams.tally.lost_M.tolist() == [1]
    assert teams.held_MN.tolist() == [[-1, -1]]


def test_a_task_that_nobody_took_costs_all_alike():
    teams = small_team(TWINS)
    place(teams, 0, priority=0.5, steps=2)
    assert play(teams, IDLE, IDLE, steps=2)["overdue"].tolist() == [-OVERDUE * 0.25] * 2


def test_a_task_that_finds_no_slot_costs_as_much_as_one_that_is_lost():
    settings = team_settings(arrival=1.0, max_tasks=1, deadline=(10, 10), steps=5)
    teams, earned = play_out(lambda teams: np.full((*teams.capacity_MN.shape, 3), -1.0), settings)
    assert teams.tally.lost_M.tolist() == [5] * 8
    assert teams.tally.arrived_M.tolist() == [6] * 8
    assert earned["overdue"].sum(1) == pytest.approx(-OVERDUE * teams.chance.priority_TM[1:].sum(0))


def test_full_effort_gets_less_done_in_the_long_run_than_a_pace_that_lasts():
    done = {}
    for effort in (0.5, PACE, 1.0):
        teams = small_team(TWINS, complexity=(1.0, 1000.0), deadline=(1, 1000))
        place(teams, 0, work=1000.0, steps=1000)
        play(teams, (1, 2 * effort - 1, -1), IDLE, steps=200)
        done[effort] = teams.tally.work_MNS.sum()
    assert done[PACE] > 1.1 * done[1.0]
    assert done[PACE] > 1.05 * done[0.5]


def test_rest_brings_capacity_back():
    teams = small_team(TWINS)
    place(teams, 0, work=100.0, steps=20)
    play(teams, (1, FULL, -1), IDLE, steps=20)
    tired = teams.capacity_MN[0, 0]
    assert tired < 0.6
    assert teams.capacity_MN[0, 1] == 1.0
    play(teams, IDLE, IDLE, steps=60)
    assert teams.capacity_MN[0, 0] > 0.99


@pytest.mark.parametrize("actions", [np.full((1, 6), np.nan), np.zeros((1, 9)), np.zeros((2, 3))], ids=str)
def test_what_is_no_action_is_refused_with_what_is_one(actions):
    with pytest.raises(PolicyError, match=r"needed are \(1, 2, 3\) finite numbers in -1..1"):
        small_team(TWINS).advance(actions)


def test_actions_beyond_the_bounds_count_as_the_bounds():
    settings = team_settings(steps=30)
    _, inside = play_out(lambda teams: np.ones((*teams.capacity_MN.shape, 3)), settings)
    _, beyond = play_out(lambda teams: np.full((*teams.capacity_MN.shape, 3), 1e9), settings)
    for name, part_MN in inside.items():
        np.testing.assert_array_equal(part_MN, beyond[name])


settings_of_any_team = st.fixed_dictionaries(
    {
        "agents": st.integers(2, 6),
        "max_tasks": st.integers(1, 9),
        "skills": st.integers(1, 3),
        "steps": st.integers(1, 60),
        "arrival": st.sampled_from([0.0, 0.3, 1.0]),
        "complexity": st.sampled_from([(0.01, 0.02), (1.0, 4.0)]),
        "deadline": st.sampled_from([(1, 1), (3, 12)]),
    }
)


@given(settings_of_any_team, st.integers(0, 2**20))
@hypothesis_settings(max_examples=40)
def test_whatever_anybody_does_the_books_balance(raw, seed):
    settings = team_settings(**raw)
    teams = Teams(settings, [np.random.default_rng(seed + world) for world in range(3)])
    policy = chaos(seed)
    strength_MN = teams.chance.strength_MN
    total_M = np.zeros(3)
    while not teams.is_over:
        before_MN = teams.capacity_MN.copy()
        whole_MK = teams.left_MK + teams.work_MNK.sum(1)
        kept_MK = teams.present_MK.copy()
        done_MN = teams.tally.work_MNS.sum(2)
        priority_MK = teams.priority_MK.copy()
        parts = teams.advance(policy(teams))
        total_M += sum(part_MN.sum(1) for part_MN in parts.values())
        # no agent does more than capacity allows, and capacity has its bounds
        assert (teams.tally.work_MNS.sum(2) - done_MN <= before_MN + 1e-12).all()
        assert (teams.capacity_MN > 0).all()
        assert (teams.capacity_MN <= strength_MN + 1e-12).all()
        # work left and work done are the task
        kept_MK &= teams.present_MK & (teams.priority_MK == priority_MK)  # a new task in its slot has another one
        np.testing.assert_allclose((teams.left_MK + teams.work_MNK.sum(1))[kept_MK], whole_MK[kept_MK], atol=1e-9)
        # one holder per task, one task per holder
        world, agent = np.nonzero(teams.held_MN >= 0)
        assert (teams.holder_MK[world, teams.held_MN[world, agent]] == agent).all()
        assert (teams.holder_MK >= 0).sum() == len(world)
        assert not (teams.holder_MK[~teams.present_MK] >= 0).any()
        for shares in (teams.success_MN, teams.collaboration_MN, teams.trust_MNN):
            assert (shares >= 0).all()
            assert (shares <= 1).all()
    tally = teams.tally
    np.testing.assert_allclose(total_M, tally.reward_M)
    np.testing.assert_array_equal(tally.arrived_M, tally.completed_M + tally.lost_M + teams.present_MK.sum(1))
    assert (tally.joint_M <= tally.completed_M).all()
