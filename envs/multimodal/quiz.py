"""Generated quizzes: a question, its picture, and its grading."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from loomrl.gym.generate import words

LONGEST = 4000
"""Characters of an answer that is read."""
NUMBERS = words("zero one two three four five six seven eight nine ten eleven twelve")


@dataclass(frozen=True, slots=True)
class Quiz:
    """A question whose answer is in the picture."""

    question: str
    answer: str
    draw: Callable[[], bytes]
    """The picture as PNG."""
    score: Callable[[str], float]
    """The grade of an answer, 0 to 1."""
    guesses: tuple[tuple[str, ...], ...]
    """The choices for each part of an answer, for policies that guess."""


def exact(answer: str) -> Callable[[str], float]:
    """Right or wrong, in any spelling."""
    expected = spelt(answer)

    def score(given: str) -> float:
        return float(spelt(given) == expected)

    return score


def spelt(text: str) -> str:
    """One spelling of answers that say the same: case, articles, number words, commas, spaces, a full stop or `%`."""
    if len(text) > LONGEST or not text.isascii():
        return "?"
    plain = text.strip().lower().removesuffix(".").removesuffix("%")
    words = re.split(r"\s*,\s*|\s+", plain.strip())
    if words[0] in ("a", "an", "the") and len(words) > 1:
        words = words[1:]
    return " ".join(map(_number, words))


def _number(word: str) -> str:
    if word in NUMBERS:
        return str(NUMBERS.index(word))
    whole = word.rstrip("0").removesuffix(".") if "." in word else word
    return whole.lstrip("0") or "0" if whole.isdecimal() else word
