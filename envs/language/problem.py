"""Generated problems: a prompt, the right answer, and the grading of any answer."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple


class Grade(NamedTuple):
    """The grade of an answer. Parts beside `success` are None if the family does not have them."""

    success: float
    coherence: float | None = None
    detail: float | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One question. `guesses` are answers of the right kind that need no understanding, such as all cities named."""

    prompt: str
    answer: str
    grade: Callable[[str], Grade]
    guesses: tuple[str, ...]
    reasoning: str


Generator = Callable[[int, Random], Problem]
"""(level, randomness) → problem; equal arguments give equal problems in every process."""


def exact(same: Callable[[str, str], bool], truth: str) -> Callable[[str], Grade]:
    """A grading that knows right and wrong."""
    return lambda given: Grade(float(same(given, truth)))
