"""Logged episodes: what was recorded is what is read, in the form that networks take."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from loomrl.control.logged import (
    Logged,
    Recorded,
    action_reader,
    deviation_of_returns,
    digest,
    read_minari,
    refuse_name,
    steps_of,
    write_minari,
)
from loomrl.control.space import acts, translator
from loomrl.errors import ConfigError, DataError
from tests.algorithms.control_envs import ACTIONS
from tests.control.logged_support import identity_data, minari_folder, recorded

__all__ = ["minari_folder"]

LINE = spaces.Box(-1, 1, (1,))


def logged(rewards: list[float], *, terminated: bool = True, seed: int = 0) -> Logged:
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(len(rewards) + 1, 2)).astype(np.float32)
    actions = np.arange(len(rewards))
    return Logged(seen=seen, actions=actions, rewards_T=np.array(rewards, np.float32), terminated=terminated)


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_of_the_environment_are_those_that_a_policy_would_have_sampled(kind: str) -> None:
    space = ACTIONS[kind]
    space.seed(0)
    given = np.stack([np.asarray(space.sample()) for _ in range(20)])
    assert np.array_equal(translator(acts(space))(action_reader(acts(space))(given)), given)


@pytest.mark.parametrize("kind", ACTIONS)
def test_what_is_written_is_read(kind: str, minari_folder: Path) -> None:
    made = identity_data("identity/random-v0", kind, episodes=3)
    space = ACTIONS[kind]
    found = read_minari("identity/random-v0", space, space)
    assert [len(one) for one in found] == [8, 8, 8]
    for one, there in zip(made, found, strict=True):
        assert np.array_equal(translator(acts(space))(there.actions), np.stack(one.actions))
        assert there.rewards_T == pytest.approx(one.rewards)
        assert not there.terminated
        assert len(there.seen) == 9


def test_probabilities_belong_to_their_steps(minari_folder: Path) -> None:
    seen = [np.zeros(1, np.float32)] * 3
    one = Recorded(
        observations=seen, actions=[0, 1], rewards=[1.0, 2.0], terminated=True, logprobs=np.array([-1.0, -2.0]), seed=0
    )
    write_minari("line/two-v0", [one], None, LINE, spaces.Discrete(2), made_by="a test")
    (found,) = read_minari("line/two-v0", LINE, spaces.Discrete(2))
    assert found.logprobs_T is not None
    assert found.logprobs_T.tolist() == [-1.0, -2.0]
    assert found.terminated


def test_observations_with_parts_are_flattened(minari_folder: Path) -> None:
    space = spaces.Dict({"a": LINE, "b": spaces.Discrete(2)})
    seen: list[Any] = [{"a": np.array([0.5], np.float32), "b": np.int64(1)}] * 3
    write_minari(
        "parts/two-v0", [recorded(seen, [0, 1], [0.0, 0.0])], None, space, spaces.Discrete(2), made_by="a test"
    )
    (found,) = read_minari("parts/two-v0", space, spaces.Discrete(2))
    assert found.seen.tolist() == [[0.5, 0.0, 1.0]] * 3


def test_a_data_set_of_other_spaces_or_of_no_such_name_is_refused(minari_folder: Path) -> None:
    identity_data("identity/random-v0", "discrete", episodes=1)
    with pytest.raises(ConfigError, match="has observations of Discrete"):
        read_minari("identity/random-v0", LINE, ACTIONS["discrete"])
    with pytest.raises(DataError, match=r"identity/random-v0. Did you mean .*loomrl data record"):
        read_minari("identity/random-v1", LINE, LINE)
    with pytest.raises(ConfigError, match="there is a Minari data set 'identity/random-v0' already"):
        refuse_name("identity/random-v0")
    with pytest.raises(ConfigError, match="ends with a version"):
        refuse_name("identity/random")


def test_the_value_after_an_end_counts_only_if_the_episode_was_cut_short() -> None:
    steps = steps_of([logged([1.0, 2.0]), logged([3.0], terminated=False)], gamma=0.5)
    assert steps["ahead"].tolist() == [0.5, 0.0, 0.5]
    assert steps["rewards"].tolist() == [1.0, 2.0, 3.0]
    assert len(steps["seen"]) == len(steps["after"]) == 3


def test_the_scale_of_rewards_is_that_of_discounted_sums() -> None:
    found = deviation_of_returns([logged([1.0, 1.0]), logged([0.0])], gamma=0.5)
    assert found == pytest.approx(np.std([1.0, 1.5, 0.0]))


def test_another_reward_is_other_data() -> None:
    assert digest([logged([1.0])]) == digest([logged([1.0])])
    assert digest([logged([1.0])]) != digest([logged([2.0])])
    assert digest([logged([1.0])]) != digest([logged([1.0], terminated=False)])
