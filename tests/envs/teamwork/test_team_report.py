"""Baselines, from the worst to the best; and what a report says of how a team worked."""

import dataclasses
import itertools

import numpy as np
import pytest
from small_teams import place, play, small_team

from loomrl.envs.teamwork import (
    as_table,
    assignment_policy,
    compare,
    evaluate,
    greedy_policy,
    random_policy,
    team_of,
)
from loomrl.envs.teamwork.baseline import BASELINES
from loomrl.envs.teamwork.dynamics import TeamTally
from loomrl.envs.teamwork.observation import TeamView, action_space, observation_space, observe
from loomrl.envs.teamwork.report import measure
from loomrl.envs.teamwork.settings import team_settings
from loomrl.errors import ConfigError, PolicyError

SETTINGS = team_settings()


def test_random_is_clearly_worse_than_greedy_which_is_clearly_worse_than_assignment():
    reports = [
        evaluate(baseline(SETTINGS), episodes=64) for baseline in (random_policy, greedy_policy, assignment_policy)
    ]
    for worse, better in itertools.pairwise(reports):
        assert worse.reward + worse.reward_margin < better.reward - better.reward_margin
        assert worse.completion < better.completion
        assert worse.specialisation < better.specialisation


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("raw", [{}, {"agents": 2, "max_tasks": 1, "skills": 1}, {"agents": 9, "skills": 2}], ids=str)
def test_baselines_act_in_teams_of_every_size(name, raw):
    settings = team_settings(**raw, steps=40)
    seen = observe(small_team(np.full((settings.agents, settings.skills), 0.5), max_tasks=settings.max_tasks))
    actions = BASELINES[name](settings)(np.repeat(seen, 5, axis=0)).astype(np.float32)
    assert actions.shape == (5, 3 * settings.agents)
    assert all(action_space(settings.agents).contains(action) for action in actions)
    assert evaluate(BASELINES[name](settings), episodes=4, **raw, steps=40).episodes == 4


def test_greedy_gives_a_task_to_whoever_is_free_and_assignment_waits_for_the_expert():
    taken = {}
    for policy in (greedy_policy, assignment_policy):
        teams = small_team([[0.95, 0.1], [0.1, 0.95]])
        place(teams, 0, skill=0, work=1.5)
        play(teams, (1, 0.5, -1), (-1, -1, -1))
        place(teams, 1, skill=0, work=2.0, priority=0.9)
        teams.advance(policy(teams.settings)(observe(teams)))
        taken[policy] = teams.holder_MK[0, 1]
    assert taken == {greedy_policy: 1, assignment_policy: -1}


def test_numbers_of_a_report_follow_from_what_happened():
    numbers = measure(
        TeamTally(
            reward_M=np.array([3.0, -1.0]),
            arrived_M=np.array([10, 0]),
            completed_M=np.array([4, 0]),
            joint_M=np.array([1, 0]),
            lost_M=np.array([5, 0]),
            active_MN=np.array([[10, 5], [0, 0]]),
            work_MNS=np.array([[[3.0, 0.0], [0.5, 0.5]], [[0.0, 0.0], [0.0, 0.0]]]),
        ),
        steps=20,
    )
    assert numbers["reward"].tolist() == [3.0, -1.0]
    assert numbers["completion"].tolist() == [0.4, 0.0]
    assert numbers["utilisation"].tolist() == [0.375, 0.0]
    assert numbers["balance"].tolist() == [16 / 20, 0.0]
    assert numbers["collaboration"].tolist() == [0.25, 0.0]
    assert numbers["specialisation"].tolist() == pytest.approx([0.75, 0.0])


def test_evaluation_repeats_and_its_shares_are_shares():
    reports = [evaluate(random_policy(SETTINGS, seed=1), episodes=130, steps=40) for _ in range(2)]
    assert reports[0] == reports[1]
    for name, value in dataclasses.asdict(reports[0]).items():
        if name not in ("episodes", "reward", "reward_margin"):
            assert 0 < value < 1


def test_too_few_episodes_and_too_few_answers_are_refused():
    with pytest.raises(ConfigError, match="episodes=1: an interval needs at least 2"):
        evaluate(greedy_policy(SETTINGS), episodes=1)
    with pytest.raises(PolicyError, match="1 actions for 8 observations"):
        evaluate(lambda seen: np.zeros((1, 12)), episodes=8)


def idle(seen):
    return np.full((len(seen), 12), -1.0)


def test_a_comparison_judges_every_policy_on_the_same_teams_as_the_baselines():
    reports = compare({"idle": idle, "mine": greedy_policy(SETTINGS)}, episodes=6, seed=3, steps=30)
    assert list(reports) == ["random", "greedy", "assignment", "idle", "mine"]
    assert reports["mine"] == reports["greedy"] == evaluate(greedy_policy(SETTINGS), episodes=6, seed=3, steps=30)
    assert reports["idle"] == evaluate(idle, episodes=6, seed=3, steps=30)


def test_a_policy_named_as_a_baseline_takes_its_place():
    reports = compare({"greedy": idle}, episodes=4, steps=20)
    assert list(reports) == ["random", "greedy", "assignment"]
    assert reports["greedy"] == evaluate(idle, episodes=4, steps=20)


def test_a_table_has_a_line_per_policy_and_a_column_per_number():
    report = evaluate(idle, episodes=4, steps=20)
    report = dataclasses.replace(report, reward=-12.4, reward_margin=3.6, completion=0.256, specialisation=1.0)
    head, rule, line = as_table({"idle": report}).splitlines()
    assert head == "| | reward | completion | utilisation | balance | collaboration | specialisation |"
    assert rule == "|---|---|---|---|---|---|---|"
    assert line == "| idle | -12 ± 4 | 0.26 | 0.00 | 0.00 | 0.00 | 1.00 |"


def test_agents_that_act_for_themselves_are_judged_as_a_team():
    """An agent decides from its own view as a central policy does from the whole."""

    def choosy(seen):
        match = np.diagonal(TeamView.of(seen, SETTINGS).matrix_MNN, axis1=1, axis2=2)
        return np.stack([match - 0.5, match / 2, 1 - match], axis=2).reshape(len(seen), -1)

    def each(seen):
        assert seen.shape[1:] == observation_space(SETTINGS).shape
        return choosy(seen).reshape(len(seen), 4, 3)[:, 0]

    together = evaluate(team_of(each, SETTINGS), episodes=8, steps=50)
    assert together == evaluate(choosy, episodes=8, steps=50)


def test_a_policy_for_the_whole_team_is_not_taken_for_that_of_an_agent():
    with pytest.raises(PolicyError, match=r"shape \(16, 12\) for 16 agents: needed are \(16, 3\)"):
        evaluate(team_of(idle, SETTINGS), episodes=4)
