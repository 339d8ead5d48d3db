"""Ordering: who stands where in a line."""

from functools import reduce
from operator import or_
from random import Random
from typing import NamedTuple

from loomrl.envs.logic.clue import Clue, choose, everything, orders
from loomrl.envs.logic.puzzle import NAMES, WordPuzzle
from loomrl.gym.generate import between, tier


class OrderTheme(NamedTuple):
    """Wording of places."""

    opening: str
    asked: str
    at: str
    before: str
    directly: str
    beside: str
    amid: str


THEMES = (
    OrderTheme(
        "stand in a line, place 1 on the left.",
        "Who stands where, from left to right?",
        "is in place",
        "is left of",
        "is directly left of",
        "is next to",
        "is somewhere between",
    ),
    OrderTheme(
        "ran a race without a tie.",
        "Who came in, from first to last?",
        "came in place",
        "came before",
        "came directly before",
        "came directly before or after",
        "came somewhere between",
    ),
)
TIERS = (
    ("at", "directly", "at"),
    ("before", "beside", "directly", "not at"),
    ("before", "beside", "apart", "either", "amid"),
    ("before", "amid", "apart", "either", "if", "if"),
)
TRIES = 15
"""Statements to draw, for each person, before places are told as they are."""


class OrderSpeaker:
    """Statements about the order of some people. Places count from 0, in texts from 1."""

    def __init__(self, names: tuple[str, ...], theme: OrderTheme, rng: Random) -> None:
        self.names = names
        self.theme = theme
        self.rng = rng
        self.at = orders(len(names))
        self.every = everything(reduce(or_, self.at[0]).bit_length())

    def say(self, kind: str) -> Clue:
        """A random statement of this kind, true or not."""
        a, b, c, d = self.rng.sample(range(len(self.names)), 4)
        if kind == "at":
            return self.place(a, self.rng.randrange(len(self.names)))
        if kind == "not at":
            first, last = self.rng.sample(range(len(self.names)), 2)
            worlds = self.every ^ self.at[a][first] ^ self.at[a][last]
            return Clue(f"{self.names[a]} {self.theme.at} neither {first + 1} nor {last + 1}", worlds)
        if kind == "either":
            return self._either(a, b)
        if kind == "if":
            given = self.before(a, b)
            then = self.before(c, d)
            return Clue(f"If {given.text}, then {then.text}", self.every ^ given.worlds | then.worlds)
        if kind == "amid":
            worlds = self._later(a, b) & self._later(b, c) | self._later(c, b) & self._later(b, a)
            return Clue(f"{self.names[b]} {self.theme.amid} {self._both(a, c)}", worlds)
        return self._pair(kind, a, b)

    def place(self, item: int, place: int) -> Clue:
        """`Anna is in place 2`."""
        return Clue(f"{self.names[item]} {self.theme.at} {place + 1}", self.at[item][place])

    def before(self, first: int, last: int) -> Clue:
        """`Anna is left of Ben`."""
        return Clue(f"{self.names[first]} {self.theme.before} {self.names[last]}", self._later(first, last))

    def _pair(self, kind: str, a: int, b: int) -> Clue:
        if kind == "before":
            return self.before(a, b)
        if kind == "directly":
            return Clue(f"{self.names[a]} {self.theme.directly} {self.names[b]}", self._gap(a, b, 1))
        if kind == "beside":
            worlds = self._gap(a, b, 1) | self._gap(b, a, 1)
            return Clue(f"{self.names[a]} {self.theme.beside} {self.names[b]}", worlds)
        step = self.rng.randint(2, len(self.names) - 2)
        worlds = self._gap(a, b, step) | self._gap(b, a, step)
        return Clue(f"{self._both(a, b)} are exactly {step} places apart", worlds)

    def _either(self, a: int, b: int) -> Clue:
        first, last = (self.place(item, self.rng.randrange(len(self.names))) for item in (a, b))
        return Clue(f"{first.text} or {last.text}, or both", first.worlds | last.worlds)

    def _both(self, a: int, b: int) -> str:
        return f"{self.names[a]} and {self.names[b]}"

    def _later(self, first: int, last: int) -> int:
        worlds = later = 0
        for place in range(len(self.names) - 1, 0, -1):
            later |= self.at[last][place]
            worlds |= self.at[first][place - 1] & later
        return worlds

    def _gap(self, first: int, last: int, step: int) -> int:
        """The worlds where `last` has the place `step` after that of `first`."""
        pairs = zip(self.at[first], self.at[last][step:], strict=False)
        return reduce(or_, (left & right for left, right in pairs))


def ordering(level: int, rng: Random, queries: int) -> WordPuzzle:
    """A puzzle about the order of some people."""
    names = tuple(rng.sample(NAMES, between(level, 4, 8)))
    arrangement = OrderSpeaker(names, theme := rng.choice(THEMES), rng)
    order = rng.sample(range(len(names)), len(names))
    fixed = [arrangement.place(item, place) for place, item in enumerate(order)]
    world = reduce(lambda worlds, clue: worlds & clue.worlds, fixed, arrangement.every)
    kinds = tier(level, TIERS)
    said = (arrangement.say(rng.choice(kinds)) for _ in range(TRIES * len(names)))
    clues = choose(said, rng.sample(fixed, len(fixed)), world)
    story = "\n".join(f"{clue.text}." for clue in rng.sample(clues, len(clues)))
    solution = ", ".join(names[item] for item in order)
    return WordPuzzle(
        story=f"{', '.join(names[:-1])} and {names[-1]} {theme.opening}\n{story}\n{theme.asked}",
        solution=solution,
        solve="all names in order, with commas",
        query="name",
        queries=queries,
        facts={names[item].lower(): f"{clue.text}." for item, clue in zip(order, fixed, strict=True)},
        places=True,
        shape=(names,),
    )
