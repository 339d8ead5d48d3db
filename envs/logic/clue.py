"""Clues, and the choice of as few of them as leave one world."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple


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
                return needed(chosen[::-1], world)
    raise AssertionError("the certain clues do not tell the world from all others")


def needed(clues: Sequence[Clue], world: int) -> list[Clue]:
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
