"""Puzzles with exact distances, proofs in small games, and predictions of replies."""

import math
import random
from functools import cache
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.envs.game.board import BOARDS
from loomrl.envs.game.play import log_score, read_prediction
from loomrl.envs.game.puzzles import PUZZLES, SHAPES, Hanoi, Jugs, Lights, Riddle, distances
from loomrl.envs.game.solver import DRAW, WIN, Search, order_actions, outcome
from loomrl.envs.game.spiel import open_state


def steps_to(puzzle, most):
    """The distance by breadth-first search over what is shown."""
    seen = {puzzle.show()}
    border = [puzzle]
    for steps in count():
        if any(one.distance() == 0 for one in border):
            return steps
        if steps == most or not border:
            return None
        nexts = [one.after(move) for one in border for move in one.moves()]
        border = [one for one in {one.show(): one for one in nexts}.values() if one.show() not in seen]
        seen |= {one.show() for one in border}
    return None


@pytest.mark.parametrize("family", PUZZLES)
@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_distance_is_that_of_the_shortest_solution(family, level):
    puzzle = PUZZLES[family](level, Random(f"{family}{level}"))
    assert steps_to(puzzle, most=8 if family == "puzzle.lights" else 20) == puzzle.distance()


def test_a_third_jug_comes_with_level_4():
    counts = {
        level: {len(PUZZLES["puzzle.jugs"](level, Random(seed)).capacity) for seed in range(40)} for level in (3, 4)
    }
    assert counts == {3: {2}, 4: {2, 3}}


async def test_a_puzzle_is_lost_when_its_moves_are_used_up():
    riddle = Riddle(Hanoi((0, 0, 2)))
    seen = [await riddle.move(move) for move in ("ab", "ba") * 2]
    assert riddle.outcome is None
    assert "Moves left: 1." in seen[-1]
    await riddle.move("ab")
    assert riddle.outcome == 0.0


async def test_progress_is_worth_something_and_going_back_takes_it_away():
    riddle = Riddle(Hanoi((0, 0, 2)))
    begun = await riddle.worth()
    await riddle.move("ab")
    nearer = await riddle.worth()
    await riddle.move("ba")
    assert (begun, await riddle.worth()) == (0.5, 0.5)
    assert nearer > begun


async def test_what_is_no_move_changes_nothing():
    riddle = Riddle(Jugs((3, 5), 4, (0, 0)))
    opening = riddle.opening()
    for text in ("pour a b", "fill c", "fill a; fill b", "", "fill"):
        assert await riddle.move(text) is None
    assert riddle.opening() == opening
    assert await riddle.move("  FILL   a ") is not None


def test_pouring_ends_when_one_is_empty_or_the_other_full():
    assert Jugs((3, 5), 4, (3, 4)).after("pour a b").water == (2, 5)
    assert Jugs((3, 5), 4, (2, 1)).after("pour a b").water == (0, 3)


@pytest.mark.parametrize("shape", sorted(set(SHAPES)))
def test_every_pattern_of_lights_has_exactly_one_solution(shape):
    rows, columns = shape
    dark = Lights(rows, columns, frozenset())
    lit = []
    for move in dark.moves():
        text = dark.after(move).show().split("\n")[1:]
        lit.append(int("".join("1" if sign == "*" else "0" for row in text for sign in row.split()[1:]), 2))
    independent = []
    for pattern in lit:
        for known in independent:
            pattern = min(pattern, pattern ^ known)
        assert pattern, "some presses undo others"
        independent.append(pattern)


def test_half_of_all_arrangements_of_tiles_can_be_solved():
    assert len(distances(3)) == 360
    assert max(distances(3).values()) == 21


pytest.importorskip("pyspiel", reason="needs OpenSpiel: pip install 'loomrl[games]'")
GAMES = (
    "tic_tac_toe",
    "connect_four(rows=3,columns=3,x_in_row=3)",
    "nim(pile_sizes=2;3;2,is_misere=True)",
    "dots_and_boxes(num_rows=1,num_cols=2)",
    "clobber(rows=2,columns=4)",
    "hex(board_size=3)",
    "breakthrough(rows=4,columns=2)",
    "y(board_size=3)",
)


def wander(game, seed):
    """A position after some random moves, in which the game goes on."""
    rng = random.Random(seed)
    state = open_state(game)
    for _ in range(rng.randrange(5)):
        child = state.child(rng.choice(state.legal_actions()))
        if child.is_terminal():
            break
        state = child
    return state


@pytest.mark.parametrize("game", GAMES)
def test_a_proof_agrees_with_exhaustive_search(game):
    @cache
    def exhaustive(history, player):
        state = open_state(game)
        for action in history:
            state.apply_action_with_legality_check(action)
        if state.is_terminal():
            return outcome(state, player)
        results = [exhaustive((*history, action), player) for action in state.legal_actions()]
        return max(results) if state.current_player() == player else min(results)

    compared = 0
    for seed in range(40):
        state = wander(game, seed)
        if len(state.legal_actions()) > 6:
            continue
        value = exhaustive(tuple(state.history()), state.current_player())
        for least in (WIN, DRAW):
            proof = Search(str, state.current_player(), least, 10_000).prove(state)
            assert proof.holds == (value >= least)
            compared += 1
    assert compared


@pytest.mark.parametrize("family", BOARDS)
def test_following_a_proof_never_needs_a_longer_one(family):
    rng = random.Random(family)
    size = BOARDS[family].sizes[3]
    followed = 0
    for _ in range(30):
        state = open_state(size.game)
        for _ in range(size.last):
            if not state.is_terminal():
                state.apply_action_with_legality_check(rng.choice(state.legal_actions()))
        if state.is_terminal():
            continue
        player = state.current_player()
        proof = Search(str, player, WIN, 300).prove(state)
        if not proof.holds:
            continue
        followed += 1
        while not state.is_terminal():
            if state.current_player() == player:
                again = Search(str, player, WIN, proof.positions).prove(state)
                assert again.holds
                search = Search(str, player, WIN, proof.positions)
                action = next(action for action in order_actions(state) if search.prove(state.child(action)).holds)
            else:
                action = rng.choice(state.legal_actions())
            state.apply_action_with_legality_check(action)
        assert outcome(state, player) == 1
    assert followed


def test_a_proof_that_would_need_more_positions_is_no_verdict():
    proof = Search(str, 0, WIN, 50).prove(open_state("tic_tac_toe"))
    assert proof == (None, 50)


def test_a_verdict_does_not_depend_on_what_was_asked_before():
    for seed in range(5):
        state = wander("hex(board_size=4)", seed)
        fresh = Search(str, state.current_player(), WIN, 200).prove(state)
        Search(str, state.current_player(), WIN, 1000).prove(open_state("hex(board_size=4)"))
        assert Search(str, state.current_player(), WIN, 200).prove(state) == fresh


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

    def mean_score(prediction):
        return sum(chance * log_score(prediction, MOVES, move) for move, chance in chances.items())

    if min(chances.values()) > 1 / len(MOVES) ** 2 and min(other.values()) > 1 / len(MOVES) ** 2:
        assert mean_score(other) <= mean_score(chances) + 1e-9
    assert math.isfinite(mean_score(other))
