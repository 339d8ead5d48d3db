"""One comparison for sums of floats: rounding never costs a success, and nothing that is below is paid for."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.threshold import SINGLE, Tally, as_written, reaches

AWKWARD = ([0.7, 0.2, 0.1], [0.1] * 10, [1 / 3] * 3, [0.01] * 100, [1e-5] * 100_000, [0.15, 0.35, 0.3, 0.2])


def tally(values):
    made = Tally()
    for value in values:
        made.add(value)
    return made


@pytest.mark.parametrize("parts", AWKWARD, ids=lambda parts: f"{len(parts)} of {parts[0]:.3g}")
def test_awkward_parts_of_one_reach_one_and_one_part_less_does_not(parts):
    shuffled = Random(0).sample(parts, len(parts))
    assert tally(shuffled).reaches(1.0)
    assert reaches(sum(parts[:100]), math.fsum(parts[:100]))
    assert not tally(shuffled[1:]).reaches(1.0)


@given(whole=st.integers(1, 10**6), count=st.integers(2, 50), seed=st.integers(0, 99))
def test_any_weights_of_one_reach_it(whole, count, seed):
    rng = Random(seed)
    raw = [rng.random() + 1e-3 for _ in range(count)]
    weights = [weight / sum(raw) * whole for weight in raw]
    assert reaches(sum(weights), whole)
    assert tally(weights).reaches(whole)
    assert not reaches(sum(weights) * (1 - 1e-9), whole)


@pytest.mark.parametrize(
    ("values", "needed"),
    [([-0.1, -0.2, 0.3], 0.0), ([0.3, -0.2, -0.1], 0.0), ([1e6, 0.1, -1e6], 0.1), ([-0.7, -0.2, -0.1], -1.0)],
)
def test_what_cancels_reaches_what_is_left(values, needed):
    assert tally(values).reaches(needed)


@pytest.mark.parametrize(
    ("values", "needed"),
    [([0.0], 1e-10), ([1e7, -1e7, 0.999], 1.0), ([-1e-6], 0.0), ([0.999999999], 1.0), ([1.0], math.inf)],
)
def test_what_is_truly_below_does_not_reach(values, needed):
    assert not tally(values).reaches(needed)


def test_without_a_threshold_everything_reaches():
    assert tally([-1e300]).reaches(-math.inf)


def test_a_float32_stands_for_what_is_written():
    assert as_written(np.float32(0.1)) == 0.1
    assert [as_written(value) for value in (1, 0.1, np.float64(0.1))] == [1.0, 0.1, 0.1]
    assert tally(map(as_written, np.array([0.7, 0.2, 0.1], np.float32))).reaches(1.0)
    assert reaches(float(np.float32(0.7)), 0.7, rounding=SINGLE)
    assert not reaches(0.6999, 0.7, rounding=SINGLE)
