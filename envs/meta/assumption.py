"""Underspecified problems: the answer is either the number, or the missing quantity."""

import re
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from loomrl.envs.meta.question import Mark, Questions, numbers_in, whole_number
from loomrl.gym.generate import between, words


class QuantityTheme(NamedTuple):
    """Wording of quantities of one sort."""

    things: tuple[str, ...]
    opening: str
    value: str
    more: str
    less: str
    times: str
    together: str
    total: str
    gap: str


THEMES = (
    QuantityTheme(
        words("fox goat hen pig dog cat owl cow swan seal lynx toad"),
        "Animals:",
        "The {a} weighs {n} kg.",
        "The {a} weighs {n} kg more than the {b}.",
        "The {b} weighs {n} kg less than the {a}.",
        "The {a} weighs {n} times as much as the {b}.",
        "The {a} and the {b} weigh {n} kg together.",
        "How many kg do {} weigh together?",
        "How many kg more does the {a} weigh than the {b}?",
    ),
    QuantityTheme(
        words("pen book lamp cup hat bag ball bell coat drum flute vase"),
        "For sale:",
        "The {a} costs {n} coins.",
        "The {a} costs {n} coins more than the {b}.",
        "The {b} costs {n} coins less than the {a}.",
        "The {a} costs {n} times as much as the {b}.",
        "The {a} and the {b} cost {n} coins together.",
        "How many coins do {} cost together?",
        "How many coins more does the {a} cost than the {b}?",
    ),
)
UNKNOWN = "missing"
COMPLETE = 0.65
"""The share of problems that have an answer."""


@dataclass(frozen=True, slots=True)
class AssumptionQuestion:
    """A problem that has an answer, or lacks one quantity; any of `lacking` would make it complete."""

    prompt: str
    number: int
    lacking: tuple[str, ...]
    things: tuple[str, ...]
    usage: str = f"the number, or: {UNKNOWN} THING"

    @property
    def answer(self) -> str:
        """The number, or the missing quantity."""
        return f"{UNKNOWN} {self.lacking[0]}" if self.lacking else str(self.number)

    def mark(self, text: str) -> Mark | None:
        """Right is the number if there is one, else one thing that is missing, and nothing beside it."""
        number = whole_number(text)
        if number is not None:
            return Mark(not self.lacking and number == self.number)
        found = re.fullmatch(rf"{UNKNOWN}:? +(?:the )?([a-z]{{2,10}})\.?", text.strip().lower())
        return None if found is None else Mark(found[1] in self.lacking)

    def guess(self, rng: Random) -> str:
        """A thing, or a number of the text."""
        return rng.choice((f"{UNKNOWN} {rng.choice(self.things)}", str(rng.choice(numbers_in(self.prompt)))))


class QuantityStory:
    """Things tied to each other in knots; of one knot, the loose one, no value is stated."""

    def __init__(self, level: int, rng: Random) -> None:
        self.level = level
        self.rng = rng
        self.theme = rng.choice(THEMES)
        self.things = tuple(rng.sample(self.theme.things, between(level, 4, 12)))
        self.values = [rng.randint(2, 9 + 9 * level) for _ in self.things]
        self.factor = [1] * len(self.things)
        """By how much a thing grows where the first of its knot grows by one."""
        self.said: list[str] = []
        order = rng.sample(range(len(self.things)), len(self.things))
        size = 1 if level < 4 else rng.randint(2, 3)
        self.loose = order[:size]
        order = order[size:]
        self._tie(self.loose)
        while order:
            size = rng.randint(1, between(level, 2, 4))
            knot = order[:size]
            order = order[size:]
            self._tie(knot)
            stated = rng.choice(knot)
            self._say(theme_text=self.theme.value, a=stated, b=stated, n=self.values[stated])
        rng.shuffle(self.said)

    def _tie(self, knot: list[int]) -> None:
        """Say of each member how it follows from one before it."""
        kinds = ("more", "more", "times", "together") if self.level > 2 else ("more",)
        for place, thing in enumerate(knot[1:], start=1):
            other = self.rng.choice(knot[:place])
            kind = self.rng.choice(kinds)
            if kind == "more":
                self._compare(thing, other)
                self.factor[thing] = self.factor[other]
            elif kind == "times":
                times = self.rng.randint(2, 4)
                self.values[thing] = times * self.values[other]
                self.factor[thing] = times * self.factor[other]
                self._say(self.theme.times, thing, other, times)
            else:
                self.factor[thing] = -self.factor[other]
                self._say(self.theme.together, thing, other, self.values[thing] + self.values[other])

    def _compare(self, thing: int, other: int) -> None:
        """Say which is more, at higher levels now and then both ways round, which tells nothing new."""
        if self.values[thing] == self.values[other]:
            self.values[thing] += 1
        high, low = sorted((thing, other), key=lambda item: -self.values[item])
        texts = [self.theme.more, self.theme.less]
        count = 2 if self.level > 5 and self.rng.random() < 0.4 else 1
        for text in self.rng.sample(texts, count):
            self._say(text, high, low, self.values[high] - self.values[low])

    def _say(self, theme_text: str, a: int, b: int, n: int) -> None:
        self.said.append(theme_text.format(a=self.things[a], b=self.things[b], n=n))

    def ask(self, complete: bool) -> AssumptionQuestion:
        """A question with an answer, or one that lacks the loose knot."""
        tricky = complete and self.level > 4 and self.rng.random() < 0.5
        while True:
            asked, gap = self._draw()
            growth = sum(self.factor[thing] * sign for thing, sign in asked if thing in self.loose)
            touches = any(thing in self.loose for thing, _ in asked)
            if complete and growth == 0 and (touches or not tricky):
                break
            if not complete and growth:
                break
            tricky = tricky and self.rng.random() < 0.95
        number = sum(sign * self.values[thing] for thing, sign in asked)
        lacking = () if complete else tuple(self.things[thing] for thing in self.loose)
        names = [self.things[thing] for thing, _ in asked]
        text = (
            self.theme.gap.format(a=names[0], b=names[1])
            if gap
            else self.theme.total.format(f"the {', '.join(names[:-1])} and {names[-1]}")
        )
        prompt = f"{self.theme.opening} {', '.join(self.things)}. {' '.join(self.said)} {text}"
        return AssumptionQuestion(prompt, number, lacking, self.things)

    def _draw(self) -> tuple[list[tuple[int, int]], bool]:
        """Things to ask about with the signs they have, and whether it is about the gap between two."""
        items = range(len(self.things))
        if self.level > 3 and self.rng.random() < 0.2:
            low, high = sorted(self.rng.sample(items, 2), key=lambda item: self.values[item])
            return [(high, 1), (low, -1)], True
        count = 3 if self.level < 4 else self.rng.randint(4, 6)
        return [(thing, 1) for thing in self.rng.sample(items, count)], False


def incomplete_problem(level: int, rng: Random) -> Questions:
    """A problem that is complete more often than not; in all of them something is not said."""
    return (QuantityStory(level, rng).ask(complete=rng.random() < COMPLETE),)
