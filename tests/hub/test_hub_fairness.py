"""Turns follow weights and minimum shares, and nobody starves."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.gym.curriculum import FLOOR, Stake, shares
from loomrl.hub.lending import Claim, allot
from loomrl.hub.sharded import divide

WEIGHTS = st.lists(st.floats(0.05, 20), min_size=1, max_size=6)


def serve(claims: list[Claim], turns: int, *, at_once: int = 8) -> Counter[str]:
    """Services by environment while everybody always has groups."""
    taken = Counter[str]()
    state = {claim.environment: claim for claim in claims}
    for _ in range(turns // at_once):
        for name, part in allot(list(state.values()), at_once).items():
            taken[name] += part.count
            old = state[name]
            state[name] = Claim(name, old.weight, old.min_share, old.ready, part.served)
    return taken


@given(WEIGHTS)
@settings(max_examples=40)
def test_over_time_turns_are_in_proportion_to_weights(weights: list[float]) -> None:
    claims = [Claim(str(index), weight, 0.0, 1000) for index, weight in enumerate(weights)]
    taken = serve(claims, 800)
    for claim in claims:  # each of the others may be a turn behind or ahead
        expected = 800 * claim.weight / sum(weights)
        assert taken[claim.environment] == pytest.approx(expected, abs=max(3, len(weights)))


@given(WEIGHTS, st.lists(st.floats(0, 0.3), min_size=6, max_size=6))
@settings(max_examples=40)
def test_minimum_shares_are_honoured_and_nobody_starves(weights: list[float], minimums: list[float]) -> None:
    claims = [Claim(str(i), weight, minimums[i] / 2, 1000) for i, weight in enumerate(weights)]
    promised = shares({claim.environment: Stake(claim.weight, claim.min_share) for claim in claims})
    turns = 8 * math.ceil(max(100, 0.5 / min(promised.values())))
    taken = serve(claims, turns)
    for claim in claims:
        assert taken[claim.environment] >= turns * claim.min_share - 3
        assert taken[claim.environment] >= turns * promised[claim.environment] - 3
        assert taken[claim.environment] >= 1


def test_minimum_shares_that_take_everything_still_leave_turns_to_the_rest() -> None:
    claims = [Claim("all", 1.0, 1.0, 1000), Claim("none", 1.0, 0.0, 1000)]
    assert shares({"all": Stake(1.0, 1.0), "none": Stake(1.0)})["none"] == FLOOR
    assert serve(claims, 800)["none"] >= 7


def test_who_comes_back_after_a_pause_has_no_claim_on_the_past() -> None:
    busy = Claim("busy", 1.0, 0.0, 1000, served=5_000.0)
    back = Claim("back", 1.0, 0.0, 1000, served=1.0)
    taken = allot([busy, back], 10)
    assert taken["busy"].count == pytest.approx(5, abs=1)


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(1, 40))
def test_no_more_is_taken_than_is_there_and_nothing_is_left_while_asked_for(ready: list[int], count: int) -> None:
    claims = [Claim(str(index), 1.0 + index, 0.1, number) for index, number in enumerate(ready)]
    taken = allot(claims, count)
    assert sum(part.count for part in taken.values()) == min(count, sum(ready))
    assert all(part.count <= ready[int(name)] for name, part in taken.items())
    assert allot(claims, count) == taken


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(1, 99))
def test_groups_are_divided_over_shards_as_far_as_they_go(waiting: list[int], count: int) -> None:
    parts = divide(count, waiting)
    assert sum(parts) == min(count, sum(waiting))
    assert all(0 <= part <= there for part, there in zip(parts, waiting, strict=True))
