"""Sums too long for the head, and a calculator that is exact among some that are not."""

from collections.abc import Callable
from fractions import Fraction
from random import Random

from loomrl.envs.tool.amount import UnreadableAmount, spelt, value_of
from loomrl.envs.tool.call import FunctionCall
from loomrl.envs.tool.corpus import THINGS
from loomrl.envs.tool.kit import Arguments, PolicyTool, Run, fields, text
from loomrl.envs.tool.problem import ToolProblem, faults_for
from loomrl.envs.tool.world import ToolError, ToolWorld
from loomrl.gym.generate import between

LONGEST = 120
"""Characters of an expression."""
_EXPRESSION = fields(expression=text("such as (2 + 3.5) * 4", longest=LONGEST))


def calculator_problem(level: int, rng: Random) -> ToolProblem:
    """A number that needs computing: one product at level 1, what a whole store is worth at level 10."""
    request, steps = _product(level, rng) if level <= 2 else _stock(level, rng)
    return ToolProblem(
        request=request,
        world=ToolWorld(),
        tools=(CALCULATE,),
        script=tuple(FunctionCall("calculate", {"expression": step}) for step in steps),
        answer=spelt(value_of(steps[-1])),
        decoys=tuple(DECOYS[: between(level, 0, len(DECOYS))]),
        faults=faults_for(level, rng),
    )


def _product(level: int, rng: Random) -> tuple[str, list[str]]:
    size = 10 ** (level + 1)
    first = rng.randrange(size // 10, size)
    second = rng.randrange(11, 100)
    return f"What is {first} * {second}?", [f"{first} * {second}"]


def _stock(level: int, rng: Random) -> tuple[str, list[str]]:
    lines = []
    terms = []
    for name in rng.sample(THINGS, between(level, 1, 8)):
        crates = rng.randint(12, 99)
        each = rng.randint(110, 900)
        price = f"{rng.randint(1, 40)}.{rng.randint(1, 99):02}"
        sold = rng.randint(100, 1000)
        lines.append(f"{crates} crates of {each} {name}s at {price} each, of which {sold} pieces were sold")
        terms.append(f"({crates} * {each} - {sold}) * {price}")
    if level < 6:
        total = " + ".join(terms)
        return f"A store had {'; '.join(lines)}. What is the rest worth?", _in_parts(terms, total)
    rebate = rng.randint(3, 40)
    request = (
        f"A store had {'; '.join(lines)}. What is the rest worth after a rebate of {rebate} percent on everything? "
        "Give the exact number."
    )
    return request, _in_parts(terms, f"({' + '.join(terms)}) * (100 - {rebate}) / 100")


def _in_parts(terms: list[str], whole: str) -> list[str]:
    """One expression if it is short enough; otherwise each term, and then the expression of their values."""
    if len(whole) <= LONGEST:
        return [whole]
    for term in terms:
        whole = whole.replace(term, spelt(value_of(term)), 1)
    return [*terms, whole]


def _compute(change: Callable[[Fraction], Fraction]) -> Run:
    def run(world: ToolWorld, arguments: Arguments) -> str:
        try:
            return spelt(change(value_of(arguments["expression"])))
        except UnreadableAmount as error:
            raise ToolError(422, str(error)) from error

    return run


def _rough(value: Fraction) -> Fraction:
    return Fraction(f"{float(value):.2g}")


CALCULATE = PolicyTool("calculate", "the exact value of an expression", _EXPRESSION, _compute(lambda value: value))
DECOYS = (
    PolicyTool("estimate", "the value of an expression, to two digits", _EXPRESSION, _compute(_rough)),
    PolicyTool("calculate_v1", "deprecated: the value, rounded down to a whole number", _EXPRESSION,
         _compute(lambda value: Fraction(value.__floor__()))),
    PolicyTool("calculate_signed", "the value as a 16 bit integer, for register tests", _EXPRESSION,
         _compute(lambda value: Fraction((value.__floor__() + 2**15) % 2**16 - 2**15))),
    PolicyTool("calculate_tax", "the value of an expression, with 19 percent added", _EXPRESSION,
         _compute(lambda value: value * 119 / 100)),
)  # fmt: skip
