"""Spaces as networks see them, against Gymnasium's own flattening."""

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from loomrl.canonical import canonical_json
from loomrl.control.space import acts, flatten, seen, space_from_json, space_to_json
from loomrl.errors import ConfigError

OBSERVED = {
    "box": spaces.Box(-1, 1, (2, 3)),
    "bytes": spaces.Box(0, 255, (5,), np.uint8),
    "discrete": spaces.Discrete(4, start=2),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "dict": spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Dict({"c": spaces.Box(-1, 1, (2,))})}),
    "tuple": spaces.Tuple([spaces.Box(-1, 1, (1,)), spaces.MultiDiscrete([2, 2])]),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_batches_are_flattened_as_gymnasium_flattens_one(name: str) -> None:
    space = OBSERVED[name]
    space.seed(4)
    ones = [space.sample() for _ in range(6)]
    batch = concatenate(space, ones, create_empty_array(space, 6))
    assert batch_space(space, 6).contains(batch)
    flat = flatten(space)(batch)
    expected = np.stack([spaces.flatten(space, one) for one in ones]).astype(np.float32)
    assert flat.dtype == np.float32
    assert flat.shape == (6, *seen(space).shape)
    np.testing.assert_array_equal(flat, expected)


def test_a_picture_stays_one() -> None:
    space = spaces.Box(0, 255, (8, 9, 3), np.uint8)
    assert (seen(space).kind, seen(space).shape) == ("pixels", (8, 9, 3))
    picture = space.sample()[None]
    assert flatten(space)(picture) is picture


def test_a_space_that_no_network_takes_is_named_with_the_place_where_it_is() -> None:
    space = spaces.Dict({"a": spaces.Box(0, 1), "words": spaces.Text(5)})
    with pytest.raises(ConfigError, match=r"observation space\['words'\] is Text.*Known: Box"):
        seen(space)


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Box(0, 9, (2,), np.int64), spaces.Tuple([spaces.Discrete(2)])]
)
def test_an_action_space_that_no_policy_has_is_refused(space: spaces.Space) -> None:  # type: ignore[type-arg]
    with pytest.raises(ConfigError, match=r"not supported. Known: Discrete"):
        acts(space)


Space = spaces.Space[Any]
WHOLE = [np.int8, np.uint8, np.int32, np.int64]
REAL = [np.float16, np.float32, np.float64]


@st.composite
def boxes(draw: st.DrawFn) -> Space:
    dtype = draw(st.sampled_from([*WHOLE, *REAL, np.bool_]))
    shape = draw(st_np.array_shapes(min_dims=0, max_dims=3, max_side=3))
    unbounded = st.booleans() if np.issubdtype(dtype, np.signedinteger) else st.just(False)
    values = st_np.from_dtype(np.dtype(dtype), allow_nan=False)
    if draw(st.booleans()):
        values = st.just(draw(values))
    ends = np.sort(draw(st_np.arrays(dtype, (2, *shape), elements=values)), axis=0)
    low, high = ends[0, ...], ends[1, ...]
    if np.issubdtype(dtype, np.floating):
        low[low == np.inf] = 0
        high[high == -np.inf] = 0
    return spaces.Box(-np.inf if draw(unbounded) else low, np.inf if draw(unbounded) else high, shape, dtype)


@st.composite
def choices(draw: st.DrawFn) -> Space:
    dtype = draw(st.sampled_from(WHOLE))
    starts = st.integers(0 if dtype is np.uint8 else -9, 9)
    if draw(st.booleans()):
        return spaces.Discrete(draw(st.integers(1, 99)), start=draw(starts), dtype=dtype)
    shape = draw(st_np.array_shapes(max_dims=2, max_side=3))
    numbers = draw(st_np.arrays(dtype, shape, elements=st.integers(1, 99)))
    return spaces.MultiDiscrete(numbers, dtype, start=draw(st_np.arrays(dtype, shape, elements=starts)))


SIZES = st.integers(1, 5)
BITS = st.builds(spaces.MultiBinary, SIZES | st.lists(SIZES, min_size=1, max_size=3))
NAMES = st.text(max_size=4) | st.integers(-3, 3)
SPACES = st.recursive(
    boxes() | choices() | BITS,
    lambda parts: (
        st.builds(
            spaces.Dict, st.lists(st.tuples(NAMES, parts), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
        )
        | st.builds(spaces.Tuple, st.lists(parts, min_size=1, max_size=3))
    ),
    max_leaves=5,
)


def same(one: Space, other: Space) -> bool:
    """Equal to the last bit and in the same order; Gymnasium's own equality is only near."""
    if type(one) is not type(other) or one.dtype != other.dtype or one.shape != other.shape:
        return False
    if isinstance(one, spaces.Dict):
        return list(one.spaces) == list(other.spaces) and all(same(one[name], other[name]) for name in one.spaces)
    if isinstance(one, spaces.Tuple):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, spaces.Box):
        names = ("low", "high", "bounded_below", "bounded_above")
        return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)


@pytest.mark.filterwarnings("ignore:.*precision lowered:UserWarning")
@given(SPACES)
def test_every_space_comes_back_as_it_was(space: Space) -> None:
    text = canonical_json(space_to_json(space))
    again = space_from_json(json.loads(text))
    assert same(space, again)
    assert canonical_json(space_to_json(again)) == text


def test_a_picture_takes_two_bounds_and_not_one_for_every_pixel() -> None:
    assert len(canonical_json(space_to_json(spaces.Box(0, 255, (84, 84, 4), np.uint8)))) < 100


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Box(0, 1, (2,), np.longdouble)], ids=repr)
def test_a_space_that_cannot_be_written_is_named(space: Space) -> None:
    with pytest.raises(ConfigError, match=r"(Text|Box)\(.*cannot be written as JSON\. Known: Box, Dict"):
        space_to_json(spaces.Tuple([space]))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"kind": "Boks"}, "Did you mean 'Box'"),
        ({"kind": "Discrete", "n": 2}, "KeyError: 'start'"),
        ({"kind": "Discrete", "n": 0, "start": 0, "dtype": "int64"}, "positive"),
        ({"kind": "Box", "shape": [3], "dtype": "float32", "low": [0, 1], "high": 1}, "ValueError"),
        ({"kind": "Box", "shape": [1], "dtype": "uint8", "low": 0, "high": 300}, "OverflowError"),
        ([], "TypeError"),
    ],
)
def test_what_is_no_space_is_refused(value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        space_from_json(value)
