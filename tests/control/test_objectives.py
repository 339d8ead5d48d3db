"""Objectives as a tree: shares of weights, what is stored of them, and which trees are none."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.config.weave import Objectives, Weave
from loomrl.control.preference import Preferred, Simplex, Steering, VectorRewards, earned_in, grouped
from loomrl.control.space import flatten
from loomrl.errors import ConfigError, EpisodeError
from loomrl.evaluation.front import ParetoFront
from tests.algorithms.objective_envs import WAYS, Road

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


@given(st.lists(st.lists(st.floats(0.01, 5), min_size=1, max_size=4), min_size=1, max_size=4))
def test_weights_of_leaves_sum_to_those_of_their_names(groups: list[list[float]]) -> None:
    given_ = {
        f"g{g}": {f"l{g}{i}": weight / sum(weights) for i, weight in enumerate(weights)}
        for g, weights in enumerate(groups)
    }
    tree = Weave(objectives=given_).tree
    preference = np.full(len(groups), 1 / len(groups))
    assert (preference @ np.array(tree.shares_GH)).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("objectives", "words"),
    [
        ({"task": {"a": 0.5, "b": 0.6}}, "task: the weights of its parts sum to 1.1, and must sum to 1"),
        ({"task": {"a": 1.5, "b": -0.5}}, "task.b: a weight is a positive number, got -0.5"),
        ({"task": {"a": 1, "b": 0}}, "task.b: a weight is a positive number, got 0"),
        ({"task": {"a": float("nan")}}, "task.a: a weight is a positive number, got nan"),
        ({"task": {}}, "task: the weights of its parts sum to 0"),
        ({"task": {"a": 1}, "safety": {"a": 1}}, "'a' more than once: every name once"),
        ({"task": {"a": 1}, "a": 1}, "'a' more than once"),
        ([{"task": [{"a": 0.5}, {"a": 0.5}]}], "'a' more than once"),
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
        np.testing.assert_allclose(earned_in(flat(shown), 2), [expected], rtol=1e-5)
    np.testing.assert_allclose(rewards, [WAYS["fast"]])
    np.testing.assert_allclose(grouped(rewards, tree), [[0.8, -1.0]])


def test_a_part_that_is_not_named_is_missed() -> None:
    tree = Objectives.of([{"task": [{"progress": 0.8}, {"fun": 0.2}]}, "harm"])
    env = Preferred(Road(), Steering(tree, 1.0, False, Simplex(2)))
    env.reset(seed=0)
    with pytest.raises(EpisodeError, match=r"is named fun .*known: progress, style, harm"):
        env.step(0)


def test_a_front_of_a_tree_has_the_axes_of_its_names() -> None:
    tree = Weave(objectives=DEEP).tree
    front = ParetoFront((-5.0, -5.0))
    front.observe(grouped([[1, 0, 0, -1], [0, 1, 1, 0]], tree))
    assert front.points is not None
    np.testing.assert_allclose(front.points, [[0.5, -1], [0.5, 0]][1:])
