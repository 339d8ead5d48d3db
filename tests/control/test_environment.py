import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from loomrl.config import CustomEnvironment, EnvironmentWrapper, GymnasiumEnvironment
from loomrl.control.environment import (
    Creator,
    agents_in,
    native_or_sync,
    open_environment,
    open_environments,
    refuse_other_spaces,
    snapshot,
)
from loomrl.control.play import RandomPolicy, play
from loomrl.control.shared import SharedVector
from loomrl.envs.teamwork.parallel import TeamPlaces
from loomrl.errors import ConfigError, EpisodeError

COUNTDOWN = CustomEnvironment(entry_point="tests.algorithms.control_envs:Countdown", settings={"steps": 4})
TEAM = CustomEnvironment(entry_point="loomrl.envs.teamwork.parallel:TeamParallel", settings={"steps": 5})


def test_many_environments_are_vectorised_as_they_can_be() -> None:
    native = open_environments(GymnasiumEnvironment(id="CartPole-v1"), 3, {})
    assert not isinstance(native, SyncVectorEnv)
    assert native.num_envs == 3
    one_by_one = open_environments(GymnasiumEnvironment(id="CartPole-v1", vectorization="sync"), 3, {})
    assert isinstance(one_by_one, SyncVectorEnv)
    apart = open_environments(GymnasiumEnvironment(id="Pendulum-v1", vectorization="async"), 2, {"g": 9.0})
    assert isinstance(apart, AsyncVectorEnv)
    apart.close()
    shared = open_environments(TEAM.model_copy(update={"vectorization": "sync"}), 8, TEAM.settings)
    assert isinstance(shared, SharedVector)
    assert isinstance(open_environments(TEAM, 8, TEAM.settings), TeamPlaces)
    assert (shared.num_envs, agents_in(TEAM, TEAM.settings)) == (8, 4)


def test_a_module_in_the_name_is_imported_and_makes_it_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far_away.py").write_text(
        "import gymnasium\ngymnasium.register('Far-v0', entry_point='tests.algorithms.control_envs:Countdown')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = open_environments(GymnasiumEnvironment(id="far_away:Far-v0"), 2, {"steps": 3})
    assert made.num_envs == 2
    assert "far_away" in sys.modules
    assert native_or_sync("loomrl.envs.teamwork:LoomTeam-v0") == native_or_sync("CartPole-v1") == "vector_entry_point"
    assert native_or_sync("Pendulum-v1") == native_or_sync(object) == native_or_sync("Nowhere-v0") == "sync"


def test_a_creator_makes_one_or_many_by_what_it_is_told() -> None:
    create = Creator(COUNTDOWN)
    assert isinstance(create({"steps": 3}), gymnasium.Env)
    assert create({"steps": 3, "num_envs": 2}).num_envs == 2


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (GymnasiumEnvironment(id="CartPol-v1"), "'CartPol-v1' with {} cannot be made: NameNotFound"),
        (CustomEnvironment(entry_point="nowhere:Env"), "environment.entry_point='nowhere:Env': No module named"),
        (
            GymnasiumEnvironment(id="math:Hill"),
            "NameNotFound.*A class is given as {kind: custom, entry_point: math:Hill}",
        ),
        (CustomEnvironment(entry_point="math:pi"), "'math:pi' with {} cannot be made: TypeError"),
    ],
)
def test_what_cannot_be_made_is_named(choice: GymnasiumEnvironment | CustomEnvironment, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_environment(choice, {})
    with pytest.raises(ConfigError, match=words):
        open_environments(choice, 2, {})


def test_stages_must_have_the_same_spaces() -> None:
    identity = CustomEnvironment(entry_point="tests.algorithms.control_envs:Identity")
    refuse_other_spaces(identity, [{"steps": 3}, {"steps": 5}])
    with pytest.raises(ConfigError, match="in stage 3 environment"):
        refuse_other_spaces(identity, [{}, {"steps": 5}, {"kind": "box"}])


def test_a_snapshot_changes_with_settings_and_source_only() -> None:
    assert snapshot(COUNTDOWN) == snapshot(COUNTDOWN)
    changes: list[dict[str, Any]] = [
        {"settings": {"steps": 5}},
        *({"wrappers": (clipped(high),)} for high in (2.0, 3.0)),
    ]
    found = [snapshot(COUNTDOWN.model_copy(update=each)) for each in ({}, *changes)]
    assert len({tuple(each) for each in found}) == 1
    assert len({str(each) for each in found}) == 4
    assert f"CartPole-v1@{gymnasium.__version__}" in snapshot(GymnasiumEnvironment())


def test_play_counts_whole_episodes_and_each_environment_has_its_share() -> None:
    environments = open_environments(COUNTDOWN, 3, COUNTDOWN.settings)
    returns, steps, *_ = play(RandomPolicy(), environments, 7, seed=0)
    assert returns == [4.0] * 7
    assert steps == [4] * 7


def test_play_is_repeatable_by_its_seed() -> None:
    def once(seed: int) -> list[float]:
        made = open_environments(GymnasiumEnvironment(id="Pendulum-v1"), 2, {})
        return play(RandomPolicy(), made, 2, seed=seed)[0]

    assert once(1) == once(1) != once(2)


def test_play_refuses_to_judge_by_what_is_no_number() -> None:
    choice = CustomEnvironment(entry_point="tests.algorithms.control_envs:Misbehaving")
    with pytest.raises(EpisodeError, match="gave a reward of"):
        play(RandomPolicy(), open_environments(choice, 1, {"how": "nan"}), 1, seed=0)
    assert np.isfinite(play(RandomPolicy(), open_environments(COUNTDOWN, 1, {}), 1, seed=0)[0]).all()


def clipped(high: float) -> EnvironmentWrapper:
    return EnvironmentWrapper(entry_point="gymnasium.wrappers:ClipReward", settings={"max_reward": high})


STACKED = EnvironmentWrapper(entry_point="gymnasium.wrappers:FrameStackObservation", settings={"stack_size": 4})


@pytest.mark.parametrize("vectorization", ["auto", "sync", "async"])
def test_wrappers_are_around_every_environment_the_innermost_first(vectorization: Any) -> None:
    thrice = EnvironmentWrapper(entry_point="tests.algorithms.control_envs:TripleReward")
    for wrappers, reward in (((thrice, clipped(2.0)), 2.0), ((clipped(2.0), thrice), 3.0)):
        pole = GymnasiumEnvironment(wrappers=(STACKED, *wrappers), vectorization=vectorization)
        poles = open_environments(pole, 2, {})
        assert poles.single_observation_space.shape == open_environment(pole, {}).observation_space.shape == (4, 4)
        poles.reset(seed=1)
        assert poles.step(np.array([0, 1]))[1].tolist() == [reward] * 2
        poles.close()
    custom = COUNTDOWN.model_copy(update={"wrappers": (thrice,)})
    assert play(RandomPolicy(), open_environments(custom, 2, {"steps": 4}), 2, seed=0)[0] == [12.0] * 2


def test_a_mask_is_made_of_the_info_that_wrappers_tell() -> None:
    silent = EnvironmentWrapper(entry_point="tests.algorithms.control_envs:TripleReward")
    taxi = GymnasiumEnvironment(id="Taxi-v3", info_mask=True, wrappers=(silent,))
    assert open_environment(taxi, {}).observation_space["action_mask"].n == 6


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [
        ({"entry_point": "gymnasium.wrappers:Nothing"}, "environment.wrappers='gymnasium.wrappers:Nothing': module"),
        ({"entry_point": "gymnasium.wrappers:ClipReward", "settings": {"top": 1}}, "cannot be made: TypeError: .*top"),
    ],
)
def test_a_wrapper_that_cannot_be_made_is_named(wrapper: dict[str, Any], words: str) -> None:
    choice = GymnasiumEnvironment.model_validate({"wrappers": [wrapper]})
    with pytest.raises(ConfigError, match=words):
        open_environment(choice, {})
    with pytest.raises(ConfigError, match=words):
        open_environments(choice, 2, {})
