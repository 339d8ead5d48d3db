"""Preferences: where they are drawn, what of them is shown, and which are none."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from loomrl.config.weave import Objectives, Weave
from loomrl.control.preference import (
    Always,
    Preferred,
    Simplex,
    Steering,
    VectorRewards,
    check_preference,
    group_returns,
    lattice,
    preference_in,
    returns_in,
    with_preference,
)
from loomrl.control.space import flatten
from loomrl.errors import ConfigError, EpisodeError
from tests.algorithms.control_envs import Small
from tests.algorithms.objective_envs import WAYS, Road


class Fork(Small):
    """Three steps; every one pays 1 for the objective that is chosen, and says so in its parts as well."""

    observation_space = spaces.Box(0, 3, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, *, vector: bool = True) -> None:
        super().__init__(3, ends=True)
        if vector:
            self.reward_space = spaces.Box(0, 1, (2,))

    def _pay(self, action: Any) -> tuple[Any, dict[str, Any]]:
        paid = np.eye(2)[action]
        parts = {"left": paid[0], "right": paid[1], "other": 5.0}
        return paid if hasattr(self, "reward_space") else float(paid.sum()), {"parts": parts}


def steering(*, earns: bool = False, gamma: float = 1.0, source: Any = None) -> Steering:
    return Steering(Objectives.of(["left", "right"]), gamma, earns, source or Simplex(2))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32))
def test_a_drawn_preference_is_one_and_in_its_region(count: int, parts: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    for part in range(parts):
        drawn = Simplex(count, part, parts).draw(chance)
        check_preference(drawn, count)
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
        check_preference(given, 2)


@given(st.integers(2, 4), st.integers(2, 120))
def test_a_lattice_has_all_corners_and_no_more_than_asked_for(count: int, most: int) -> None:
    grid = lattice(count, most)
    assert len(grid) <= max(most, count)
    for row in grid:
        check_preference(row, count)
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
    shown = with_preference(space, np.array([3.0]), [0.5, 0.5], None)
    assert shown["earned"].tolist() == [0, 0]
    with pytest.raises(ConfigError, match="one objective"):
        with_preference(Fork.observation_space, np.array([3.0]), [0.5, 0.5], None)
    plain = Preferred(Fork(), steering()).observation_space
    with pytest.raises(ConfigError, match="does not look at returns"):
        with_preference(plain, np.array([3.0]), [0.5, 0.5], [1.0, 1.0])


DEEP = {"task": {"progress": 0.5, "look": {"weight": 0.5, "parts": {"style": 0.2, "calm": 0.8}}}, "harm": 1}


def test_a_leaf_has_the_product_of_the_weights_on_its_path() -> None:
    tree = Weave(objectives=DEEP).tree
    assert (tree.names, tree.leaves) == (("task", "harm"), ("progress", "style", "calm", "harm"))
    np.testing.assert_allclose(tree.shares_GH, [[0.5, 0.1, 0.4, 0], [0, 0, 0, 1]])
    assert not tree.is_flat


def test_names_alone_are_the_tree_that_changes_nothing() -> None:
    tree = Weave(objectives=("a", "b", "c")).tree
    assert tree.is_flat
    assert np.array_equal(tree.shares_GH, np.eye(3))
    assert Weave(objectives={"a": 1, "b": 1, "c": 1}).tree == tree


def test_what_is_stored_keeps_the_order_of_the_leaves() -> None:
    one, other = Weave(objectives={"t": {"a": 0.5, "b": 0.5}}), Weave(objectives={"t": {"b": 0.5, "a": 0.5}})
    assert one.model_dump(mode="json") != other.model_dump(mode="json")
    assert other.tree.leaves == ("b", "a")
    for settings in (one, other, Weave(objectives=DEEP)):
        assert Weave.parse(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("objectives", "words"),
    [
        ({"task": {"a": 0.5, "b": 0.6}}, "task: the weights of its parts sum to 1.1, and must sum to 1"),
        ({"task": {"a": 1.5, "b": -0.5}}, "task.b: a weight is a positive number, got -0.5"),
        ({"task": {"a": float("nan")}}, "task.a: a weight is a positive number, got nan"),
        ({"task": {}}, "task: the weights of its parts sum to 0"),
        ({"task": {"a": 1}, "safety": {"a": 1}}, "'a' more than once: every name once"),
        ({"task": {"task": 0.5, "b": 0.5}}, "'task' more than once"),
        ({"task": 2}, "task=2: what a preference weighs has weight 1, or parts"),
        ({"task": {"deep": {"a": 1}}}, "task.deep: a group within a group is {weight"),
        ([""], "a name, or one name with its parts, is needed"),
    ],
)
def test_what_is_no_tree_is_named(objectives: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Weave.parse({"objectives": objectives})


def test_numbers_of_a_preference_are_those_at_the_top() -> None:
    for name, setting in (("preference.weights", {"preference": {"kind": "fixed", "weights": [0.5, 0.25, 0.25]}}),):
        with pytest.raises(ConfigError, match=rf"{name}=.*: 2 are needed"):
            Weave.parse({"objectives": DEEP} | setting)
    with pytest.raises(ConfigError, match=r"preference\.least: no objective is named style; known: task, harm"):
        Weave.parse({"objectives": DEEP, "preference": {"kind": "constrained", "least": {"style": 0}}})


def test_leaves_are_paid_and_their_names_are_shown() -> None:
    tree = Objectives.of([{"task": [{"progress": 0.8}, {"style": 0.2}]}, "harm"])
    envs = VectorRewards([lambda: Preferred(Road(steps=2), Steering(tree, 0.5, True, Simplex(2)))])
    flat = flatten(envs.single_observation_space)
    assert flat(envs.reset(seed=0)[0]).shape == (1, 2 + 2 + 1)
    for expected in ([0.58, -0.1], [0.58 + 0.5 * 0.8, -0.1 - 0.5]):
        shown, rewards, *_ = envs.step(np.array([1 if expected[1] == -0.1 else 0]))
        np.testing.assert_allclose(returns_in(flat(shown), 2), [expected], rtol=1e-5)
    np.testing.assert_allclose(rewards, [WAYS["fast"]])
    np.testing.assert_allclose(group_returns(rewards, tree), [[0.8, -1.0]])


def test_a_part_that_is_not_named_is_missed() -> None:
    tree = Objectives.of([{"task": [{"progress": 0.8}, {"fun": 0.2}]}, "harm"])
    env = Preferred(Road(), Steering(tree, 1.0, False, Simplex(2)))
    env.reset(seed=0)
    with pytest.raises(EpisodeError, match=r"is named fun .*known: progress, style, harm"):
        env.step(0)
