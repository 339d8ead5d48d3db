"""The smallest problems: a formula of two numbers, or a choice between two of them."""

from dataclasses import dataclass
from random import Random

from loomrl.envs.code.draw import integer
from loomrl.envs.code.problem import CodeProblem, normal

_SIGNATURE = "a: int, b: int -> int"


@dataclass(frozen=True, slots=True)
class Formula:
    """The same in words and as code; `{k}` and `{m}` are numbers to be drawn."""

    words: str
    code: str


_FORMULAS = (
    Formula("a plus {k} times b", "a + {k} * b"),
    Formula("{k} times a, minus b", "{k} * a - b"),
    Formula("a times b, plus {k}", "a * b + {k}"),
    Formula("a times b, minus {k}", "a * b - {k}"),
    Formula("{k} times the sum of a and b", "{k} * (a + b)"),
    Formula("b minus a, plus {k}", "b - a + {k}"),
    Formula("b times the number {k} minus a", "b * ({k} - a)"),
    Formula("b times the sum of a and {k}", "b * (a + {k})"),
    Formula("{k} times the larger of a and b", "{k} * max(a, b)"),
    Formula("the smaller of a and b, plus {k}", "min(a, b) + {k}"),
    Formula("the distance of a and b, plus {k}", "abs(a - b) + {k}"),
    Formula("a squared, minus {k} times b", "a * a - {k} * b"),
    Formula("{k} times a, plus {m} times b", "{k} * a + {m} * b"),
    Formula("a plus b, minus {k}", "a + b - {k}"),
)
_REMAINDERS = (
    Formula("the remainder of a divided by {m}, plus b", "a % {m} + b"),
    Formula("{k} times the remainder of a divided by {m}", "a % {m} * {k}"),
)
_CONDITIONS = (
    Formula("a is greater than b", "a > b"),
    Formula("a is at least {m}", "a >= {m}"),
    Formula("b is smaller than {m}", "b < {m}"),
    Formula("a plus b is even", "(a + b) % 2 == 0"),
    Formula("a is divisible by {m}", "a % {m} == 0"),
    Formula("a and b differ by more than {m}", "abs(a - b) > {m}"),
    Formula("a is not negative", "a >= 0"),
    Formula("a and b are both greater than {m}", "a > {m} and b > {m}"),
)


def formula(name: str, rng: Random) -> CodeProblem:
    """A function that computes one formula."""
    drawn = _fill_numbers(rng.choice(_FORMULAS + _REMAINDERS), rng)
    body = f"return {drawn.code}"
    return _problem(name, f"Return {drawn.words}.", body)


def two_ways(name: str, rng: Random) -> CodeProblem:
    """A function that computes one of two formulas."""
    first, second = (_fill_numbers(each, rng) for each in rng.sample(_FORMULAS + _REMAINDERS, 2))
    condition = _fill_numbers(rng.choice(_CONDITIONS), rng)
    prompt = f"If {condition.words}, return {first.words}. Otherwise return {second.words}."
    return _problem(name, prompt, f"if {condition.code}:\n        return {first.code}\n    return {second.code}")


def _problem(name: str, prompt: str, body: str) -> CodeProblem:
    head = CodeProblem(name, _SIGNATURE, "", "", ()).head
    draws = (integer(-9, 20), integer(-9, 20))
    return CodeProblem(name, _SIGNATURE, prompt, normal(f"{head}\n    {body}"), draws)


def _fill_numbers(open_formula: Formula, rng: Random) -> Formula:
    numbers = {"k": rng.randint(2, 9), "m": rng.randint(3, 7)}
    return Formula(open_formula.words.format(**numbers), open_formula.code.format(**numbers))
