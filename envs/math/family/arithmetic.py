"""Arithmetic: sums, products, mixed expressions, fractions, percentages, division with remainder."""

from fractions import Fraction
from random import Random
from typing import NamedTuple

from loomrl.envs.math.answer import MathAnswer
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import bracket, decimal, number
from loomrl.envs.math.problem import MathProblem, phrase, pose
from loomrl.gym.generate import between, words


def sums(level: int, rng: Random) -> MathProblem:
    """Additions and subtractions from left to right."""
    high = (40, 100, 300, 1000, 3000, 10_000, 40_000, 200_000, 1_000_000, 10_000_000)[level - 1]
    count = between(level, 2, 8)
    numbers = [rng.randint(high // 20, high) for _ in range(count)]
    signs = [1] + [rng.choice((1, -1) if level > 1 else (1,)) for _ in numbers[1:]]
    text = str(numbers[0]) + "".join(
        f" {'+' if s > 0 else '-'} {n}" for s, n in zip(signs[1:], numbers[1:], strict=True)
    )
    steps = []
    running = numbers[0]
    for sign, value in zip(signs[1:], numbers[1:], strict=True):
        following = running + sign * value
        steps.append(f"{bracket(running)} {'+' if sign > 0 else '-'} {value} = {following}")
        running = following
    return pose(
        rng,
        running,
        steps,
        f"Compute {text}.",
        f"What is {text}?",
        f"Work out the value of {text}.",
        f"Add and subtract from left to right: {text}. What is the result?",
    )


def product(level: int, rng: Random) -> MathProblem:
    """Products, by splitting one factor into its decimal places."""
    sizes = [(3, 60, 3, 19), (11, 99, 3, 19), (11, 99, 12, 99), (101, 999, 12, 99), (101, 999, 12, 99)]
    sizes += [(101, 999, 101, 999), (1001, 9999, 12, 99), (1001, 9999, 101, 999), (1001, 9999, 1001, 9999)]
    low, high, least, most = (*sizes, (10_001, 99_999, 1001, 9999))[level - 1]
    a = rng.randint(low, high)
    b = rng.randint(least, most)
    sign = rng.choice((1, -1)) if level >= 5 else 1
    steps = []
    parts = []
    for place, digit in enumerate(reversed(str(b))):
        if digit != "0":
            part = int(digit) * 10**place
            steps.append(f"{a} * {part} = {a * part}")
            parts.append(a * part)
    running = parts[0]
    for part in parts[1:]:
        steps.append(f"{running} + {part} = {running + part}")
        running += part
    if sign < 0:
        steps.append(f"The factors have different signs: {-a} * {b} = {-running}")
    text = f"{sign * a} × {b}"
    return pose(
        rng,
        sign * running,
        steps,
        f"Compute {text}.",
        f"What is the product {text}?",
        f"Multiply: {text}.",
        f"Find the exact value of {text}.",
    )


def expression(level: int, rng: Random) -> MathProblem:
    """Order of operations, built backwards from a whole result."""
    target = rng.randint(2, between(level, 30, 300))
    tree = _tree(target, between(level, 2, 8), rng, between(level, 12, 60))
    steps: list[str] = []
    _work_out(tree, steps)
    text = _show(tree)
    return pose(
        rng,
        target,
        steps,
        f"Evaluate {text}.",
        f"Compute the value of {text}.",
        f"Using the order of operations, work out {text}.",
        f"What number is {text}?",
    )


class Tree(NamedTuple):
    """An operation on two whole expressions."""

    operation: str
    left: "Tree | int"
    right: "Tree | int"


def _tree(target: int, size: int, rng: Random, spread: int) -> Tree | int:
    """An expression with `size` operations whose value is `target`."""
    if size == 0:
        return target
    divisors = [d for d in range(2, 20) if target and target % d == 0 and abs(target) > d]
    operation = rng.choice(("+", "-", "*", "/") if divisors else ("+", "-", "/"))
    if operation == "/" and abs(target) > 200:
        operation = "-"
    share = rng.randint(0, size - 1)
    if operation == "*":
        left, right = target // (d := rng.choice(divisors)), d
    elif operation == "/":
        left, right = target * (d := rng.randint(2, 9)), d
    else:
        other = rng.randint(1, spread)
        left, right = (target - other, other) if operation == "+" else (target + other, other)
    return Tree(operation, _tree(left, share, rng, spread), _tree(right, size - 1 - share, rng, spread))


def _show(tree: Tree | int, parent: str = "", right: bool = False) -> str:
    if isinstance(tree, int):
        return f"({tree})" if tree < 0 and parent else str(tree)
    operation, a, b = tree
    text = f"{_show(a, operation)} {_SIGN[operation]} {_show(b, operation, True)}"
    tight = parent in ("*", "/") and (operation in "+-" or right or operation == "/")
    return f"({text})" if tight or (parent == "-" and right and operation in "+-") else text


_SIGN = {"+": "+", "-": "-", "*": "×", "/": "÷"}


def _work_out(tree: Tree | int, steps: list[str]) -> int:
    """The value, one line per operation, inner operations first."""
    if isinstance(tree, int):
        return tree
    operation, a, b = tree
    left, right = _work_out(a, steps), _work_out(b, steps)
    result = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[operation]
    steps.append(f"{bracket(left)} {_SIGN[operation]} {bracket(right)} = {result}")
    return result


def fraction(level: int, rng: Random) -> MathProblem:
    """Fractions added, subtracted, multiplied and divided, in lowest terms."""
    count = between(level, 2, 5)
    size = between(level, 9, 40)
    values = [_proper(rng, size) for _ in range(count)]
    operations = "+-" if level <= 3 else "+-×÷"
    signs = [rng.choice(operations) for _ in values[1:]]
    text = number(values[0])
    running = values[0]
    steps = []
    for sign, value in zip(signs, values[1:], strict=True):
        following = _apply(running, sign, value)
        steps += _fraction_steps(running, sign, value, following)
        text = f"{text} {sign} {number(value)}" if sign in "+-" else f"({text}) {sign} ({number(value)})"
        running = following
    return pose(
        rng,
        MathAnswer(number(running), form=Form.LOWEST),
        steps,
        f"Compute {text}. Give a fraction in lowest terms, or a whole number.",
        f"What is {text} as a fraction in lowest terms?",
        f"Work out {text} and reduce the result to lowest terms.",
    )


def _proper(rng: Random, size: int) -> Fraction:
    bottom = rng.randint(2, size)
    value = Fraction(rng.randint(1, 2 * size), bottom)
    return value if value.denominator > 1 else value + Fraction(1, bottom)


def _apply(a: Fraction, sign: str, b: Fraction) -> Fraction:
    return {"+": a + b, "-": a - b, "×": a * b, "÷": a / b}[sign]


def _fraction_steps(a: Fraction, sign: str, b: Fraction, result: Fraction) -> list[str]:
    if sign in "+-":
        top, bottom = a.numerator * b.denominator, a.denominator * b.denominator
        other = b.numerator * a.denominator
        raw = f"{top + other if sign == '+' else top - other}/{bottom}"
        steps = [
            f"{a.denominator} * {b.denominator} = {bottom}",
            f"{bracket(a)} {sign} {bracket(b)} = {top}/{bottom} {sign} {other}/{bottom} = {raw}",
        ]
    else:
        factor = b if sign == "×" else 1 / b
        raw = f"{a.numerator * factor.numerator}/{a.denominator * factor.denominator}"
        steps = [f"{bracket(a)} {sign} {bracket(b)} = {bracket(a)} * {bracket(factor)} = {raw}"]
    return steps if raw == number(result) else [*steps, f"In lowest terms {raw} = {number(result)}"]


def percent(level: int, rng: Random) -> MathProblem:
    """Percentages: a part, a change, changes one after the other, and backwards."""
    maker = (_part, _part, _change, _change, _change, _successive, _successive, _backwards, _backwards, _backwards)
    return maker[level - 1](level, rng)


def _part(level: int, rng: Random) -> MathProblem:
    rate = 5 * rng.randint(1, 19)
    whole = (20 if level == 1 else 4) * rng.randint(3, 60)
    result = Fraction(rate * whole, 100)
    wordings = [f"What is {rate}% of {whole}?", f"Find {rate} percent of {whole}."]
    if result.denominator == 1:
        wordings.append(f"A school has {whole} students, and {rate}% of them walk to school. How many students walk?")
    return pose(
        rng,
        decimal(result),
        (f"{rate} * {whole} = {rate * whole}", f"{rate * whole} / 100 = {decimal(result)}"),
        *wordings,
    )


def _change(level: int, rng: Random) -> MathProblem:
    price = 4 * rng.randint(10, 40 * level)
    rate = rng.choice((5, 10, 12, 15, 20, 25, 30, 35, 40, 45, 60))
    up = rng.random() < 0.5
    part = Fraction(price * rate, 100)
    result = price + part if up else price - part
    thing = rng.choice(words("bicycle jacket lamp printer guitar tent watch"))
    sign = "+" if up else "-"
    steps = (
        f"{price} * {rate} / 100 = {decimal(part)}",
        f"{price} {sign} {decimal(part)} = {decimal(result)}",
    )
    return pose(
        rng,
        MathAnswer(decimal(result), unit="dollars"),
        steps,
        f"The price of a {thing} is ${price}. It {'rises' if up else 'falls'} by {rate}%. What is the new "
        "price in dollars?",
        f"A {thing} costs ${price}. A shop {'adds' if up else 'takes off'} {rate}%. How many dollars does the "
        f"{thing} cost now?",
    )


def _successive(level: int, rng: Random) -> MathProblem:
    start = 200 * rng.randint(2, 30)
    rates = [rng.choice((-50, -40, -25, -20, -10, 10, 20, 25, 30, 50)) for _ in range(2 if level == 6 else 3)]
    steps = []
    value = Fraction(start)
    for rate in rates:
        following = value * (100 + rate) / 100
        steps.append(f"{decimal(value)} * {100 + rate} / 100 = {decimal(following)}")
        value = following
    story = [f"{'rises' if rate > 0 else 'falls'} by {abs(rate)}%" for rate in rates]
    thing = rng.choice(("The value of a share", "The number of visitors of a site", "A town's budget", "A fund"))
    prompt = f"{thing} starts at {start}. It first {story[0]}, then {', then '.join(story[1:])}. "
    prompt += phrase(rng, "What is it at the end? Give the exact value.", "Find the exact final value.")
    return MathProblem(prompt, MathAnswer(decimal(value)), tuple(steps))


def _backwards(level: int, rng: Random) -> MathProblem:
    original = 20 * rng.randint(3, 30 * level)
    rates = [
        rng.choice((-60, -50, -40, -25, -20, -15, -5, 5, 10, 15, 20, 25, 30, 40, 60))
        for _ in range(1 if level == 8 else 2)
    ]
    final = Fraction(original)
    for rate in rates:
        final = final * (100 + rate) / 100
    if final == original:
        return _backwards(level, rng)
    steps = []
    value = final
    for rate in reversed(rates):
        before = value * 100 / (100 + rate)
        steps.append(f"{decimal(value)} * 100 / {100 + rate} = {decimal(before)}")
        value = before
    thing = rng.choice(words("sofa camera phone piano desk boat"))
    story = " and then ".join(f"{'raised' if rate > 0 else 'reduced'} by {abs(rate)}%" for rate in rates)
    return pose(
        rng,
        MathAnswer(decimal(original), unit="dollars"),
        steps,
        f"The price of a {thing} was {story}. Now it is ${decimal(final)}. What was the original price in dollars?",
        f"After the price of a {thing} was {story}, it costs ${decimal(final)}. Find the price before, in dollars.",
    )


def division(level: int, rng: Random) -> MathProblem:
    """Division with remainder."""
    divisor = rng.randint(*((3, 12), (6, 15), (11, 30), (12, 60), (25, 99))[(level - 1) // 2])
    quotient = rng.randint(4 * level, 12 * level * level)
    remainder = rng.randrange(1, divisor)
    dividend = divisor * quotient + remainder
    steps = (
        f"{divisor} * {quotient} = {divisor * quotient}, and {divisor} more would be too many",
        f"{dividend} - {divisor * quotient} = {remainder}",
    )
    return pose(
        rng,
        MathAnswer(f"{quotient}, {remainder}", "tuple"),
        steps,
        f"Divide {dividend} by {divisor}. Answer with the pair (quotient, remainder).",
        f"What are the quotient and the remainder when {dividend} is divided by {divisor}? Answer as "
        "(quotient, remainder).",
        f"{dividend} stickers are shared equally among {divisor} children, as many as possible each. "
        "How many does each child get and how many are left over? Answer as (each, left over).",
    )
