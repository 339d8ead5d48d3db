"""Returns of control policies: intervals that hold what they say, and reports that are JSON."""

import json
import math
import random
from statistics import stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.evaluation.returns import judge_returns
from loomrl.evaluation.statistics import mean_interval

REWARDS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)


def test_interval_of_a_mean_is_students() -> None:
    interval = mean_interval([4.0, 6.0, 8.0, 10.0, 12.0])  # t(4) at 0.975 is 2.776, standard error is sqrt(2)
    assert interval.mean == 8.0
    assert (interval.low, interval.high) == (pytest.approx(8 - 3.926, abs=1e-3), pytest.approx(8 + 3.926, abs=1e-3))


def test_interval_of_a_mean_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(0)
    covered = 0
    for _ in range(2000):
        interval = mean_interval([rng.gauss(-150, 40) for _ in range(5)])
        covered += interval.low <= -150 <= interval.high
    assert 0.935 < covered / 2000 < 0.965


@given(REWARDS, st.randoms())
def test_interval_contains_the_mean_and_moves_with_the_values(rewards: list[float], rng: random.Random) -> None:
    interval = mean_interval(rewards)
    assert interval.mean is not None
    assert interval.low <= interval.mean <= interval.high
    shuffled = rng.sample(rewards, len(rewards))
    assert mean_interval(shuffled) == interval


def test_more_confidence_is_a_wider_interval() -> None:
    rewards = [1.0, 2.0, 4.0]
    assert mean_interval(rewards, confidence=0.99).high > mean_interval(rewards, confidence=0.9).high


def test_one_episode_has_a_mean_and_no_bounds() -> None:
    interval = mean_interval([21.0])
    assert (interval.mean, interval.low, interval.high, interval.count) == (21.0, -math.inf, math.inf, 1)
    told = judge_returns("p", [21.0], [21]).as_dict()["overall"]
    assert told["reward"] == {"mean": 21.0, "low": None, "high": None, "count": 1}
    assert told["deviation"] is None


def test_without_an_episode_nothing_is_claimed() -> None:
    overall = judge_returns("p", [], []).overall
    assert (overall.reward.mean, overall.deviation, overall.least, overall.greatest, overall.steps) == (None,) * 5
    assert overall.episodes == 0


def test_report_tells_spread_and_length_and_is_json() -> None:
    rewards = [10.0, 30.0, 20.0]
    report = judge_returns("run/1", rewards, [5, 15, 10], confidence=0.9)
    told = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert (told["policy"], told["confidence"]) == ("run/1", 0.9)
    overall = told["overall"]
    assert overall["reward"]["mean"] == 20.0
    assert overall["deviation"] == pytest.approx(stdev(rewards))
    assert (overall["least"], overall["greatest"], overall["steps"], overall["episodes"]) == (10.0, 30.0, 10.0, 3)


def test_arrays_of_numpy_are_numbers_like_any_other() -> None:
    report = judge_returns("p", np.float32([1, 2]), np.int64([3, 4]))  # type: ignore[arg-type]
    assert json.loads(json.dumps(report.as_dict()))["overall"]["steps"] == 3.5


def test_returns_that_are_no_numbers_and_lengths_that_are_missing_are_refused() -> None:
    with pytest.raises(ValueError, match="must be finite"):
        judge_returns("p", [1.0, math.nan], [1, 1])
    with pytest.raises(ValueError, match="2 returns and 1 lengths"):
        judge_returns("p", [1.0, 2.0], [1])
