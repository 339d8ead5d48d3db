"""Agents that act for themselves, through PettingZoo."""

import importlib
import pickle
import sys

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="needs PettingZoo: pip install 'loomrl[multiagent]'")
from pettingzoo.test import parallel_api_test, parallel_seed_test

from loomrl.config import CustomEnvironment
from loomrl.control.environment import open_environments
from loomrl.control.play import RandomPolicy, play
from loomrl.control.shared import SharedVector
from loomrl.envs.teamwork import TeamEnvironment, TeamParallel
from loomrl.envs.teamwork.baseline import greedy_policy
from loomrl.envs.teamwork.dynamics import Teams
from loomrl.envs.teamwork.observation import observe
from loomrl.envs.teamwork.parallel import MultiAgentTaskEnvironment
from loomrl.envs.teamwork.settings import team_settings
from loomrl.errors import ConfigError, PolicyError


class Lenient(TeamParallel):
    """A team with rules of its own."""


def step_together(shared, steps=60):
    """The same actions for a team with one policy, and for one whose agents act for themselves."""
    central = TeamEnvironment(steps=steps)
    parallel = TeamParallel(steps=steps, shared=shared)
    central.reset(seed=2)
    parallel.reset(seed=2)
    generator = np.random.default_rng(0)
    for _ in range(steps):
        actions_N3 = generator.uniform(-1, 1, (4, 3))
        one = central.step(actions_N3.ravel())
        many = parallel.step(dict(zip(parallel.agents, actions_N3, strict=True)))
        yield one, many


def open_places(kind, settings, **more):
    choice = CustomEnvironment(entry_point=f"{kind.__module__}:{kind.__qualname__}", settings=settings, **more)
    return open_environments(choice, 3 * settings["agents"], settings)


@pytest.mark.parametrize(
    ("kind", "agents"), [(TeamParallel, 2), (TeamParallel, 9), (MultiAgentTaskEnvironment, 4)], ids=["2", "9", "basic"]
)
def test_many_teams_at_once_are_those_of_one_after_the_other(kind, agents):
    settings = {"agents": agents, "steps": 15, "shared": 0.3}
    at_once, one_by_one = open_places(kind, settings), open_places(kind, settings, vectorization="sync")
    assert isinstance(one_by_one, SharedVector)
    assert not isinstance(at_once, SharedVector)
    actions = np.random.default_rng(0).uniform(-1.2, 1.2, (40, 3 * agents, 3)).astype(np.float32)
    routes = []
    for env in (at_once, one_by_one):
        route = [env.reset(seed=5)]
        route += [env.step(each) for each in actions]
        route += [env.reset()] + [env.step(each) for each in actions[:3]]
        routes.append(route)
    for ours, theirs in zip(*routes, strict=True):
        for one, other in zip(ours[:-1], theirs[:-1], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
        for name in {"absent", "is_success"} & theirs[-1].keys():
            np.testing.assert_array_equal(ours[-1][name], theirs[-1][name])
        assert ("is_success" in ours[-1]) == ("is_success" in theirs[-1])
    parts = sum(part for name, part in routes[1][7][-1]["parts"].items() if not name.startswith("_"))
    np.testing.assert_allclose(routes[0][7][-1]["credit"], parts)


def test_a_class_made_of_a_team_is_stepped_as_it_says_itself():
    places = open_places(Lenient, {"agents": 2})
    assert isinstance(places, SharedVector)
    assert isinstance(places.worlds[0], Lenient)


def test_teams_at_once_are_cut_together():
    told = play(RandomPolicy(), open_places(TeamParallel, {"agents": 2}), 12, seed=0, max_steps=7)
    assert (told.lengths, told.cut) == ([7] * 12, 12)


def test_environment_passes_the_tests_of_pettingzoo():
    parallel_api_test(TeamParallel(), num_cycles=500)
    parallel_seed_test(TeamParallel, num_cycles=250)


def test_agents_see_and_do_what_a_central_policy_sees_and_does():
    for (observation, *_), (seen, *_) in step_together(shared=0.5):
        np.testing.assert_array_equal(seen["agent_0"], observation)


@pytest.mark.parametrize("shared", [0.0, 0.3, 1.0])
def test_rewards_of_agents_add_up_to_that_of_the_team(shared):
    for (_, reward, *_), (_, rewards, *_) in step_together(shared):
        assert sum(rewards.values()) == pytest.approx(reward)


def test_a_share_of_nothing_pays_agents_what_they_earned_and_a_share_of_all_pays_them_alike():
    for (*_, info), (_, rewards, *_, infos) in step_together(shared=0.0):
        assert list(rewards.values()) == pytest.approx(info["credit"].tolist())
        assert [sum(infos[name]["parts"].values()) for name in infos] == pytest.approx(list(rewards.values()))
    for (_, reward, *_), (_, rewards, *_) in step_together(shared=1.0):
        assert list(rewards.values()) == pytest.approx([reward / 4] * 4)


def test_all_agents_are_done_at_the_limit():
    env = TeamParallel(steps=2)
    env.reset(seed=0)
    actions = {name: np.zeros(3) for name in env.agents}
    assert not any(env.step(actions)[3].values())
    assert all(env.step(actions)[3].values())
    assert env.agents == []
    with pytest.raises(PolicyError, match=r"call reset\(\)"):
        env.step(actions)


def test_a_missing_action_is_named():
    env = TeamParallel(agents=3)
    env.reset(seed=0)
    with pytest.raises(PolicyError, match="no action for agent_1"):
        env.step({name: np.zeros(3) for name in ("agent_0", "agent_2")})


def test_a_share_beyond_one_is_refused():
    with pytest.raises(ConfigError, match="shared=2"):
        TeamParallel(shared=2)


def test_it_can_be_pickled_in_the_middle_of_an_episode():
    env = TeamParallel()
    env.reset(seed=0)
    actions = {name: np.ones(3) for name in env.agents}
    env.step(actions)
    copy = pickle.loads(pickle.dumps(env))
    np.testing.assert_array_equal(env.state(), copy.state())
    assert env.step(actions)[1] == copy.step(actions)[1]


def test_without_pettingzoo_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "loomrl.envs.teamwork.parallel")
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[multiagent\]'"):
        importlib.import_module("loomrl.envs.teamwork.parallel")


def test_the_basic_form_has_three_waiting_tasks_seven_numbers_an_agent_and_five_a_slot():
    environment = MultiAgentTaskEnvironment(agents=3, max_tasks=5)
    assert environment.observation_space("agent_0").shape == (7 * 3 + 5 * 5,)
    for seed in range(50):
        seen, _ = environment.reset(seed=seed)
        slots = seen["agent_1"][21:].reshape(5, 5)
        assert slots[:, 3].tolist() == [1, 1, 1, 0, 0], "exists"
        assert not slots[:, 4].any(), "assigned"
        assert (slots[:3, :3] > 0).all(), "complexity, priority, deadline"
    teams = environment._teams
    agents = seen["agent_1"][:21].reshape(3, 7)
    np.testing.assert_allclose(agents[0, 5:], teams.chance.expertise_MNS[0, 1], atol=1e-6)
    np.testing.assert_allclose(agents[2, 5:], teams.chance.expertise_MNS[0, 0], atol=1e-6)
    take = {name: np.array([1.0, 0.5, -1.0], np.float32) for name in environment.possible_agents}
    for step in range(1, 41):
        seen, *_ = environment.step(take)
        agents = seen["agent_0"][:21].reshape(3, 7)
        slots = seen["agent_0"][21:].reshape(5, 5)
        np.testing.assert_allclose(agents[:, 2], teams.completed_MN[0] / step, atol=1e-6)
        assert ((agents[:, 1] > 0) == (teams.held_MN[0] >= 0)).all()
        assert slots[:, 4].sum() == (teams.held_MN[0] >= 0).sum()
    assert teams.completed_MN.sum() == teams.tally.completed_M.sum() > 0
    parallel_api_test(MultiAgentTaskEnvironment(steps=20), num_cycles=30)


def test_what_a_basic_view_cannot_show_is_refused():
    with pytest.raises(ConfigError, match="two skills, and skills=3"):
        TeamParallel(view="basic")
    with pytest.raises(ConfigError, match="waiting=9 tasks do not fit"):
        TeamParallel(waiting=9)
    settings = team_settings(**MultiAgentTaskEnvironment.form)
    seen = observe(Teams(settings, [np.random.default_rng(0)]))
    with pytest.raises(ConfigError, match="Take view=full"):
        greedy_policy(settings)(seen)
