"""Statements about yes-or-no facts, as sentences and as sets of worlds: deductions, and knights and knaves."""

from collections.abc import Sequence
from functools import reduce
from itertools import chain, count
from operator import and_, or_
from random import Random
from typing import NamedTuple

from loomrl.envs.logic.clue import Clue, choose, everything, facts, world_of
from loomrl.envs.logic.puzzle import NAMES, WordPuzzle, sentence, subset_puzzle
from loomrl.gym.generate import between, listed, tier, words


class FactTheme(NamedTuple):
    """Wording of facts: `Ben comes`, `Ben stays away`, `two of them come`."""

    kind: str
    names: tuple[str, ...]
    true: str
    false: str
    true_of_many: str


class FactLiteral(NamedTuple):
    """A literal: a fact, or its contrary."""

    text: str
    worlds: int


class FactSpeaker:
    """Statements about the facts with these names."""

    def __init__(self, theme: FactTheme, names: Sequence[str], rng: Random) -> None:
        self.theme = theme
        self.names = names
        self.rng = rng
        self.every = everything(1 << len(names))
        self.facts = facts(len(names))

    def literal(self, item: int, positive: bool) -> FactLiteral:
        """`Ben comes`, or `Ben stays away`."""
        words = self.theme.true if positive else self.theme.false
        worlds = self.facts[item] if positive else self.every ^ self.facts[item]
        return FactLiteral(f"{self.names[item]} {words}", worlds)

    def say(self, kind: str, without: int | None = None) -> Clue:
        """A random statement of this kind, true or not, that does not mention one of the facts."""
        items = [item for item in range(len(self.names)) if item != without]
        size = SIZES[kind]
        if kind in COUNTED:
            size = min(len(items), self.rng.randint(size, size + 1))
        items = self.rng.sample(items, size)
        if kind in COUNTED or kind == "both":
            return self._count(kind, items)
        return self._join(kind, [self.literal(item, self.rng.random() < 0.5) for item in items])

    def _join(self, kind: str, parts: list[FactLiteral]) -> Clue:
        *given, last = parts
        if kind == "fact":
            return Clue(sentence(f"{last.text}."), last.worlds)
        if kind in ("or", "choice"):
            texts = [part.text for part in parts]
            worlds = reduce(or_, (part.worlds for part in parts))
            return Clue(
                sentence(f"{listed(texts, 'or')}, or {'both' if len(parts) == 2 else 'more of these'}."), worlds
            )
        condition = reduce(and_, (part.worlds for part in given))
        text = " and ".join(part.text for part in given)
        if kind == "exactly if":
            return Clue(f"{sentence(last.text)} if {text}, and only then.", self.every ^ condition ^ last.worlds)
        return Clue(f"If {text}, then {last.text}.", self.every ^ condition | last.worlds)

    def _count(self, kind: str, items: list[int]) -> Clue:
        names = listed([self.names[item] for item in items])
        counts = self._counts(items)
        if kind == "both":
            return Clue(f"Both or neither of {names} {self.theme.true_of_many}.", counts[0] | counts[-1])
        if kind == "even":
            parity = self.rng.randint(0, 1)
            word = ("even number (perhaps none)", "odd number")[parity]
            return Clue(f"Of {names}, an {word} {self.theme.true_of_many}.", reduce(or_, counts[parity::2]))
        most = self.rng.randint(1, len(items) - 1)
        verb = self.theme.true if most == 1 else self.theme.true_of_many
        worlds = {"exactly": counts[most], "at least": reduce(or_, counts[most:])}
        worlds["at most"] = reduce(or_, counts[: most + 1])
        return Clue(f"{sentence(kind)} {NUMBERS[most]} of {names} {verb}.", worlds[kind])

    def _counts(self, items: list[int]) -> list[int]:
        """For each number, the worlds where so many of the items are true."""
        counts = [self.every]
        for item in items:
            fact = self.facts[item]
            shifted = [0, *(worlds & fact for worlds in counts)]
            counts = [up | worlds & ~fact for up, worlds in zip(shifted, [*counts, 0], strict=True)]
        return counts


SIZES = {
    "fact": 1, "both": 2, "if": 2, "or": 2, "rule": 3, "choice": 3, "exactly if": 3,
    "exactly": 2, "at least": 3, "at most": 3, "even": 3,
}  # fmt: skip
COUNTED = ("exactly", "at least", "at most", "even")
NUMBERS = words("no one two three four five")
TIERS = (
    ("fact", "both", "exactly", "if"),
    ("both", "exactly", "if", "or", "rule"),
    ("exactly", "if", "or", "rule", "at least", "exactly if"),
    ("rule", "or", "at least", "at most", "exactly", "exactly if", "even", "choice"),
)
"""The kinds of statements, from easy to hard."""


COLOURS = words("red blue green white black pink grey brown gold violet orange cyan")
THEMES = (
    FactTheme("lamps", COLOURS, "is on", "is off", "are on"),
    FactTheme("guests", NAMES, "comes", "stays away", "come"),
    FactTheme("suspects", NAMES, "is guilty", "is innocent", "are guilty"),
)
TRIES = 20
"""Statements to draw, for each fact, before facts are told as they are."""


def deduction(level: int, rng: Random, queries: int) -> WordPuzzle:
    """Each of some lamps is on or off, and the premises say which."""
    theme = rng.choice(THEMES)
    speech, truth = _draw_facts(theme, between(level, 4, 12), rng)
    said = (speech.say(rng.choice(tier(level, TIERS))) for _ in range(TRIES * len(truth)))
    facts = [Clue(sentence(f"{fact.text}."), fact.worlds) for fact in map(speech.literal, count(), truth)]
    clues = choose(said, rng.sample(facts, len(facts)), world_of(truth))
    rng.shuffle(clues)
    premises = "\n".join(clue.text for clue in clues)
    return subset_puzzle(
        f"{sentence(theme.kind)}: {', '.join(speech.names)}.\n{premises}\nWhich {theme.true_of_many}?",
        f"all that {theme.true_of_many}, with commas",
        speech.names,
        truth,
        [fact.text for fact in facts],
        queries,
    )


def _draw_facts(theme: FactTheme, size: int, rng: Random) -> tuple[FactSpeaker, list[bool]]:
    """Names of the theme, and which of them are true; at least one is."""
    names = tuple(rng.sample(theme.names, size))
    truth = [rng.random() < 0.5 for _ in names]
    truth[rng.randrange(size)] = True
    return FactSpeaker(theme, names, rng), truth


THEME = FactTheme("people", NAMES, "is a knight", "is a knave", "are knights")
TOLD = 3
"""Highest level that gives the kind of one person."""


def knights(level: int, rng: Random, queries: int) -> WordPuzzle:
    """Who of these people, who speak about each other, are knights?"""
    size = between(level, 4, 10)
    speech, truth = _draw_facts(THEME, size, rng)
    facts = [Clue(f"{fact.text}.", fact.worlds) for fact in map(speech.literal, count(), truth)]
    told = rng.sample(facts, size)
    said = (_said(speech, rng.randrange(size), rng.choice(tier(level, TIERS))) for _ in range(TRIES * size))
    clues = choose(chain(told[:1] if level <= TOLD else [], said), told, world_of(truth))
    heard = "\n".join(clue.text for clue in rng.sample(clues, len(clues)))
    return subset_puzzle(
        f"Knights say what is true, knaves what is false.\n{heard}\nWhich of {', '.join(speech.names)} are knights?",
        "all knights, with commas",
        speech.names,
        truth,
        [fact.text for fact in facts],
        queries,
    )


def _said(speech: FactSpeaker, speaker: int, kind: str) -> Clue:
    """A statement by a speaker: it is true exactly where the speaker is a knight."""
    said = speech.say(kind, without=speaker)
    return Clue(f'{speech.names[speaker]}: "{said.text}"', speech.every ^ speech.facts[speaker] ^ said.worlds)
