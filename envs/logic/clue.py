"""Sets of worlds as the bits of an integer; clues, and the choice of as few of them as leave one world."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from math import factorial
from typing import NamedTuple


def everything(count: int) -> int:
    """The set of all of `count` worlds."""
    return (1 << count) - 1


def world_of(truth: Iterable[bool]) -> int:
    """The set of the one world in which exactly these facts are true."""
    return 1 << sum(1 << place for place, true in enumerate(truth) if true)


@lru_cache(maxsize=16)
def facts(count: int) -> tuple[int, ...]:
    """For each of `count` facts, the worlds in which it is true; there is one world per subset of the facts."""
    every = everything(1 << count)
    return tuple(every // ((1 << (1 << number)) + 1) << (1 << number) for number in range(count))


@lru_cache(maxsize=16)
def orders(count: int) -> tuple[tuple[int, ...], ...]:
    """At [item][place] the worlds where the item has that place; there is one world for each order of the items."""
    if count == 1:
        return ((1,),)
    block = factorial(count - 1)
    below = orders(count - 1)
    return tuple(
        (
            everything(block) << item * block,
            *(
                sum(below[item - (first < item)][place] << first * block for first in range(count) if first != item)
                for place in range(count - 1)
            ),
        )
        for item in range(count)
    )


class Clue(NamedTuple):
    """A sentence, and the worlds in which it holds."""

    text: str
    worlds: int


def choose(said: Iterable[Clue], certain: Sequence[Clue], world: int) -> list[Clue]:
    """Clues that all hold in `world`, a set of one, and nowhere else; none can be left out.

    Those said that hold and tell something new are taken as they come; the certain ones make up what is lacking.
    """
    chosen: list[Clue] = []
    left = -1
    for clue in chain(said, certain):
        if clue.worlds & world and left & clue.worlds != left:
            left &= clue.worlds
            chosen.append(clue)
            if left == world:
                return drop_implied_clues(chosen[::-1], world)
    raise AssertionError("the certain clues do not tell the world from all others")


def drop_implied_clues(clues: Sequence[Clue], world: int) -> list[Clue]:
    """The clues without those that follow from the others; of two that could go, the first goes."""
    after = [-1]
    for clue in reversed(clues):
        after.append(after[-1] & clue.worlds)
    before = -1
    kept = []
    for clue, rest in zip(clues, reversed(after[:-1]), strict=True):
        if before & rest != world:
            before &= clue.worlds
            kept.append(clue)
    return kept
