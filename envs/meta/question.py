"""A question of MetaReasoning, and how an answer to it is marked."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol

LONGEST = 200
"""Characters of an answer; what is longer is none."""


class Mark(NamedTuple):
    """Whether an answer is right, and how far its confidence is from the truth: Brier's loss, 0 to 1."""

    right: bool
    loss: float = 0.0


class Question(Protocol):
    """A question as the environment sees it."""

    @property
    def prompt(self) -> str:
        """What is asked."""

    @property
    def usage(self) -> str:
        """What stands behind `ANSWER:`."""

    @property
    def answer(self) -> str:
        """The perfect answer."""

    def mark(self, text: str) -> Mark | None:
        """The mark of an answer, or None where it has not the form that was asked for."""

    def guess(self, rng: Random) -> str:
        """An answer in the right form, without skill."""


@dataclass(frozen=True, slots=True)
class NumberQuestion:
    """A question whose answer is a whole number."""

    prompt: str
    number: int
    usage: str = "whole number"

    @property
    def answer(self) -> str:
        """The number."""
        return str(self.number)

    def mark(self, text: str) -> Mark | None:
        """Right is the number, and nothing beside it."""
        number = whole_number(text)
        return None if number is None else Mark(number == self.number)

    def guess(self, rng: Random) -> str:
        """A small number, or one of the question."""
        return str(rng.choice([rng.randint(0, 100), *numbers_in(self.prompt)]))


Questions = Sequence[Question]
"""What is asked in an episode, one after the other; all must be answered rightly."""


def whole_number(text: str) -> int | None:
    """The number that the text is; a sign and a final point or percent sign may stand with it."""
    found = re.fullmatch(r"([-−+]?)([0-9]{1,15})(?:\.0*)?%?\.?", text.strip())
    if found is None:
        return None
    return -int(found[2]) if found[1] in ("-", "−") else int(found[2])


def numbers_in(text: str) -> list[int]:
    """All numbers of a text."""
    return [int(digits) for digits in re.findall(r"[0-9]{1,15}", text)]
