"""Grids: houses in a row, each with one thing of every kind; which things belong together?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from math import factorial
from operator import and_
from random import Random
from typing import NamedTuple

from loomrl.envs.logic.clue import everything, orders
from loomrl.envs.logic.puzzle import WordPuzzle, sentence
from loomrl.gym.generate import tier, words

Pair = tuple[int, int]
Thing = tuple[int, int]
"""A kind, and which one of that kind."""


class OrderRelation(NamedTuple):
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

    def contrary(self) -> "OrderRelation":
        """The relation that holds where this one does not."""
        return OrderRelation("", self.things, self.left, self.right, self.fails, self.holds)

    def holds_in(self, world: Sequence[int]) -> bool:
        """True if it holds in a world."""
        left, right = world[self.left], world[self.right]
        return any(some & left and others & right for some, others in self.holds)


def narrow(domains: list[int], relations: Sequence[OrderRelation]) -> bool:
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


def worlds(domains: Sequence[int], relations: Sequence[OrderRelation]) -> Iterator[tuple[int, ...]]:
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
    domains: Sequence[int], relations: Sequence[OrderRelation], world: tuple[int, ...]
) -> tuple[int, ...] | None:
    """A world where the relations hold that is not the given one, or None."""
    return next((found for found in worlds(domains, relations) if found != world), None)


def drop_implied_relations(domains: Sequence[int], relations: Sequence[OrderRelation]) -> list[OrderRelation]:
    """The relations without those that follow from the others."""
    kept = list(relations)
    for relation in relations:
        rest = [one for one in kept if one is not relation]
        if next(worlds(domains, [relation.contrary(), *rest]), None) is None:
            kept = rest
    return kept


KINDS: Mapping[str, tuple[str, ...]] = {
    "colour": words("red blue green white black yellow brown"),
    "pet": words("cat dog fox owl pig hen bee"),
    "drink": words("tea milk wine beer juice cocoa water"),
    "owner": words("Anna Ben Cara Dan Eva Finn Gina"),
    "hobby": words("chess golf judo yoga music poker dance"),
}
SIZES = ((3, 2), (3, 2), (3, 3), (4, 2), (4, 3), (4, 3), (4, 4), (5, 3), (5, 4), (5, 4))
"""Houses and kinds of each level."""
Allowed = Callable[[int, int], bool]
RELATIONS: Mapping[str, Allowed] = {
    "and {} are in the same house": lambda a, b: a == b,
    "is directly left of {}": lambda a, b: a + 1 == b,
    "is next to {}": lambda a, b: abs(a - b) == 1,
    "is left of {}": lambda a, b: a < b,
    "and {} are not in the same house": lambda a, b: a != b,
    "is neither with nor next to {}": lambda a, b: abs(a - b) > 1,
    "is two houses away from {}": lambda a, b: abs(a - b) == 2,
}
SAME, DIRECTLY, NEXT, LEFT, APART, FAR, TWO = RELATIONS
TIERS = (
    (SAME, SAME, DIRECTLY),
    (SAME, DIRECTLY, NEXT, LEFT),
    (SAME, NEXT, LEFT, TWO),
    (SAME, NEXT, LEFT, FAR, APART, TWO),
)
OF_TWO_KINDS = (SAME, APART, FAR)
TRIES = 5
"""Relations to draw for each thing."""
TOLD = 3
"""Highest level that gives the house of one thing."""
OUTLINES = 128
"""For each level. Proving one can take some hundredths of a second; with words drawn anew it is a new puzzle."""


@lru_cache(maxsize=4096)
def _pairs(size: int, wording: str, items: tuple[int, int], one_kind: bool, positive: bool) -> tuple[Pair, ...]:
    """The sets of orders that make a relation hold, or fail."""
    at = orders(size)
    allowed = RELATIONS[wording]
    left, right = at[items[0]], at[items[1]]
    others = (sum(right[b] for b in range(size) if allowed(a, b) == positive) for a in range(size))
    pairs = tuple(pair for pair in zip(left, others, strict=True) if pair[1])
    if not one_kind:
        return pairs
    both = sum(some & rest for some, rest in pairs)
    return ((both, both),)


class Street:
    """Nameless things in houses, and what can be said about them."""

    def __init__(self, size: int, kinds: int, rng: Random) -> None:
        self.size = size
        self.rng = rng
        self.house = tuple(tuple(rng.sample(range(size), size)) for _ in range(kinds))
        self.things = [(kind, item) for kind in range(kinds) for item in range(size)]

    @property
    def world(self) -> tuple[int, ...]:
        """The truth."""
        at = orders(self.size)
        return tuple(reduce(and_, (at[item][house] for item, house in enumerate(houses))) for houses in self.house)

    def draw(self, wordings: Sequence[str], count: int) -> list[OrderRelation]:
        """Relations that hold, out of a number of random ones."""
        found = []
        for _ in range(count):
            wording = self.rng.choice(wordings)
            left, right = self.rng.sample(self.things, 2)
            if left[0] == right[0] and wording in OF_TWO_KINDS:
                continue
            if RELATIONS[wording](self.house[left[0]][left[1]], self.house[right[0]][right[1]]):
                found.append(self._relation(wording, left, right))
        return found

    def _relation(self, wording: str, left: Thing, right: Thing) -> OrderRelation:
        items = (left[1], right[1])
        one_kind = left[0] == right[0]
        holds, fails = (_pairs(self.size, wording, items, one_kind, positive) for positive in (True, False))
        return OrderRelation(wording, (left, right), left[0], right[0], holds, fails)

    def place(self, thing: Thing) -> OrderRelation:
        """The place of a thing."""
        kind, item = thing
        here = orders(self.size)[item][self.house[kind][item]]
        away = everything(factorial(self.size)) ^ here
        return OrderRelation(
            at_house(self.house[kind][item]), (thing, thing), kind, kind, ((here, here),), ((away, away),)
        )

    def clues(self, chosen: list[OrderRelation], pool: Sequence[OrderRelation]) -> list[OrderRelation]:
        """The chosen relations, and enough of the pool to leave one world; none can be left out."""
        domains = [everything(factorial(self.size))] * len(self.house)
        world = self.world
        while (other := other_world(domains, chosen, world)) is not None:
            telling = [relation for relation in pool if not relation.holds_in(other)]
            places = [place for place in map(self.place, self.things) if not place.holds_in(other)]
            chosen.append((telling or self.rng.sample(places, 1))[0])
        return drop_implied_relations(domains, chosen)


class Outline(NamedTuple):
    """A puzzle without words: the house of each thing, and the clues as wording and things."""

    house: tuple[tuple[int, ...], ...]
    clues: tuple[tuple[str, tuple[Thing, Thing]], ...]


@lru_cache(maxsize=10 * OUTLINES)
def outline(level: int, number: int) -> Outline:
    """One of the outlines of a level."""
    rng = Random(f"outline:{level}:{number}")
    street = Street(*SIZES[level - 1], rng)
    pool = street.draw(tier(level, TIERS), TRIES * len(street.things))
    told = [street.place(rng.choice(street.things))] if level <= TOLD else []
    start = len(street.things) - street.size
    clues = street.clues([*told, *pool[:start]], pool[start:])
    return Outline(street.house, tuple((clue.wording, clue.things) for clue in clues))


def at_house(house: int) -> str:
    """A place in words; houses count from 0, in texts from 1."""
    return f"is in house {house + 1}"


def grid(level: int, rng: Random, queries: int) -> WordPuzzle:
    """An assignment puzzle: things in houses."""
    size, kinds = SIZES[level - 1]
    house, clues = outline(level, rng.randrange(OUTLINES))
    chosen = rng.sample(tuple(KINDS), kinds)
    words = [tuple(rng.sample(KINDS[kind], size)) for kind in chosen]
    said = [f"{sentence(words[a][i])} {text.format(words[b][j])}." for text, ((a, i), (b, j)) in clues]
    at = [(word, house[kind][item]) for kind, row in enumerate(words) for item, word in enumerate(row)]
    groups = [[word for word, place in at if place == here] for here in range(size)]
    held = "; ".join(f"one {kind} ({', '.join(sorted(row))})" for kind, row in zip(chosen, words, strict=True))
    lines = "\n".join(rng.sample(said, len(said)))
    return WordPuzzle(
        story=f"Houses 1 to {size}, left to right, each with {held}.\n{lines}\nWhat is in each house?",
        solution=", ".join(" ".join(group) for group in groups),
        solve=f"{kinds} words for house 1, {kinds} for house 2, and so on, with commas between houses",
        query="word",
        queries=queries,
        facts={word.lower(): f"{sentence(word)} {at_house(place)}." for word, place in at},
        places=True,
        shape=tuple(words),
    )
