"""Vector environments of one's own are taken as they are, whenever their ended episodes begin anew."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from loomrl.algorithms.control.probe import probe
from loomrl.config import CustomEnvironment, EnvironmentWrapper, GymnasiumEnvironment
from loomrl.control.environment import open_environment, open_environments, snapshot
from loomrl.control.play import RandomPolicy, play
from loomrl.errors import ConfigError
from tests.control.vector_envs import Clocks

MODES = ("NextStep", "SameStep", "Disabled")


def clocks(name: str = "Clocks", **settings: Any) -> CustomEnvironment:
    return CustomEnvironment(entry_point=f"tests.control.vector_envs:{name}", settings=settings)


@pytest.mark.parametrize("name", ["Clocks", "make_clocks"])
def test_a_vector_environment_is_made_once_for_all_places(name: str) -> None:
    choice = clocks(name, steps=4)
    made = open_environments(choice, 5, choice.settings)
    assert isinstance(made, Clocks)
    assert made.num_envs == 5


@pytest.mark.parametrize("mode", MODES)
def test_evaluations_count_the_same_episodes_in_every_mode(mode: str) -> None:
    choice = clocks(mode=mode)
    played = play(RandomPolicy(), open_environments(choice, 3, choice.settings), 9, seed=0)
    assert sorted(played.lengths) == [3, 3, 3, 4, 4, 4, 5, 5, 5]
    assert played.returns == played.lengths


@pytest.mark.parametrize("mode", MODES)
def test_one_place_is_an_environment_to_wrap_and_to_run_in_turns(mode: str) -> None:
    choice = clocks(mode=mode)
    one = open_environment(choice, choice.settings)
    assert isinstance(one, gymnasium.Env)
    for steps in (3, 3):  # a reset begins all over
        assert one.reset(seed=1)[0].tolist() == [0, 0]
        told = [one.step(np.int64(0)) for _ in range(steps)]
        assert [(*seen.tolist(), paid, truncated) for seen, paid, _, truncated, _ in told][-1] == (steps, 0, 1, True)
    twice = EnvironmentWrapper(entry_point="tests.algorithms.control_envs:TripleReward")
    wrapped = choice.model_copy(update={"wrappers": (twice,)})
    in_turns = open_environments(wrapped, 2, wrapped.settings)
    assert isinstance(in_turns, SyncVectorEnv)
    assert play(RandomPolicy(), in_turns, 2, seed=0).returns == [9, 9]
    assert snapshot(choice) != snapshot(clocks(mode=mode, steps=9))


def test_a_name_with_a_vector_form_alone_is_enough() -> None:
    gymnasium.register("OnlyClocks-v0", vector_entry_point="tests.control.vector_envs:Clocks")
    choice = GymnasiumEnvironment(id="OnlyClocks-v0")
    assert isinstance(open_environments(choice, 2, {}), Clocks)
    assert open_environment(choice, {}).reset()[0].tolist() == [0, 0]
    probe("OnlyClocks-v0", {})  # as a PPOConfig().environment("OnlyClocks-v0") does
    in_turns = choice.model_copy(update={"vectorization": "sync"})
    assert isinstance(open_environments(in_turns, 2, {}), SyncVectorEnv)


def test_one_that_does_not_say_when_episodes_begin_anew_is_refused() -> None:
    choice = clocks(mode=None)
    with pytest.raises(ConfigError, match=r"Clocks.metadata has autoreset_mode=None.*Known: AutoresetMode.NEXT_STEP"):
        open_environments(choice, 2, choice.settings)
