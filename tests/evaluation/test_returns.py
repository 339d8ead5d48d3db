"""Returns of control policies: intervals that hold what they say, and reports that are JSON."""

import json
import math
import random
from statistics import stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.evaluation.rating import ELO, GameTally, rate
from loomrl.evaluation.returns import judge_returns
from loomrl.evaluation.statistics import mean_interval

REWARDS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30)


def test_interval_of_a_mean_is_students():
    interval = mean_interval([4.0, 6.0, 8.0, 10.0, 12.0])  # t(4) at 0.975 is 2.776, standard error is sqrt(2)
    assert interval.mean == 8.0
    assert (interval.low, interval.high) == (pytest.approx(8 - 3.926, abs=1e-3), pytest.approx(8 + 3.926, abs=1e-3))


def test_interval_of_a_mean_covers_the_truth_about_as_often_as_it_says():
    rng = random.Random(0)
    covered = 0
    for _ in range(2000):
        interval = mean_interval([rng.gauss(-150, 40) for _ in range(5)])
        covered += interval.low <= -150 <= interval.high
    assert 0.935 < covered / 2000 < 0.965


@given(REWARDS, st.randoms())
def test_interval_contains_the_mean_and_moves_with_the_values(rewards, rng):
    interval = mean_interval(rewards)
    assert interval.mean is not None
    assert interval.low <= interval.mean <= interval.high
    shuffled = rng.sample(rewards, len(rewards))
    assert mean_interval(shuffled) == interval


def test_more_confidence_is_a_wider_interval():
    rewards = [1.0, 2.0, 4.0]
    assert mean_interval(rewards, confidence=0.99).high > mean_interval(rewards, confidence=0.9).high


def test_one_episode_has_a_mean_and_no_bounds():
    interval = mean_interval([21.0])
    assert (interval.mean, interval.low, interval.high, interval.count) == (21.0, -math.inf, math.inf, 1)
    told = judge_returns("p", [21.0], [21]).as_dict()["overall"]
    assert told["reward"] == {"mean": 21.0, "low": None, "high": None, "count": 1}
    assert told["deviation"] is None


def test_without_an_episode_nothing_is_claimed():
    overall = judge_returns("p", [], []).overall
    assert (overall.reward.mean, overall.deviation, overall.least, overall.greatest, overall.steps) == (None,) * 5
    assert overall.episodes == 0


def test_report_tells_spread_and_length_and_is_json():
    rewards = [10.0, 30.0, 20.0]
    report = judge_returns("run/1", rewards, [5, 15, 10], confidence=0.9)
    told = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert (told["policy"], told["confidence"]) == ("run/1", 0.9)
    overall = told["overall"]
    assert overall["reward"]["mean"] == 20.0
    assert overall["deviation"] == pytest.approx(stdev(rewards))
    assert (overall["least"], overall["greatest"], overall["steps"], overall["episodes"]) == (10.0, 30.0, 10.0, 3)


def test_arrays_of_numpy_are_numbers_like_any_other():
    report = judge_returns("p", np.float32([1, 2]), np.int64([3, 4]))
    assert json.loads(json.dumps(report.as_dict()))["overall"]["steps"] == 3.5


def test_returns_that_are_no_numbers_and_lengths_that_are_missing_are_refused():
    with pytest.raises(ValueError, match="must be finite"):
        judge_returns("p", [1.0, math.nan], [1, 1])
    with pytest.raises(ValueError, match="2 returns and 1 lengths"):
        judge_returns("p", [1.0, 2.0], [1])


VERSIONS = ["0", "10", "20", "present"]
TRUE = {"0": 0.0, "10": 120.0, "20": 260.0, "present": 300.0, "random": -200.0, "minimax-50": 350.0}
ADVANTAGE = 150.0
MEETINGS = [
    ("10", "0"), ("10", "random"), ("20", "0"), ("20", "10"), ("20", "minimax-50"), ("20", "random"),
    ("present", "20"), ("present", "10"), ("present", "present"), ("present", "minimax-50"),
]  # fmt: skip


def simulated(seed, *, groups, alike=0.0):
    """Games of these players in groups of eight; the `alike` share of a group's games end as its first one."""
    rng = random.Random(seed)
    games = {pair: GameTally() for pair in MEETINGS}
    for (first, second), tally in games.items():
        chance = 1 / (1 + 10 ** ((TRUE[second] - TRUE[first] - ADVANTAGE) / 400))
        for _ in range(groups):
            led = rng.random() < chance
            wins = [led if rng.random() < alike else rng.random() < chance for _ in range(8)]
            tally.add(float(sum(wins)), 8)
    return games


def covered(ratings):
    found = [(ratings.players[name], true) for name, true in TRUE.items() if name != "0"]
    return [rating.low <= true <= rating.high for rating, true in [*found, (ratings.advantage, ADVANTAGE)]]


def test_many_games_recover_the_strength_of_everybody():
    ratings = rate(simulated(1, groups=2000), VERSIONS)
    for name, true in TRUE.items():
        assert ratings.players[name].mean == pytest.approx(true, abs=25)
    assert ratings.advantage.mean == pytest.approx(ADVANTAGE, abs=10)
    assert all(rating.high - rating.low < 60 for rating in ratings.players.values())


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_intervals_hold_the_truth_as_often_as_they_say_also_where_games_of_a_group_are_alike(alike):
    share = np.mean([covered(rate(simulated(seed, groups=25, alike=alike), VERSIONS)) for seed in range(100)])
    assert 0.92 <= share <= 0.985


def test_games_of_a_group_that_end_alike_tell_less_than_independent_ones():
    def width(alike):
        rating = rate(simulated(3, groups=25, alike=alike), VERSIONS).players["present"]
        return rating.high - rating.low

    assert width(1.0) > 2 * width(0.0)


def test_who_has_won_every_game_gets_a_finite_rating_and_a_draw_is_half_of_a_win():
    won = GameTally()
    drawn = GameTally()
    won.add(8.0, 8)
    drawn.add(4.0, 8)
    ratings = rate({("1", "0"): won, ("1", "1"): drawn}, ["0", "1"])
    assert 100 < ratings.players["1"].mean < 1000
    assert ratings.players["0"].mean == 0
    assert ratings.advantage.mean == pytest.approx(0, abs=ELO)


def test_without_games_nothing_is_known_of_anybody_but_the_first_version():
    ratings = rate({}, ["0", "present"])
    assert ratings.players["0"].low == ratings.players["0"].high == 0
    assert ratings.players["present"].mean == 0
    assert ratings.players["present"].high > 300


def test_the_order_of_games_changes_nothing():
    games = simulated(5, groups=5)
    assert rate(games, VERSIONS) == rate(dict(reversed(games.items())), VERSIONS)
