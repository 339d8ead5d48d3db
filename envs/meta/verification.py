"""Verification: a chain of steps; which is the first wrong one, and what should it be?"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from loomrl.envs.meta.question import Mark, Questions, whole_number
from loomrl.gym.generate import between

RIGHT = 0.08
"""The share of chains without an error."""
LARGEST = 10**8
SIGNS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "×": lambda a, b: a * b,
}


@dataclass(frozen=True, slots=True)
class ChainQuestion:
    """A chain with at most one first wrong step."""

    prompt: str
    wrong: tuple[int, int] | None
    """Its number, and the right value there."""
    length: int
    usage: str = "number of the first wrong step, its right value (or: none)"

    @property
    def answer(self) -> str:
        """Step and value, or none."""
        return "none" if self.wrong is None else f"{self.wrong[0]}, {self.wrong[1]}"

    def mark(self, text: str) -> Mark | None:
        """Right are the step and its value both, or none where all are right."""
        bare = text.strip().rstrip(".").lower()
        if bare == "none":
            return Mark(self.wrong is None)
        found = re.fullmatch(
            r"(?:step )?([0-9]{1,3})(?:[,:;] *| +)(-?[0-9][0-9,]{0,18}(?:\.0*)?)", bare.replace("−", "-")
        )
        value = whole_number(found[2]) if found else None
        return None if found is None or value is None else Mark((int(found[1]), value) == self.wrong)

    def guess(self, rng: Random) -> str:
        """A step of the chain with a small value."""
        return rng.choice((f"{rng.randint(1, self.length)}, {rng.randint(0, 100)}", "none"))


def verification(level: int, rng: Random) -> Questions:
    """A chain of calculations; each goes on from the last, at higher levels from any before."""
    length = between(level, 5, 24)
    errors = _errors(length, level, rng)
    values = [rng.randint(2, 9 * level)]
    lines = []
    wrong = None
    for number in range(1, length + 1):
        at = len(values) - 1 if level < 5 or rng.random() < 0.4 else rng.randrange(len(values))
        sign, other, name = _operation(values, at, level, rng)
        right = written = SIGNS[sign](values[at], other)
        if number in errors:
            written = _slip(values[at], other, sign, rng)
            wrong = wrong or (number, right)
        values.append(written)
        lines.append(f"{number}. {_name(len(values) - 1)} = {_name(at)} {sign} {name} = {written}")
    steps = "\n".join(lines)
    prompt = f"a = {values[0]}\n{steps}\nWhich step is the first with a wrong result, and what is right there?"
    return (ChainQuestion(prompt, wrong, length),)


def _errors(length: int, level: int, rng: Random) -> Sequence[int]:
    """The numbers of the wrong steps; the first of them is at any step alike."""
    if rng.random() < RIGHT:
        return ()
    first = rng.randint(1, length)
    return [first, *(number for number in range(first + 1, length + 1) if level > 4 and rng.random() < 0.1)]


def _operation(values: list[int], at: int, level: int, rng: Random) -> tuple[str, int, str]:
    """A sign, the second number, and how that is written: as a number, or as the name of an earlier value."""
    while True:
        sign = rng.choice("+-×")
        other = rng.randint(2, 9 * level)
        name = str(other)
        if level > 4 and rng.random() < 0.5:
            place = rng.randrange(len(values))
            other = values[place]
            name = _name(place)
        if 0 < SIGNS[sign](values[at], other) < LARGEST:
            return sign, other, name


def _slip(value: int, other: int, sign: str, rng: Random) -> int:
    """A wrong result such as people make: one off, ten off, two digits exchanged, the wrong sign."""
    right = SIGNS[sign](value, other)
    digits = str(right)
    place = rng.randrange(max(1, len(digits) - 1))
    swapped = digits[:place] + digits[place : place + 2][::-1] + digits[place + 2 :]
    slips = [
        right + 1,
        right - 1,
        right + 10,
        right - 10,
        int(swapped),
        *(made(value, other) for made in SIGNS.values()),
    ]
    return rng.choice([slip for slip in slips if slip != right and 0 < slip < LARGEST])


def _name(place: int) -> str:
    return chr(ord("a") + place)
