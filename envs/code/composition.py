"""Problems composed of small parts: an unlimited number, longer and more complex at higher levels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from loomrl.envs.code.draw import integer, numbers
from loomrl.envs.code.problem import CodeProblem, normal, run
from loomrl.envs.code.value import same

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


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One step. `{k}` and `{m}` are numbers to be drawn; `code` rebinds `items`, or returns at the end."""

    words: str
    code: str

    def draw_numbers(self, rng: Random) -> "PipelineStep":
        """The step with its open numbers drawn."""
        numbers = {"k": str(rng.randint(2, 6)), "m": str(rng.randint(3, 9))}
        words = self.words
        code = self.code
        for name, number in numbers.items():
            words = words.replace(f"{{{name}}}", number)
            code = code.replace(f"{{{name}}}", number)
        return PipelineStep(words, code)


FILTERS = (
    PipelineStep(
        "Keep only the numbers that are divisible by {k}.", "items = [item for item in items if item % {k} == 0]"
    ),
    PipelineStep(
        "Take out the numbers that are divisible by {k}.", "items = [item for item in items if item % {k} != 0]"
    ),
    PipelineStep("Keep only the numbers greater than {m}.", "items = [item for item in items if item > {m}]"),
    PipelineStep("Keep only the numbers of at most {m}.", "items = [item for item in items if item <= {m}]"),
    PipelineStep("Take out the negative numbers.", "items = [item for item in items if item >= 0]"),
    PipelineStep("Take out the first {k} numbers.", "items = items[{k}:]"),
    PipelineStep("Keep only every second number, beginning with the first.", "items = items[::2]"),
    PipelineStep("Take out repetitions: keep each number where it first occurs.", "items = list(dict.fromkeys(items))"),
)
MAPS = (
    PipelineStep("Multiply each number by {k}.", "items = [item * {k} for item in items]"),
    PipelineStep("Add {m} to each number.", "items = [item + {m} for item in items]"),
    PipelineStep("Subtract each number from {m}.", "items = [{m} - item for item in items]"),
    PipelineStep("Replace each number by its square.", "items = [item * item for item in items]"),
    PipelineStep("Replace negative numbers by their absolute values.", "items = [abs(item) for item in items]"),
    PipelineStep("Replace each number by its remainder when divided by {m}.", "items = [item % {m} for item in items]"),
    PipelineStep(
        "Add to each number its position, counted from 0.",
        "items = [item + place for place, item in enumerate(items)]",
    ),
    PipelineStep(
        "Multiply each number by its position, counted from 1.",
        "items = [item * place for place, item in enumerate(items, start=1)]",
    ),
    PipelineStep("Replace numbers greater than {m} by {m}.", "items = [min(item, {m}) for item in items]"),
)
ORDERS = (
    PipelineStep("Sort the numbers in ascending order.", "items = sorted(items)"),
    PipelineStep("Sort the numbers in descending order.", "items = sorted(items, reverse=True)"),
    PipelineStep("Reverse the list.", "items = items[::-1]"),
    PipelineStep(
        "Move the even numbers in front of the odd ones; otherwise keep their order.",
        "items = [item for item in items if item % 2 == 0] + [item for item in items if item % 2 != 0]",
    ),
    PipelineStep("Move the first number to the end.", "items = items[1:] + items[:1]"),
)
NEIGHBOURS = (
    PipelineStep(
        "Replace each number by the sum of all numbers up to it, itself included.",
        "items = [sum(items[:place + 1]) for place in range(len(items))]",
    ),
    PipelineStep(
        "Replace the list by the differences of neighbours: second minus first, third minus second, and so on.",
        "items = [after - before for before, after in zip(items, items[1:])]",
    ),
    PipelineStep(
        "Replace each number by the largest of all numbers up to it, itself included.",
        "items = [max(items[:place + 1]) for place in range(len(items))]",
    ),
    PipelineStep(
        "Replace the list by the sums of neighbours: first plus second, second plus third, and so on.",
        "items = [before + after for before, after in zip(items, items[1:])]",
    ),
    PipelineStep(
        "Keep only the numbers that are greater than the one before them in the list; the first number stays out.",
        "items = [after for before, after in zip(items, items[1:]) if after > before]",
    ),
)
MACHINES = (
    PipelineStep(
        "Begin with a total of {m}. For each number: if it is even, add it to the total, otherwise subtract {k} from "
        "the total; each time put the total in place of the number.",
        """total = {m}
totals = []
for item in items:
    total = total + item if item % 2 == 0 else total - {k}
    totals.append(total)
items = totals""",
    ),
    PipelineStep(
        "Begin with an empty stack. For each number: if the stack is empty or the number is at least the top of the "
        "stack, put the number on it, otherwise replace the top by top minus {k}. Go on with the stack, bottom first.",
        """stack = []
for item in items:
    if not stack or item >= stack[-1]:
        stack.append(item)
    else:
        stack[-1] = stack[-1] - {k}
items = stack""",
    ),
    PipelineStep(
        "Begin with a limit of {m}. For each number: if it is greater than the limit, keep it and raise the limit by "
        "{k}, otherwise take it out and lower the limit by 1.",
        """limit = {m}
kept = []
for item in items:
    if item > limit:
        kept.append(item)
        limit += {k}
    else:
        limit -= 1
items = kept""",
    ),
    PipelineStep(
        "If the list has more than {k} numbers, add its length to each of them; otherwise double each of them.",
        """if len(items) > {k}:
    items = [item + len(items) for item in items]
else:
    items = [item * 2 for item in items]""",
    ),
    PipelineStep(
        "Cut the list into groups of {k} from the left; the last one may be shorter. Replace each group by its sum.",
        "items = [sum(items[start:start + {k}]) for start in range(0, len(items), {k})]",
    ),
)
ENDS = (
    PipelineStep("Return the sum of the numbers.", "return sum(items)"),
    PipelineStep("Return the sum of the numbers plus {m}.", "return sum(items) + {m}"),
    PipelineStep("Return the largest number, or {m} if there is none.", "return max(items, default={m})"),
    PipelineStep("Return the smallest number, or {m} if there is none.", "return min(items, default={m})"),
    PipelineStep("Return the list.", "return items"),
    PipelineStep("Return the sum of the squares of the numbers.", "return sum((item * item for item in items))"),
    PipelineStep("Return {m} times the number of numbers, plus their sum.", "return {m} * len(items) + sum(items)"),
    PipelineStep("Return the last number, or {m} if there is none.", "return items[-1] if items else {m}"),
    PipelineStep(
        "Return the sum of the numbers at even positions minus the sum of those at odd positions, counted from 0.",
        "return sum(items[::2]) - sum(items[1::2])",
    ),
    PipelineStep(
        "Return the largest number minus the smallest one, or {m} if there is none.",
        "return max(items) - min(items) if items else {m}",
    ),
)


_FIRST_LEVEL = 3
_MACHINES_FROM = 6
_SAMPLES = 16
"""Lists on which a step must make a difference to stay."""
_RESULTS = 40
_MOST_ALIKE = 16
"""Maximum number of equal results among `_RESULTS` lists: if most are equal, few show the effect of earlier steps."""


def pipeline(name: str, level: int, rng: Random) -> CodeProblem:
    """A function that sends its list through steps that all matter; some remember something, from level 6 on."""
    while True:
        problem = _draw_pipeline(name, level, rng)
        results = Counter(repr(run(problem.source, name, problem.inputs(rng))) for _ in range(_RESULTS))
        if max(results.values()) <= _MOST_ALIKE:
            return problem


def _draw_pipeline(name: str, level: int, rng: Random) -> CodeProblem:
    """A pipeline in which each step matters for some list, even if most lists end up equal."""
    end = rng.choice(ENDS).draw_numbers(rng)
    draw = numbers(-9, 40, fewest=0, most=level + 8)
    samples = [draw(rng) for _ in range(_SAMPLES)]
    steps = _steps(level, rng)
    before = [run(_source(name, [*steps, end]), name, (items,)) for items in samples]
    for step in list(steps):
        fewer = [other for other in steps if other is not step]
        after = [run(_source(name, [*fewer, end]), name, (items,)) for items in samples]
        if same(before, after):
            steps = fewer
    return CodeProblem(name, _signature(end), _describe([*steps, end]), normal(_source(name, [*steps, end])), (draw,))


def _source(name: str, steps: Sequence[PipelineStep]) -> str:
    head = CodeProblem(name, _signature(steps[-1]), "", "", ()).head
    lines = [line for step in steps for line in step.code.split("\n")]
    return "\n".join([head, *(f"    {line}" for line in lines)])


def _signature(end: PipelineStep) -> str:
    return f"items: list[int] -> {'list[int]' if end.code == 'return items' else 'int'}"


def _steps(level: int, rng: Random) -> list[PipelineStep]:
    """No two from one kind follow each other, nor does one come twice."""
    kinds = [FILTERS, MAPS, ORDERS, NEIGHBOURS][: 2 if level == _FIRST_LEVEL else 4]
    machines = max(0, level - _MACHINES_FROM + 2) // 2
    chosen = rng.sample(MACHINES, machines)
    last: tuple[PipelineStep, ...] = ()
    while len(chosen) < level - _FIRST_LEVEL + 1:
        kind = rng.choice(kinds)
        step = rng.choice(kind)
        if kind is not last and step not in chosen:
            chosen.append(step)
            last = kind
    rng.shuffle(chosen)
    return [step.draw_numbers(rng) for step in chosen]


def _describe(steps: list[PipelineStep]) -> str:
    if len(steps) <= 3:
        return " ".join(step.words for step in steps)
    return "\n".join(f"{number}. {step.words}" for number, step in enumerate(steps, start=1))


NAME = "f"
"""The name of every composed function."""


def compose(level: int, rng: Random) -> CodeProblem:
    """A problem of this level: one formula, a choice between two, then lists that pass through more and more steps."""
    if level == 1:
        return formula(NAME, rng)
    if level == 2:
        return two_ways(NAME, rng)
    return pipeline(NAME, level, rng)


__all__ = ["NAME", "compose"]
