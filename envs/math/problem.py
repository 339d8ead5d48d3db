"""Problems: a prompt, an answer and a worked solution; also those that a user writes as task templates."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from pydantic import Field

from loomrl.envs.math.answer import AnswerMatch, Kind, MathAnswer, compare
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import Number, number
from loomrl.envs.math.syntax import evaluate, read
from loomrl.envs.math.value import Calculator, Unreadable, rational
from loomrl.errors import ConfigError
from loomrl.gym.generate import TemplateParameters
from loomrl.types import Task


@dataclass(frozen=True, slots=True)
class MathProblem:
    """One question. `known` holds the unknowns' values for each solution: `x = 4` makes `2x = 8` a true step."""

    prompt: str
    answer: MathAnswer
    steps: tuple[str, ...]
    known: tuple[Mapping[str, str], ...] = field(default=())

    @property
    def letters(self) -> str:
        """The letters that may occur in a step."""
        return "".join(
            sorted({"x", *self.answer.variables, *"".join(self.answer.names), *"".join(map("".join, self.known))})
        )


def pose(
    rng: Random,
    answer: MathAnswer | Number | str,
    steps: Iterable[str],
    *wordings: str,
    note: str = "",
    known: tuple[Mapping[str, str], ...] = (),
) -> MathProblem:
    """The problem in one of several wordings, with a note behind it; an answer without a form is its value."""
    if not isinstance(answer, MathAnswer):
        answer = MathAnswer(answer if isinstance(answer, str) else number(answer))
    return MathProblem(phrase(rng, *wordings) + note, answer, tuple(steps), known)


def pose_fraction(rng: Random, value: Fraction, steps: Iterable[str], *wordings: str, note: str = "") -> MathProblem:
    """A question whose answer is a number in lowest terms; the prompt says so."""
    note += " Give a whole number or a fraction in lowest terms."
    return pose(rng, MathAnswer(number(value), form=Form.LOWEST), steps, *wordings, note=note)


Worked = tuple[str, str, list[str]]
"""A question in signs, its answer, and the steps."""
Generator = Callable[[int, Random], MathProblem]
"""(level, randomness) → problem; equal arguments give equal problems in every process."""


def nonzero(rng: Random, size: int) -> int:
    """A whole number between -size and size, but not 0."""
    return rng.choice((-1, 1)) * rng.randint(1, size)


def phrase(rng: Random, *wordings: str) -> str:
    """One of several ways to say the same."""
    return rng.choice(wordings)


FAMILY = "custom"


class CustomParameters(TemplateParameters):
    """The parameters in a template of Math."""

    prompt: str = Field(min_length=1)
    answer: str
    """Plain notation; a number may be given as the expression that computes it, such as `7*50/100`."""
    kind: Kind = "value"
    unknowns: tuple[str, ...] = ()
    variables: str = ""
    unit: str = ""


def custom_problem(task: Task) -> MathProblem:
    """The problem of these parameters; an answer that our own grammar cannot read is a ConfigError."""
    given = CustomParameters.of(task)
    text = _compute(given.answer, given.variables) if given.kind == "value" else given.answer
    for form in (Form.EXPANDED, Form.AS_GIVEN):
        answer = MathAnswer(
            text, kind=given.kind, form=form, names=given.unknowns, variables=given.variables, unit=given.unit
        )
        # an answer that our own reader refuses would make the task unsolvable
        if compare(answer, text) is AnswerMatch.EQUAL:
            return MathProblem(given.prompt, answer, ())
    raise ConfigError(
        f"answer={given.answer!r} is no finished {given.kind}. Write it in plain notation, every number worked out."
    )


def _compute(text: str, variables: str) -> str:
    """The number that an expression stands for; anything else unchanged."""
    try:
        value = rational(evaluate(read(text, variables), Calculator()))
    except Unreadable:
        return text
    return text if value is None else number(value)
