"""Values across the sandbox's wall: they come back as they were, nothing else does, and types count."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.code.driver import show_value, write_value
from loomrl.envs.code.value import fresh, same, says

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
def test_a_value_is_written_as_its_copy_is(value):
    assert same(value, fresh(value))
    assert write_value(value) == write_value(fresh(value))
    assert "\n" not in show_value(value)


@given(VALUES, VALUES)
def test_values_are_written_alike_if_they_are_the_same_and_only_then(one, other):
    for mine, theirs in ((one, other), ([one, other], [other, one]), ({1: one, 2: other}, {2: other, 1: one})):
        exact = "-0.0" not in repr(one) + repr(other)  # 0.0 in value, and written apart
        assert says(write_value(mine).encode(), write_value(theirs).encode()) == same(mine, theirs) or not exact
        near = says(write_value(mine).encode(), write_value(theirs).encode(), tolerance=1e-6)
        assert near == same(mine, theirs, tolerance=1e-6) or not exact


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
        write_value(Any(3))


def test_floats_may_be_off_by_the_tolerance_and_no_more():
    assert same(0.1 + 0.2, 0.3, tolerance=1e-9)
    assert not same(0.1 + 0.2, 0.3)
    assert not same(1.0, 1.001, tolerance=1e-9)


@pytest.mark.parametrize(
    "text", [b"", b"f", b"i1", b"f1_", b"f1\nf1", b"f" + b"1" * 40, b"f0x1", b"f\xff", b"fnan", b"f-1"]
)
def test_text_that_writes_another_value_or_none_is_wrong(text):
    assert not says(text, b"f1.0", tolerance=1e-6)


def test_what_is_shown_is_short_ascii():
    assert show_value("\ud800é") == r"'\ud800\xe9'"
    assert len(show_value([1] * 1000)) < 200
    assert show_value(10**5000).startswith("(")
