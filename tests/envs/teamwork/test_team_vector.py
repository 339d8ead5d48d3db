"""Many teams at once: each is its own world, and each is what the single environment is."""

import pickle
import statistics

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import loomrl.envs.teamwork
from loomrl.envs.teamwork import TeamVector
from loomrl.envs.teamwork.report import steps_per_cpu_second
from loomrl.errors import ConfigError

SHORT = {"steps": 20}


def actions_for(steps, shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (steps, *shape)).astype(np.float32)


def route(env, actions_T):
    """All that an environment says while it takes these actions."""
    seen = []
    rewards = []
    truncated = []
    for actions in actions_T:
        observation, reward, terminated, is_truncated, _ = env.step(actions)
        assert not np.any(terminated)
        seen.append(observation)
        rewards.append(reward)
        truncated.append(is_truncated)
    return np.array(seen), np.array(rewards), np.array(truncated)


def assert_same(one, other):
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def test_gymnasium_makes_the_native_vector_environment():
    env = gymnasium.make_vec(loomrl.envs.teamwork.ID, num_envs=3, vectorization_mode="vector_entry_point", agents=5)
    assert isinstance(env, TeamVector)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert env.observation_space.shape == (3, 7 * 5 + 5 * 8 + 5**2)
    assert env.action_space.shape == (3, 15)
    observations, info = env.reset(seed=1)
    assert env.observation_space.contains(observations)
    assert info == {}
    env.close()


def test_every_observation_is_inside_the_space():
    env = TeamVector(16)
    env.reset(seed=0)
    seen, rewards, _ = route(env, actions_for(450, (16, 12)))
    assert seen.dtype == np.float32
    assert all(env.observation_space.contains(observation) for observation in seen)
    assert np.isfinite(rewards).all()
    assert seen.max(axis=(0, 1)).min() > 0, "a number that is always 0 tells nothing"


def test_native_vector_equals_the_one_that_gymnasium_makes_of_single_ones():
    made = {
        mode: gymnasium.make_vec(loomrl.envs.teamwork.ID, num_envs=4, vectorization_mode=mode, **SHORT)
        for mode in ("vector_entry_point", "sync")
    }
    routes = {}
    for mode, env in made.items():
        begun, _ = env.reset(seed=11)
        routes[mode] = begun, *route(env, actions_for(70, (4, 12)))  # three resets are among these steps
    assert_same(routes["vector_entry_point"], routes["sync"])
    assert routes["sync"][3].sum() == 3 * 4


def test_what_happens_in_a_world_does_not_depend_on_the_others():
    actions_T = actions_for(50, (3, 12))
    changed_T = actions_T.copy()
    changed_T[:, [0, 2]] = 1.0
    routes = []
    for actions in (actions_T, changed_T):
        env = TeamVector(3, **SHORT)
        env.reset(seed=[7, 8, 9] if actions is actions_T else [70, 8, 90])
        routes.append(route(env, actions))
    assert_same([array[:, 1] for array in routes[0]], [array[:, 1] for array in routes[1]])
    assert not np.array_equal(routes[0][1][:, 0], routes[1][1][:, 0])


def test_the_step_after_an_end_ignores_its_actions_and_begins_anew_without_reward():
    env = TeamVector(2, **SHORT)
    env.reset(seed=0)
    _, _, truncated_T = route(env, actions_for(20, (2, 12)))
    assert truncated_T.sum(0).tolist() == [1, 1]
    assert truncated_T[-1].all()
    observations, rewards, terminated, truncated, info = env.step(np.full((2, 12), np.nan))
    assert rewards.tolist() == [0.0, 0.0]
    assert not (terminated | truncated).any()
    assert all(part_M.tolist() == [0.0, 0.0] for part_M in info["parts"].values())
    assert env.teams.step == 0
    assert not np.array_equal(observations[0], observations[1])
    assert route(env, actions_for(20, (2, 12)))[2][-1].all()


def test_a_pickled_environment_goes_on_as_if_nothing_had_been():
    env = TeamVector(3, **SHORT)
    env.reset(seed=4)
    route(env, actions_for(13, (3, 12)))
    copy = pickle.loads(pickle.dumps(env))
    rest = actions_for(40, (3, 12), seed=1)
    assert_same(route(env, rest), route(copy, rest))


def test_seeds_that_are_too_few_are_refused():
    with pytest.raises(ConfigError, match=r"give 3 seeds"):
        TeamVector(3).reset(seed=[1, 2])


def test_fifty_thousand_steps_per_second_are_well_within_reach():
    """A generous bound: a busy machine gives a fraction of what docs/teamwork.md measured."""
    assert statistics.median(steps_per_cpu_second(steps=60) for _ in range(5)) > 20_000
