"""Episodes of several trials: one task from the seed, the past in observations, returns by trial; and small tasks."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from loomrl.control.environment import TRIAL_RETURNS
from loomrl.envs.trials import BANDIT, GRID, PHYSICS, TRIALS
from loomrl.envs.trials.environment import TaskDistribution, Trials, part_of
from loomrl.envs.trials.task import STEP_COST, Bandit, GoalGrid, Physics
from loomrl.errors import ConfigError

ARMS = {"environment": BANDIT, "vary": {"probabilities": {"low": 0.0, "high": 1.0, "count": 3}}, "trials": 6}
CELLS = {"environment": GRID, "vary": {"goal": [0, 4, 20, 24], "turn": [0, 1, 2, 3]}, "trials": 3}
POLES = {"environment": PHYSICS, "vary": {"force_mag": [-10.0, 10.0], "length": {"low": 0.25, "high": 1.0}}}
ALL = [ARMS, CELLS, POLES]


def episode(env, seed, actions=None):
    """Observations, rewards, and the task with what the last step told."""
    seen, begun = env.reset(seed=seed)
    shown = [seen]
    paid = []
    over = False
    while not over:
        action = env.action_space.sample() if actions is None else actions(len(paid))
        seen, reward, over, _, told = env.step(action)
        shown.append(seen)
        paid.append(reward)
    return shown, paid, begun | told


@pytest.mark.filterwarnings("ignore:.*infinity", "ignore:.*alternative", "ignore:.*not within")
@pytest.mark.parametrize("settings", ALL)
def test_they_are_as_gymnasium_wants_them(settings):
    check_env(gymnasium.make(TRIALS, **settings).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("settings", ALL)
def test_a_seed_decides_the_task_and_all_that_follows(settings):
    one = Trials(**settings)
    other = Trials(**settings)
    episode(other, 9)
    choices = np.random.default_rng(0).integers(one.action_space.n, size=1000)
    first, again = (episode(env, 5, lambda step: choices[step]) for env in (one, other))
    np.testing.assert_array_equal(first[0], again[0])
    assert (first[1], first[2]["task"]) == (again[1], again[2]["task"])
    assert episode(one, 6)[2]["task"] != first[2]["task"]
    assert episode(one, None)[2]["task"] != episode(one, None)[2]["task"]  # the next episode has another one


@pytest.mark.parametrize("settings", ALL)
def test_returns_of_trials_add_up_to_the_episodes(settings):
    env = Trials(**settings)
    for seed in range(3):
        shown, paid, told = episode(env, seed)
        begins = [step for step, seen in enumerate(shown[:-1]) if seen[-1] == 1]
        parts = np.split(np.array(paid), begins[1:])
        np.testing.assert_allclose(told[TRIAL_RETURNS], [part.sum() for part in parts])
        assert sum(told[TRIAL_RETURNS]) == pytest.approx(sum(paid))


def test_an_observation_has_the_action_and_the_reward_before():
    env = Trials(**{**ARMS, "vary": {"probabilities": [[0.0, 1.0, 0.0]]}})
    shown, paid, _ = episode(env, 0, lambda step: step % 2)
    assert shown[0].tolist() == [1, 0, 0, 0, 0, 1]  # nothing was before; a trial begins
    assert [seen.tolist() for seen in shown[1:4]] == [[1, 1, 0, 0, 0, 1], [1, 0, 1, 0, 1, 1], [1, 1, 0, 0, 0, 1]]
    assert shown[-1][-1] == 0  # the episode is over, no trial begins
    assert paid == [0, 1] * 3
    assert Trials(**{**ARMS, "recall": False}).reset(seed=0)[0].tolist() == [1]


def test_real_valued_actions_are_seen_within_one():
    env = Trials("Pendulum-v1", {"g": [9.0, 10.0]}, {"max_episode_steps": 3}, trials=2)
    shown, _, told = episode(env, 0, lambda _: np.array([-1.0]))
    assert shown[0].shape == (3 + 1 + 1 + 1,)
    assert [seen[3] for seen in shown] == [0] + [-0.5] * 6  # torques are within 2
    assert [seen[-1] for seen in shown] == [1, 0, 0, 1, 0, 0, 0]
    assert len(told[TRIAL_RETURNS]) == 2


def test_the_task_stays_for_an_episode_unless_another_is_wanted_in_every_trial():
    sure = {"probabilities": [[0.0, 1.0], [1.0, 0.0]]}
    stays = [episode(Trials(BANDIT, sure, trials=20), seed, lambda _: 0)[1] for seed in range(9)]
    assert {tuple(paid) for paid in stays} == {(0.0,) * 20, (1.0,) * 20}
    changes = episode(Trials(BANDIT, sure, trials=40, redraw="trial"), 0, lambda _: 0)[1]
    assert 10 < sum(changes) < 30


def test_held_out_tasks_are_never_those_of_training():
    drawn = {}
    for part in ("train", "held_out"):
        tasks, generator = TaskDistribution(CELLS["vary"], part), np.random.default_rng(0)
        drawn[part] = {json.dumps(tasks.draw(generator)) for _ in range(300)}
        assert all(part_of(json.loads(task)) == part for task in drawn[part])
    assert not drawn["train"] & drawn["held_out"]
    assert len(drawn["train"] | drawn["held_out"]) == 16
    generator = np.random.default_rng(1)
    share = np.mean([part_of(TaskDistribution(ARMS["vary"]).draw(generator)) == "held_out" for _ in range(2000)])
    assert share == pytest.approx(0.25, abs=0.04)
    told = [episode(Trials(**CELLS, part="held_out"), seed)[2]["task"] for seed in range(20)]
    assert all(part_of(task) == "held_out" for task in told)


def test_arms_pay_as_often_as_they_are_said_to():
    bandit = Bandit([0.1, 0.8])
    bandit.reset(seed=0)
    assert np.mean([bandit.step(0)[1] for _ in range(2000)]) == pytest.approx(0.1, abs=0.03)
    assert np.mean([bandit.step(1)[1] for _ in range(2000)]) == pytest.approx(0.8, abs=0.03)


def test_a_turned_grid_leads_elsewhere_and_its_goal_ends_the_trial():
    for turn in range(4):
        grid = GoalGrid(goal=2, turn=turn)  # two above the middle
        grid.reset()
        up = -turn % 4
        assert grid.step(up) == (7, -STEP_COST, False, False, {})
        assert grid.step(up) == (2, 1 - STEP_COST, True, False, {})
    wall = GoalGrid(goal=24)
    wall.reset()
    assert [wall.step(0)[0] for _ in range(3)] == [7, 2, 2]


def test_a_pole_has_the_physics_that_it_is_given_and_a_negative_force_turns_it_round():
    plain = gymnasium.make("CartPole-v1").unwrapped
    usual = Physics()
    mirrored = Physics(force_mag=-10.0)
    for env in (plain, usual, mirrored):
        env.reset(seed=4)
    for action in (1, 1, 0, 1):
        moved = plain.step(action)[0]
        np.testing.assert_array_equal(usual.step(action)[0], moved)
        np.testing.assert_array_equal(mirrored.step(1 - action)[0], moved)
    fast = {}
    for masscart in (1.0, 3.0):
        env = Physics(masscart=masscart, length=1.0)
        start = env.reset(seed=4)[0]
        fast[masscart] = env.step(1)[0][1] - start[1]
    assert fast[1.0] == pytest.approx(3.1 / 1.1 * fast[3.0], rel=0.05)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trials": 0}, "trials=0"),
        ({"part": "heldout"}, r"part: part='heldout' is unknown.*Did you mean 'held_out'"),
        ({"redraw": "trail"}, r"redraw: time='trail' is unknown.*Did you mean 'trial'"),
        ({"vary": {}}, "vary={}: nothing tells"),
        ({"vary": {"goal": 3}}, "vary.goal=3: give a list"),
        ({"vary": {"goal": []}}, r"vary.goal=\[\]: give a list"),
        ({"vary": {"goal": {"low": 2, "hi": 3}}}, "vary.goal: .*\n.*hi"),
        ({"vary": {"goal": {"low": 2, "high": 1}}}, "low=2 is above high=1"),
        ({"vary": {"goal": [12]}}, "goal=12: name one of the cells 0 to 24, other than 12"),
        ({"settings": {"turn": 1}}, "vary and settings both name turn"),
        ({"vary": {"size": [3, 5]}, "settings": {"goal": 0}}, "has the spaces"),
        ({"vary": {"goal": [0]}, "part": "train"}, "part=train: none of 1000 tasks"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, words):
    with pytest.raises(ConfigError, match=words):
        draw_often(**{**CELLS, **changes})


def draw_often(**settings):
    for seed in range(20):
        Trials(**settings).reset(seed=seed)


def test_arms_without_probabilities_are_refused():
    with pytest.raises(ConfigError, match=r"probabilities=\[0.5, 2\]"):
        Bandit([0.5, 2])
