"""Preferences: where they are drawn, what of them is shown, and which are none."""

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from loomrl.config.weave import Objectives
from loomrl.control.preference import (
    Always,
    Preferred,
    Simplex,
    Steering,
    VectorRewards,
    checked,
    lattice,
    preference_in,
    steered,
)
from loomrl.control.space import flatten
from loomrl.errors import ConfigError, EpisodeError


class Fork(gymnasium.Env[Any, Any]):
    """Three steps; every one pays 1 for the objective that is chosen, and says so in its parts as well."""

    observation_space = spaces.Box(0, 3, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, *, vector: bool = True) -> None:
        if vector:
            self.reward_space = spaces.Box(0, 1, (2,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = 3
        return np.array([3], np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._left -= 1
        paid = np.eye(2)[action]
        info = {"parts": {"left": paid[0], "right": paid[1], "other": 5.0}}
        reward = paid if hasattr(self, "reward_space") else float(paid.sum())
        return np.array([self._left], np.float32), reward, self._left == 0, False, info


def steering(*, earns: bool = False, gamma: float = 1.0, source: Any = None) -> Steering:
    return Steering(Objectives.of(["left", "right"]), gamma, earns, source or Simplex(2))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32))
def test_a_drawn_preference_is_one_and_in_its_region(count: int, parts: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    for part in range(parts):
        drawn = Simplex(count, part, parts).draw(chance)
        checked(drawn, count)
        if count > 1:  # equal shares of the simplex by the distribution of its first weight
            share = 1 - (1 - float(drawn[0])) ** (count - 1)
            assert part / parts - 1e-5 <= share <= (part + 1) / parts + 1e-5


@pytest.mark.parametrize("count", [2, 3, 4])
def test_preferences_are_drawn_evenly(count: int) -> None:
    chance = np.random.default_rng(1)
    drawn = np.array([Simplex(count).draw(chance) for _ in range(20_000)])
    np.testing.assert_allclose(drawn.mean(0), 1 / count, atol=0.01)
    expected = (count - 1) / (count**2 * (count + 1))  # of a flat Dirichlet
    np.testing.assert_allclose(drawn.var(0), expected, rtol=0.05)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([0.5, 0.6], "sum to 1.1"),
        ([1.5, -0.5], "not negative"),
        ([1.0], "2 weights are needed"),
        ([float("nan"), 1.0], "finite"),
        ("left", "2 weights are needed"),
        ([[0.5, 0.5]], "2 weights are needed"),
    ],
)
def test_what_is_no_preference_is_named(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        checked(given, 2)


@given(st.integers(2, 4), st.integers(2, 120))
def test_a_lattice_has_all_corners_and_no_more_than_asked_for(count: int, most: int) -> None:
    grid = lattice(count, most)
    assert len(grid) <= max(most, count)
    for row in grid:
        checked(row, count)
    assert {tuple(row) for row in np.eye(count).tolist()} <= {tuple(row) for row in grid.tolist()}


def test_the_preference_and_what_was_earned_are_shown_and_begin_anew() -> None:
    envs = VectorRewards([lambda: Preferred(Fork(), steering(earns=True, gamma=0.5))] * 2)
    flat = flatten(envs.single_observation_space)
    begun = flat(envs.reset(seed=3)[0])
    weights = preference_in(begun, 2, earns=True)
    assert begun[:, :2].tolist() == [[0, 0]] * 2
    assert not np.allclose(weights[0], weights[1])
    for expected in ([1.0, 0.0], [1.0, 0.5], [1.25, 0.5]):
        action = 0 if expected != [1.0, 0.5] else 1
        shown, rewards, ended, _, _ = envs.step(np.array([action, action]))
        now = flat(shown)
        assert rewards.tolist() == [np.eye(2)[action].tolist()] * 2
        assert now[:, :2].tolist() == [expected] * 2
        assert np.array_equal(preference_in(now, 2, earns=True), weights)
    assert ended.all()
    again = flat(envs.step(np.array([0, 0]))[0])
    assert again[:, :2].tolist() == [[0, 0]] * 2
    assert not np.allclose(preference_in(again, 2, earns=True), weights)
    envs.close()


def test_equal_seeds_draw_equal_preferences() -> None:
    env = Preferred(Fork(), steering())
    first, other, again = (env.reset(seed=seed)[0]["preference"] for seed in (5, 6, 5))
    assert first.tolist() == again.tolist() != other.tolist()


def test_objectives_may_be_parts_of_a_reward_that_is_a_number() -> None:
    env = Preferred(Fork(vector=False), steering(source=Always((0.25, 0.75))))
    assert env.reset(seed=0)[0]["preference"].tolist() == [0.25, 0.75]
    assert env.step(1)[1].tolist() == [0.0, 1.0]
    missing = Preferred(Fork(vector=False), Steering(Objectives.of(["left", "fun"]), 1.0, False, Simplex(2)))
    missing.reset(seed=0)
    with pytest.raises(EpisodeError, match=r"no part of the reward is named fun.*known: left, right, other"):
        missing.step(0)


def test_another_number_of_objectives_than_the_environment_pays_is_an_error() -> None:
    with pytest.raises(ConfigError, match="name 2 objectives"):
        Preferred(Fork(), Steering(Objectives.of(["left"]), 1.0, False, Simplex(1)))


def test_a_preference_is_laid_beside_an_observation() -> None:
    space = Preferred(Fork(), steering(earns=True)).observation_space
    shown = steered(space, np.array([3.0]), [0.5, 0.5], None)
    assert shown["earned"].tolist() == [0, 0]
    with pytest.raises(ConfigError, match="one objective"):
        steered(Fork.observation_space, np.array([3.0]), [0.5, 0.5], None)
    plain = Preferred(Fork(), steering()).observation_space
    with pytest.raises(ConfigError, match="does not look at returns"):
        steered(plain, np.array([3.0]), [0.5, 0.5], [1.0, 1.0])


def test_the_mean_of_one_weight_over_regions_is_that_over_all() -> None:
    chance = np.random.default_rng(2)
    means = [np.mean([Simplex(3, part, 4).draw(chance)[1] for _ in range(4000)]) for part in range(4)]
    assert math.isclose(float(np.mean(means)), 1 / 3, abs_tol=0.01)
