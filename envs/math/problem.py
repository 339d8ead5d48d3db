"""Generated problems: a question, its exact answer, and a worked solution."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import number


@dataclass(frozen=True, slots=True)
class Problem:
    """One question. `known` holds the unknowns' values for each solution: `x = 4` makes `2x = 8` a true step."""

    prompt: str
    answer: Answer
    steps: tuple[str, ...]
    known: tuple[Mapping[str, str], ...] = field(default=())

    @property
    def letters(self) -> str:
        """The letters that may occur in a step."""
        return "".join(
            sorted({"x", *self.answer.variables, *"".join(self.answer.names), *"".join(map("".join, self.known))})
        )


def fraction_problem(prompt: str, value: Fraction, steps: Sequence[str]) -> Problem:
    """A question whose answer is a number in lowest terms; the prompt says so."""
    prompt += " Give a whole number or a fraction in lowest terms."
    return Problem(prompt, Answer(number(value), form=Form.LOWEST), tuple(steps))


Generator = Callable[[int, Random], Problem]
"""(level, randomness) → problem; equal arguments give equal problems in every process."""


def nonzero(rng: Random, size: int) -> int:
    """A whole number between -size and size, but not 0."""
    return rng.choice((-1, 1)) * rng.randint(1, size)


def phrase(rng: Random, *wordings: str) -> str:
    """One of several ways to say the same."""
    return rng.choice(wordings)
