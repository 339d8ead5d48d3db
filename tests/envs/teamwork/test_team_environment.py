"""One team through Gymnasium: its checker, its settings, and what an observation says where."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from small_teams import IDLE, chaos, place, play, play_out, small_team

import loomrl.envs.teamwork
from loomrl.envs.teamwork import TeamEnvironment
from loomrl.envs.teamwork.dynamics import JOINT_SHARE
from loomrl.envs.teamwork.observation import TeamView, observe, seen_by_each
from loomrl.envs.teamwork.settings import team_settings
from loomrl.errors import ConfigError, PolicyError


def test_environment_passes_the_checker_of_gymnasium():
    check_env(TeamEnvironment(), skip_render_check=True)


def test_gymnasium_makes_it_by_its_id_with_settings():
    env = gymnasium.make(loomrl.envs.teamwork.ID, agents=3, max_tasks=5, steps=7)
    observation, _ = env.reset(seed=0)
    assert observation.shape == (7 * 3 + 5 * 5 + 3**2,)
    steps = 0
    truncated = False
    while not truncated:
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert not terminated
        assert reward == pytest.approx(sum(info["parts"].values()))
        steps += 1
    assert steps == 7
    env.close()


def test_a_step_beyond_the_end_is_refused():
    env = TeamEnvironment(steps=1)
    env.step(np.zeros(12))
    with pytest.raises(PolicyError, match=r"call reset\(\)"):
        env.step(np.zeros(12))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agents": 1}, "agents=1: .*greater than or equal to 2"),
        ({"skills": 4}, "skills=4: .*less than or equal to 3"),
        ({"arrival": 1.5}, "arrival=1.5: .*less than or equal to 1"),
        ({"steps": 0}, "steps=0"),
        ({"agent": 3}, "agent=3: no such setting here. Known: agents.*Did you mean 'agents'"),
        ({"complexity": (0.0, 1.0)}, r"complexity=\(0.0, 1.0\): choose 0 < least <= most"),
        ({"deadline": (20, 10)}, r"deadline=\(20, 10\): choose 0 < least <= most"),
    ],
)
def test_a_bad_setting_is_named_with_its_value_and_a_remedy(settings, message):
    with pytest.raises(ConfigError, match=message):
        gymnasium.make(loomrl.envs.teamwork.ID, **settings)


def test_an_observation_says_what_the_documentation_says():
    teams = small_team([[0.9, 0.1], [0.3, 0.6]], deadline=(10, 40), complexity=(1.0, 4.0), max_tasks=3)
    place(teams, 2, skill=1, priority=0.5, work=3.0, steps=20)
    play(teams, IDLE, (1, -1, -1))
    place(teams, 0, skill=0, priority=0.7, work=2.0, steps=30)
    view = TeamView.of(observe(teams), teams.settings)
    capacity = 1 / 1.3
    first = [capacity, 0, 0.5, 0, 0.9, 0.1, 0]
    second = [capacity, 3 / 4, 0.5, 0, 0.3, 0.6, 0]
    np.testing.assert_allclose(view.agents_MN7[0], [first, second], rtol=1e-6)
    waiting = [0.7, 2 / 4, 30 / 40, 1 / 2, 0]
    in_hand = [0.5, 3 / 4, 19 / 40, 2 / 2, 2 / 2]
    np.testing.assert_allclose(view.tasks_MK5[0], [waiting, in_hand, [0] * 5], rtol=1e-6)
    trust = teams.trust_MNN[0, 0, 1]
    np.testing.assert_allclose(view.matrix_MNN[0], [[0.9, trust], [trust, 0.3]], rtol=1e-6)


def test_the_diagonal_is_empty_while_nothing_is_on_offer():
    teams = small_team([[0.9], [0.3]])
    place(teams, 0, work=9.0)
    play(teams, (1, -1, -1), IDLE)
    assert np.diagonal(TeamView.of(observe(teams), teams.settings).matrix_MNN[0]).tolist() == [0.0, 0.0]


def test_every_agent_sees_itself_first():
    teams = small_team([[0.9], [0.5], [0.2]])
    place(teams, 1, work=9.0)
    play(teams, IDLE, (1, 0, -1), IDLE)
    place(teams, 0)
    teams.trust_MNN[0, 1, 2] = 0.8
    central = observe(teams)
    told = seen_by_each(central, teams.settings)
    np.testing.assert_array_equal(told[:, 0], central)
    views = [TeamView.of(told[:, agent], teams.settings) for agent in range(3)]
    for agent, view in enumerate(views):
        assert view.agents_MN7[0, 0, 4] == pytest.approx([0.9, 0.5, 0.2][agent])
        assert view.matrix_MNN[0, 0, 0] == pytest.approx([0.9, 0.5, 0.2][agent])
        holder = round(float(view.tasks_MK5[0, 1, 4]) * 3) - 1
        assert (agent + holder) % 3 == 1
        assert view.tasks_MK5[0, 0, 4] == 0
    assert views[1].matrix_MNN[0, 0, 1] == pytest.approx(0.8)
    assert views[0].matrix_MNN[0, 1, 2] == pytest.approx(0.8)


SETTINGS = team_settings()


def constant(accept, effort, join):
    return lambda teams: np.broadcast_to([accept, effort, join], (*teams.capacity_MN.shape, 3))


@pytest.mark.parametrize("join", [-1.0, 1.0])
def test_taking_every_task_without_working_earns_exactly_what_doing_nothing_does(join):
    idle, _ = play_out(constant(*IDLE), SETTINGS, worlds=32)
    hoarding, earned = play_out(constant(1.0, -1.0, join), SETTINGS, worlds=32)
    np.testing.assert_allclose(hoarding.tally.reward_M, idle.tally.reward_M)
    np.testing.assert_allclose(earned["match"].sum(1), 0.0, atol=1e-9)


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
    teams = small_team([[1.0, 0.3], [0.4, 1.0], [0.6, 0.6]], arrival=0.6, steps=150)
    policy = chaos(3)
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
