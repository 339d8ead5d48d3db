"""Ratings are those that the games were played by, within their intervals."""

import random

import numpy as np
import pytest

from loomrl.evaluation.rating import ELO, Ratings, Tally, rate

VERSIONS = ["0", "10", "20", "present"]
TRUE = {"0": 0.0, "10": 120.0, "20": 260.0, "present": 300.0, "random": -200.0, "minimax-50": 350.0}
ADVANTAGE = 150.0
MEETINGS = [
    ("10", "0"), ("10", "random"), ("20", "0"), ("20", "10"), ("20", "minimax-50"), ("20", "random"),
    ("present", "20"), ("present", "10"), ("present", "present"), ("present", "minimax-50"),
]  # fmt: skip


def simulated(seed: int, *, groups: int, alike: float = 0.0) -> dict[tuple[str, str], Tally]:
    """Games of these players in groups of eight; the `alike` share of a group's games end as its first one."""
    rng, games = random.Random(seed), {pair: Tally() for pair in MEETINGS}
    for (first, second), tally in games.items():
        chance = 1 / (1 + 10 ** ((TRUE[second] - TRUE[first] - ADVANTAGE) / 400))
        for _ in range(groups):
            led = rng.random() < chance
            wins = [led if rng.random() < alike else rng.random() < chance for _ in range(8)]
            tally.add(float(sum(wins)), 8)
    return games


def covered(ratings: Ratings) -> list[bool]:
    found = [(ratings.players[name], true) for name, true in TRUE.items() if name != "0"]
    return [rating.low <= true <= rating.high for rating, true in [*found, (ratings.advantage, ADVANTAGE)]]


def test_many_games_recover_the_strength_of_everybody() -> None:
    ratings = rate(simulated(1, groups=2000), VERSIONS)
    for name, true in TRUE.items():
        assert ratings.players[name].mean == pytest.approx(true, abs=25)
    assert ratings.advantage.mean == pytest.approx(ADVANTAGE, abs=10)
    assert all(rating.high - rating.low < 60 for rating in ratings.players.values())


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_intervals_hold_the_truth_as_often_as_they_say_also_where_games_of_a_group_are_alike(alike: float) -> None:
    share = np.mean([covered(rate(simulated(seed, groups=25, alike=alike), VERSIONS)) for seed in range(100)])
    assert 0.92 <= share <= 0.985


def test_games_of_a_group_that_end_alike_tell_less_than_independent_ones() -> None:
    def width(alike: float) -> float:
        rating = rate(simulated(3, groups=25, alike=alike), VERSIONS).players["present"]
        return rating.high - rating.low

    assert width(1.0) > 2 * width(0.0)


def test_who_has_won_every_game_gets_a_finite_rating_and_a_draw_is_half_of_a_win() -> None:
    won, drawn = Tally(), Tally()
    won.add(8.0, 8)
    drawn.add(4.0, 8)
    ratings = rate({("1", "0"): won, ("1", "1"): drawn}, ["0", "1"])
    assert 100 < ratings.players["1"].mean < 1000
    assert ratings.players["0"].mean == 0
    assert ratings.advantage.mean == pytest.approx(0, abs=ELO)


def test_without_games_nothing_is_known_of_anybody_but_the_first_version() -> None:
    ratings = rate({}, ["0", "present"])
    assert ratings.players["0"].low == ratings.players["0"].high == 0
    assert ratings.players["present"].mean == 0
    assert ratings.players["present"].high > 300


def test_the_order_of_games_changes_nothing() -> None:
    games = simulated(5, groups=5)
    assert rate(games, VERSIONS) == rate(dict(reversed(games.items())), VERSIONS)
