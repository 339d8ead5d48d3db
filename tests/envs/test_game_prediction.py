"""Predictions of the opponent's reply: what can be read, and that honesty pays best."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.game.play import log_score, read_prediction

MOVES = ("a1", "b1", "c1", "2 take 3")


def test_moves_with_probabilities_are_read():
    assert read_prediction("a1 0.6, 2 Take  3 .25,b1 0") == {"a1": 0.6, "2 take 3": 0.25, "b1": 0.0}


@pytest.mark.parametrize(
    "text",
    ["", "a1", "a1 0.6 b1 0.4", "a1 0.6, b1 0.5", "a1 2", "a1 -1", "a1 nan", "a1 1e-3", "a1 0.5, a1 0.5", "a1 ٠.٥",
     "a1 0.5,", "1.0", "a1 " * 5000],
)  # fmt: skip
def test_what_is_no_distribution_is_no_prediction(text):
    assert read_prediction(text) is None


def test_certainty_earns_most_ignorance_nothing_and_error_costs():
    assert log_score({"a1": 1.0}, MOVES, "a1") == 1.0
    assert log_score(dict.fromkeys(MOVES, 0.25), MOVES, "a1") == pytest.approx(0)
    assert log_score({"a1": 1.0}, MOVES, "b1") == -1.0


def test_what_is_left_over_goes_to_the_moves_that_are_not_named():
    spelled_out = dict(zip(MOVES, (0.4, 0.2, 0.2, 0.2), strict=True))
    assert log_score({"a1": 0.4}, MOVES, "b1") == pytest.approx(log_score(spelled_out, MOVES, "b1"))


def test_probability_on_moves_that_cannot_be_played_is_lost():
    assert log_score({"z9": 1.0}, MOVES, "a1") == -1.0


weights = st.lists(st.floats(0.05, 1), min_size=4, max_size=4)


@given(weights, weights)
def test_no_prediction_earns_more_than_the_true_chances(true, told):
    chances = {move: weight / sum(true) for move, weight in zip(MOVES, true, strict=True)}
    other = {move: weight / sum(told) for move, weight in zip(MOVES, told, strict=True)}

    def expected(prediction):
        return sum(chance * log_score(prediction, MOVES, move) for move, chance in chances.items())

    if min(chances.values()) > 1 / len(MOVES) ** 2 and min(other.values()) > 1 / len(MOVES) ** 2:
        assert expected(other) <= expected(chances) + 1e-9
    assert math.isfinite(expected(other))
