"""LoomRL environments as Gymnasium's: names, text in and out, and many at a time."""

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

import loomrl.gym
import loomrl.gym.facade as facade
from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.namespace import expose, read_version
from loomrl.gym.registry import register_environment
from loomrl.types import Message

ID = "loomrl/Guess-v1"


@pytest.fixture(scope="module", autouse=True)
def registered():
    register_environment(name="Guess", entry_point="sample_envs:GuessEnvironment", version="1.2.0")


@pytest.fixture
def env():
    made = gymnasium.make(ID, max_steps=3)
    yield made
    made.close()


@pytest.fixture
def vector():
    made = gymnasium.make_vec(ID, num_envs=3, vectorization_mode="vector_entry_point", max_steps=2)
    yield made
    made.close()


def oracle(made):
    return made.unwrapped._episodes._guarded.environment.oracle()


def test_gymnasiums_own_checker_passes_without_a_warning(env, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_an_episode_through_gymnasium_earns_what_the_environment_pays(env):
    observation, info = env.reset(seed=3)
    assert "whole number" in observation
    assert len(info["task"]) == 64
    observation, reward, terminated, truncated, info = env.step(oracle(env))
    assert (observation, reward, terminated, truncated) == ("", pytest.approx(1.1), True, False)
    assert info == {"success": 1.0, "reward_parts": {"correct": 1.0, "format": 0.1}}


def test_the_episode_limit_truncates(env):
    env.reset(seed=3)
    ends = [env.step("123456789")[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]


def test_the_same_seed_gives_the_same_tasks_now_and_later(env):
    def tasks(seed):
        return [env.reset(seed=seed)[1]["task"], env.reset()[1]["task"], env.reset()[1]["task"]]

    assert tasks(7) == tasks(7)
    assert len(set(tasks(7))) == 3
    assert tasks(7) != tasks(8)


def test_reset_options_choose_family_and_level(env):
    observation, _ = env.reset(seed=1, options={"family": "below", "level": 10})
    assert "below 0, 5000 away" in observation
    with pytest.raises(ConfigError, match="Did you mean 'level'"):
        env.reset(options={"levle": 3})


def test_an_action_that_is_no_text_is_refused_with_a_remedy(env):
    env.reset(seed=1)
    with pytest.raises(TypeError, match="take text"):
        env.step(5)


def test_unknown_settings_are_refused_when_the_environment_is_made():
    with pytest.raises(ConfigError, match="max_steps"):
        gymnasium.make(ID, max_stepz=3)


def test_stepping_after_the_end_is_an_error(env):
    env.reset(seed=1)
    env.step(oracle(env))
    with pytest.raises(EpisodeError, match="reset"):
        env.step("1")


async def test_it_works_inside_a_running_event_loop(env):
    assert asyncio.get_running_loop()
    assert env.reset(seed=1)[0]


def test_closing_ends_the_loop_thread_and_so_does_forgetting():
    def threads():
        return sum(thread.name == "loomrl-loop" for thread in threading.enumerate())

    gc.collect()
    before = threads()
    closed, forgotten = gymnasium.make(ID), gymnasium.make(ID)
    assert threads() == before + 2
    closed.close()
    closed.close()
    del forgotten
    gc.collect()
    assert threads() == before


def test_closing_releases_what_the_environment_holds(env):
    closed = []

    async def close():
        closed.append(True)

    env.unwrapped._episodes._guarded.environment.close = close
    env.close()
    assert closed == [True]


def test_a_vector_that_cannot_be_made_leaves_nothing_to_clean_up():
    with pytest.raises(ConfigError, match="max_steps"):
        gymnasium.make_vec(ID, num_envs=2, max_stepz=3)
    gc.collect()


def test_a_program_that_closes_nothing_ends_without_complaint():
    script = """
import gymnasium
from loomrl.gym import register_environment
register_environment(name="Guess", entry_point="sample_envs:GuessEnvironment", version="1.2.0")
single, vector = gymnasium.make("loomrl/Guess-v1"), gymnasium.make_vec("loomrl/Guess-v1", num_envs=2)
single.reset()
vector.reset()
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_rendering_shows_the_latest_observation():
    env = gymnasium.make(ID, render_mode="ansi")
    observation, _ = env.reset(seed=1)
    assert env.render() == observation
    env.close()


def test_vector_ends_and_rewards_belong_to_their_episodes(vector):
    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    vector.reset(seed=5)
    solution = vector._episodes[1]._guarded.environment.oracle()
    observations, rewards, terminated, truncated, infos = vector.step(["x", solution, "x"])
    assert rewards.tolist() == [0.0, pytest.approx(1.1), 0.0]
    assert terminated.tolist() == [False, True, False]
    assert infos["success"].tolist() == [0.0, 1.0, 0.0]
    assert infos["reward_parts"]["format"].tolist() == [0.0, pytest.approx(0.1), 0.0]
    assert infos["reward_parts"]["_format"].tolist() == [False, True, False]
    observations, rewards, terminated, truncated, infos = vector.step(["x", "ignored", "x"])
    assert "whole number" in observations[1]
    assert (rewards[1], terminated[1]) == (0.0, False)
    assert truncated.tolist() == [True, False, True]
    assert terminated.dtype == truncated.dtype == np.bool_


@pytest.mark.parametrize("actions", ["xyz", ["x"]])
def test_vector_refuses_a_wrong_number_of_actions(vector, actions):
    vector.reset(seed=1)
    with pytest.raises(ValueError, match="3 texts"):
        vector.step(actions)


def test_gymnasiums_shared_memory_is_refused_rather_than_returning_zeros():
    with pytest.raises(ValueError, match="shared_memory=False") as caught:
        gymnasium.make_vec(ID, num_envs=2, vectorization_mode="async")
    assert "vector_entry_point" in str(caught.value.__cause__)


def test_gymnasiums_synchronous_vector_agrees_with_ours(vector):
    theirs = gymnasium.make_vec(ID, num_envs=3, vectorization_mode="sync", max_steps=2)
    assert theirs.reset(seed=5)[0] == vector.reset(seed=5)[0]
    for _ in range(4):
        ours, expected = vector.step(["1", "2", "3"]), theirs.step(["1", "2", "3"])
        assert ours[0] == expected[0]
        assert [array.tolist() for array in ours[1:4]] == [array.tolist() for array in expected[1:4]]
    theirs.close()


@given(st.lists(st.text(), max_size=4))
def test_any_observation_becomes_text_of_the_space_and_known_text_stays(texts):
    text = facade.as_text(tuple(Message("user", content) for content in texts))
    assert text in facade.text_space(facade.OBSERVATION_LENGTH)
    joined = "\n\n".join(texts)
    assert text == joined or not set(joined) <= set(facade.CHARSET)


def test_a_huge_observation_keeps_both_ends_and_says_what_is_missing():
    text = facade.as_text((Message("user", "a" * 50_000 + "b" * 50_000),))
    assert text in facade.text_space(facade.OBSERVATION_LENGTH)
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert "characters and more left out" in text


@pytest.mark.parametrize("name", loomrl.gym.__all__)
def test_every_public_name_can_be_fetched(name):
    assert getattr(loomrl.gym, name).__name__ == name


def test_a_name_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(AttributeError, match="LoomRLGym"):
        loomrl.gym.Nonsense  # noqa: B018


def test_what_is_heavy_is_loaded_only_where_it_is_used_and_what_is_announced_is_known_to_gymnasium():
    light = "loomrl.gym.base, loomrl.gym.adapters.reasoning_gym, loomrl.gym.sandbox, loomrl.envs.math, loomrl.envs.game"
    light += ", loomrl.envs.language, loomrl.envs.dialogue, gymnasium"
    heavy = ["torch", "ray", "sqlalchemy", "httpx", "sympy", "math_verify", "pyspiel", "babel", "reasoning_gym"]
    heavy += ["loomrl.inference", "loomrl.gym.sandbox.bubblewrap", "loomrl.gym.sandbox.gvisor"]
    loaded = f"sorted({{*{heavy}}} & {{*sys.modules}})"
    script = f"import sys, {light}; print({loaded}, 'loomrl/Math-v1' in gymnasium.registry)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[] True\n"


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").write_text("from shop.deep.cart import Cart as Basket\nraise RuntimeError")
    (tmp_path / "shop" / "deep").mkdir()
    (tmp_path / "shop" / "deep" / "cart.py").write_text('class Cart:\n    name = "Cart"\n    version: str = "3.4.5"\n')
    (tmp_path / "single.py").write_text('class Plain:\n    version = "2.0"\nclass Bare:\n    pass\n')
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize(
    ("entry_point", "version"),
    [
        ("shop.deep.cart:Cart", "3.4.5"),
        ("shop:Basket", "3.4.5"),
        ("single:Plain", "2.0"),
        ("single:Bare", None),
        ("single:Missing", None),
        ("no_such_package.module:Class", None),
    ],
)
def test_a_version_is_read_without_importing_anything(package, entry_point, version):
    assert read_version(entry_point) == version
    assert "shop" not in sys.modules


def test_exposing_twice_keeps_the_first():
    first = expose("Twice", "4.1.0")
    spec = gymnasium.spec(first)
    assert (first, expose("Twice", "4.2.0")) == ("loomrl/Twice-v4", "loomrl/Twice-v4")
    assert gymnasium.spec(first) is spec
