"""Grids of several orders at once: relations between two things, and a search for worlds where all of them hold.

A domain is the set of orders that an attribute can still have; a world is one order of each, as sets of one.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

Pair = tuple[int, int]
Thing = tuple[int, int]
"""A kind, and which one of that kind."""


class Relation(NamedTuple):
    """A relation between the orders of two attributes, or of one.

    `holds` are pairs of sets of orders that partition what is allowed by the place of the left thing; `fails` are those
    of the contrary. Where both attributes are one, the two sets of a pair are one.
    """

    wording: str
    things: tuple[Thing, Thing]
    left: int
    right: int
    holds: tuple[Pair, ...]
    fails: tuple[Pair, ...]

    def contrary(self) -> "Relation":
        """The relation that holds where this one does not."""
        return Relation("", self.things, self.left, self.right, self.fails, self.holds)

    def holds_in(self, world: Sequence[int]) -> bool:
        """True if it holds in a world."""
        left, right = world[self.left], world[self.right]
        return any(some & left and others & right for some, others in self.holds)


def narrow(domains: list[int], relations: Sequence[Relation]) -> bool:
    """Take from the domains, in place, what no relation allows, until nothing changes; False where nothing is left."""
    changed = True
    while changed:
        changed = False
        for _, _, left, right, holds, _ in relations:
            mine = domains[left]
            other = domains[right]
            new_mine = new_other = 0
            for some, others in holds:
                if mine & some and other & others:
                    new_mine |= some
                    new_other |= others
            new_mine &= mine
            new_other &= other
            if new_mine != mine or new_other != other:
                if not (new_mine and new_other):
                    return False
                domains[left] = new_mine
                domains[right] = new_other if left != right else new_mine & new_other
                changed = True
    return True


def worlds(domains: Sequence[int], relations: Sequence[Relation]) -> Iterator[tuple[int, ...]]:
    """All worlds within the domains where the relations hold."""
    left = list(domains)
    if not narrow(left, relations):
        return
    open_domains = [domain for domain in left if domain & domain - 1]
    if not open_domains:
        yield tuple(left)
        return
    smallest = min(open_domains, key=int.bit_count)
    place = left.index(smallest)
    first = smallest & -smallest
    for part in (first, smallest ^ first):
        left[place] = part
        yield from worlds(left, relations)


def other_world(
    domains: Sequence[int], relations: Sequence[Relation], world: tuple[int, ...]
) -> tuple[int, ...] | None:
    """A world where the relations hold that is not the given one, or None."""
    return next((found for found in worlds(domains, relations) if found != world), None)


def needed(domains: Sequence[int], relations: Sequence[Relation]) -> list[Relation]:
    """The relations without those that follow from the others."""
    kept = list(relations)
    for relation in relations:
        rest = [one for one in kept if one is not relation]
        if next(worlds(domains, [relation.contrary(), *rest]), None) is None:
            kept = rest
    return kept
