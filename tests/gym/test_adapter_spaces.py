"""Gymnasium's spaces as text: what is written is read back, and nothing else is read."""

import time
from contextlib import suppress
from random import Random

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from loomrl.errors import ConfigError
from loomrl.gym.adapters.space_text import (
    LONGEST,
    MalformedAction,
    count_numbers,
    format_action,
    parse,
    plain,
    sample,
    show,
    usage,
)

NAMES = ("left", "right", "up")
SPACES = [
    spaces.Discrete(5),
    spaces.Discrete(3, start=-1),
    spaces.Box(-1.0, 2.0, (2, 2), np.float32),
    spaces.Box(0, 255, (3,), np.uint8),
    spaces.Box(-np.inf, np.inf, (1,), np.float64),
    spaces.MultiDiscrete([2, 5]),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    spaces.MultiBinary(4),
    spaces.Dict({"go": spaces.Discrete(2), "push": spaces.Box(0.0, 1.0, (2,), np.float32)}),
    spaces.Tuple((spaces.Discrete(4), spaces.MultiBinary(2))),
    spaces.Text(8),
    spaces.Dict({"say": spaces.Text(5), "inner": spaces.Tuple((spaces.Discrete(2),))}),
]


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple):
        return all(same(*pair) for pair in zip(one, other, strict=True))
    return np.allclose(one, other) if isinstance(one, np.ndarray) else one == other


@given(st.sampled_from(SPACES), st.integers(0, 2**31))
def test_every_action_that_is_written_is_read_back(space, seed):
    action = sample(space, Random(seed))
    read = parse(space, format_action(space, action))
    assert space.contains(read)
    assert same(read, action)
    assert show(space, action)
    assert usage(space)


@given(st.integers(0, 2**31))
def test_names_of_actions_are_read_back_from_any_start(seed):
    space = spaces.Discrete(3, start=-1)
    action = sample(space, Random(seed))
    assert parse(space, format_action(space, action, NAMES), NAMES) == action
    assert parse(space, str(action), NAMES) == action


@given(st.sampled_from(SPACES[:-2]), st.text(max_size=60))
def test_any_other_text_is_malformed_or_an_element(space, text):
    with suppress(MalformedAction):
        assert space.contains(parse(space, text))


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (spaces.Discrete(3), "3"),
        (spaces.Discrete(3), "-1"),
        (spaces.Discrete(3), "1.0"),
        (spaces.Discrete(3), "true"),
        (spaces.Discrete(3), "１"),
        (spaces.Discrete(3), "1 2"),
        (spaces.Discrete(3), "9" * 3000),
        (spaces.Box(0.0, 1.0, (2,)), "[0.5, 1.5]"),
        (spaces.Box(0.0, 1.0, (2,)), "[0.5]"),
        (spaces.Box(0.0, 1.0, (2,)), "[0.5, NaN]"),
        (spaces.Box(-np.inf, np.inf, (1,)), "Infinity"),
        (spaces.Box(-np.inf, np.inf, (1,)), "1e999"),
        (spaces.Box(0.0, 1.0, (2,)), "[0.5, true]"),
        (spaces.Box(0.0, 1.0, (1, 1)), "[[0.5]]"),
        (spaces.Box(0, 255, (1,), np.uint8), "1.5"),
        (spaces.MultiBinary(2), "[0, 2]"),
        (spaces.Dict({"a": spaces.Discrete(2)}), '{"a": 1, "b": 1}'),
        (spaces.Tuple((spaces.Discrete(2),)), "[1, 1]"),
        (spaces.Text(3), "four"),
        (spaces.Discrete(3), "[" * LONGEST),
        (spaces.Discrete(3), " " * (LONGEST + 1)),
    ],
)
def test_what_is_outside_the_space_is_malformed(space, text):
    began = time.perf_counter()
    with pytest.raises(MalformedAction):
        parse(space, text)
    assert time.perf_counter() - began < 0.1


def test_observations_are_short_and_plain():
    space = spaces.Dict({"at": spaces.Box(-9, 9, (2,), np.float32), "holds": spaces.Discrete(3)})
    assert show(space, {"at": np.float32([0.1, 1e-9]), "holds": np.int64(2)}) == "at: [0.1, 0]\nholds: 2"
    assert count_numbers(space) == 3
    assert plain("\n\x1b[41mS\x1b[0mF\n\x1b[34;1mB\x1b[0mH\n") == "[S]F\nBH"


def test_a_space_without_a_text_is_refused_by_name():
    with pytest.raises(ConfigError, match="Graph has no text"):
        count_numbers(spaces.Graph(spaces.Discrete(2), None))


def test_a_sample_follows_from_its_randomness_and_obeys_a_mask():
    space = spaces.Discrete(9)
    mask = np.int8([0, 0, 1, 0, 0, 0, 1, 0, 0])
    first = [sample(space, Random(seed), mask) for seed in range(20)]
    assert first == [sample(space, Random(seed), mask) for seed in range(20)]
    assert {int(action) for action in first} == {2, 6}
