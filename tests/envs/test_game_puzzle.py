"""Puzzles: exact distances, solvable starts, and what ends an attempt."""

from itertools import count
from random import Random

import pytest

from loomrl.envs.game.puzzles import PUZZLES, SHAPES, GamePuzzle, Hanoi, Jugs, Lights, Riddle, distances


def steps_to(puzzle: GamePuzzle, most: int) -> int | None:
    """The distance by breadth-first search over what is shown."""
    seen, border = {puzzle.show()}, [puzzle]
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


@pytest.mark.parametrize("family", PUZZLES)
def test_higher_levels_need_more_moves(family):
    needed = [PUZZLES[family](level, Random(1)).distance() for level in (1, 4, 7, 10)]
    assert needed == sorted(set(needed))


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
    independent: list[int] = []
    for pattern in lit:
        for known in independent:
            pattern = min(pattern, pattern ^ known)
        assert pattern, "some presses undo others"
        independent.append(pattern)


def test_half_of_all_arrangements_of_tiles_can_be_solved():
    assert len(distances(3)) == 360
    assert max(distances(3).values()) == 21
