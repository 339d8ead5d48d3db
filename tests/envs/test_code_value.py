"""Values across the sandbox's wall: they come back as they were, nothing else does, and types count."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.code.value import Malformed, decode, encode, fresh, read_json, same, shown

KEYS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
VALUES = st.recursive(
    KEYS | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_a_value_comes_back_with_its_types(value):
    assert same(value, decode(read_json(json.dumps(encode(value)).encode())))
    assert same(value, fresh(value))


@given(VALUES, VALUES)
def test_sameness_is_symmetric_and_implies_equality(one, other):
    assert same(one, other) == same(other, one)
    if same(one, other):
        assert one == other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (1, 1.0),
        ([1], (1,)),
        ("1", 1),
        (None, False),
        ({1: 2}, {True: 2}),
        ([[1]], [[True]]),
        ({"a": 1}, {"a": 1.0}),
        ("", None),
        ([], None),
        (math.nan, math.nan),
    ],
)
def test_values_that_python_calls_equal_are_not_the_same_in_another_type(one, other):
    assert not same(one, other, tolerance=1e-6)


def test_an_object_that_equals_everything_is_not_the_same_and_cannot_be_encoded():
    class Any(int):
        def __eq__(self, other):
            return True

        __hash__ = None

    assert not same(3, Any(3))
    with pytest.raises(TypeError, match="Any was returned"):
        encode(Any(3))


def test_floats_may_be_off_by_the_tolerance_and_no_more():
    assert same(0.1 + 0.2, 0.3, tolerance=1e-9)
    assert not same(0.1 + 0.2, 0.3)
    assert not same(1.0, 1.001, tolerance=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"9" * 5000,
        b'{"x": [1]}',
        b'{"t": 5}',
        b'{"t": [], "d": []}',
        b"{}",
        b'{"d": [1]}',
        b'{"d": [[1]]}',
        b'{"d": [[[], null]]}',
        b"[" * 18 + b"]" * 18,
        b'{"value": 1}',
    ],
)
def test_text_that_encodes_no_value_is_malformed(text):
    with pytest.raises(Malformed):
        decode(read_json(text))


def test_what_is_shown_is_short_ascii():
    assert shown("\ud800é") == r"'\ud800\xe9'"
    assert len(shown([1] * 1000)) < 200
    assert shown(10**5000).startswith("(")
