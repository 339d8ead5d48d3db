"""Polynomials: expanding, factoring, composition."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import Number, bracketed, multiply, number, polynomial, term, total, value_at
from loomrl.envs.math.problem import Problem, nonzero, phrase
from loomrl.gym.generate import between


def expand(level: int, rng: Random) -> Problem:
    """Products of two to four factors multiplied out, later with two variables."""
    if level in (5, 6):
        return _expand_two_variables(level, rng)
    size = between(level, 7, 9)
    count = 2 if level <= 4 else 3 if level <= 8 else 4
    factors: list[list[Number]] = [[1 if level <= 2 else nonzero(rng, size), nonzero(rng, size)] for _ in range(count)]
    if level in (4, 8, 10):
        factors[0] = [nonzero(rng, 4), nonzero(rng, 6), nonzero(rng, 6)]
    text = "".join(f"({polynomial(factor)})" for factor in factors)
    steps = []
    running = factors[0]
    for factor in factors[1:]:
        following = multiply(running, factor)
        steps += _partial_products(running, factor)
        steps.append(f"({polynomial(running)})({polynomial(factor)}) = {polynomial(following)}")
        running = following
    return _expand_problem(rng, text, polynomial(running), steps, "x")


def _partial_products(a: list[Number], b: list[Number]) -> list[str]:
    """One factor times each term of the other."""
    top = len(b) - 1
    return [
        f"{polynomial([c, *[0] * (top - k)]) if k < top else bracketed(c)} * ({polynomial(a)}) = "
        + polynomial([*(c * each for each in a), *[0] * (top - k)])
        for k, c in enumerate(b)
        if c not in (0, 1)
    ]


def _expand_two_variables(level: int, rng: Random) -> Problem:
    """(ax + by)(cx + dy), or a square of a sum of three terms."""
    if level == 5:
        a, b, c, d = (nonzero(rng, 8) for _ in range(4))
        left, right = total([(a, "x"), (b, "y")]), total([(c, "x"), (d, "y")])
        result = total([(a * c, "x^2"), (a * d + b * c, "xy"), (b * d, "y^2")])
        steps = [
            f"{term(a, 'x')} * ({right}) = {total([(a * c, 'x^2'), (a * d, 'xy')])}",
            f"{bracketed(a * d)} + {bracketed(b * c)} = {a * d + b * c}",
            f"({left})({right}) = {result}",
        ]
        return _expand_problem(rng, f"({left})({right})", result, steps, "xy")
    a, b, c = (nonzero(rng, 7) for _ in range(3))
    inner = total([(a, "x"), (b, "y"), (c, "")])
    result = total([(a * a, "x^2"), (b * b, "y^2"), (c * c, ""), (2 * a * b, "xy"), (2 * a * c, "x"), (2 * b * c, "y")])
    steps = [f"2 * {bracketed(p)} * {bracketed(q)} = {2 * p * q}" for p, q in ((a, b), (a, c), (b, c))]
    return _expand_problem(rng, f"({inner})^2", result, [*steps, f"({inner})^2 = {result}"], "xy")


def _expand_problem(rng: Random, text: str, result: str, steps: list[str], variables: str) -> Problem:
    prompt = phrase(
        rng,
        f"Expand and simplify {text}.",
        f"Multiply out {text} and collect like terms.",
        f"Write {text} as a sum of terms without brackets, like terms collected.",
    )
    return Problem(prompt, Answer(result, variables=variables), tuple(steps))


def factor(level: int, rng: Random) -> Problem:
    """Polynomials factored over the rational numbers, from x^2 + bx + c to degree four."""
    size = 10 if level == 1 else between(level, 20, 9)
    count = 2 if level <= 6 else 3 if level <= 8 else 4
    leads = [1] * count if level in (1, 2, 7, 9) else [rng.randint(1, 5) for _ in range(count)]
    factors = []
    for lead in leads:
        root = Fraction(nonzero(rng, size), lead)
        factors.append([root.denominator, -root.numerator])
    if level == 8:
        factors[1] = [factors[0][0], -factors[0][1]]
    common = rng.choice((1, 1, 2, 3, 5)) if level >= 4 else 1
    if level in (6, 8, 10) and count < 4:
        factors[-1] = [1, 0]
    product: list[Number] = [common]
    for each in factors:
        product = multiply(product, each)
    text = _factored(common, sorted(factors))
    steps = [f"{polynomial(product)} = {term(common, f'({polynomial([c / Fraction(common) for c in product])})')}"] * (
        common > 1
    )
    steps += _found_roots(factors, [c / Fraction(common) for c in product])
    steps.append(f"{text} = {polynomial(product)}")
    prompt = phrase(
        rng,
        f"Factor {polynomial(product)} completely over the rational numbers.",
        f"Write {polynomial(product)} as a product of factors that cannot be factored further over the rationals.",
        f"Find the complete factorization of {polynomial(product)} over the rational numbers.",
    )
    prompt += " Use whole coefficients, with any common factor in front." if level >= 3 else ""
    return Problem(prompt, Answer(text, form=Form.FACTORED, variables="x"), tuple(steps))


def _factored(common: int, factors: list[list[int]]) -> str:
    pieces = []
    for each in sorted(set(map(tuple, factors))):
        times = factors.count(list(each))
        body = "x" if each == (1, 0) else f"({polynomial(each)})"
        pieces.append((body != "x", body + (f"^{times}" if times > 1 else "")))
    return ("" if common == 1 else str(common)) + "".join(body for _, body in sorted(pieces))


def _found_roots(factors: list[list[int]], coefficients: list[Number]) -> list[str]:
    """Each root put into the polynomial gives 0."""
    steps = []
    for lead, offset in sorted(set(map(tuple, factors))):
        root = Fraction(-offset, lead)
        if root:
            steps.append(f"{polynomial(coefficients, f'({number(root)})')} = 0")
    return steps


def composition(level: int, rng: Random) -> Problem:
    """f(g(x)): at a number first, then as a polynomial."""
    size = between(level, 9, 7)
    outer: list[Number] = [
        nonzero(rng, 4 if level > 2 else 9),
        *(nonzero(rng, size) for _ in range(1 if level <= 2 else 2)),
    ]
    inner: list[Number] = [nonzero(rng, size) for _ in range(2 if level in (1, 3, 5, 6) else 3)]
    if level >= 8:
        outer = [nonzero(rng, 3), *outer]
    given = f"f(x) = {polynomial(outer)} and g(x) = {polynomial(inner)}"
    if level <= 4:
        at = rng.choice([k for k in range(-6, 7) if abs(k) > 1 and value_at(inner, k) not in (-1, 0, 1)])
        middle = value_at(inner, at)
        result = value_at(outer, middle)
        steps = [f"g({at}): {_inserted(inner, at)} = {middle}", f"f({middle}): {_inserted(outer, middle)} = {result}"]
        prompt = phrase(
            rng,
            f"Let {given}. Compute f(g({at})).",
            f"Given {given}, what is f(g({at}))?",
            f"If {given}, find f(g({at})).",
        )
        return Problem(prompt, Answer(number(result)), tuple(steps))
    running: list[Number] = [outer[0]]
    steps = []
    for coefficient in outer[1:]:
        following = multiply(running, inner)
        following[-1] += coefficient
        shown = term(running[0], "") if len(running) == 1 else f"({polynomial(running)})"
        shown = f"({polynomial(inner)})" if running == [1] else f"{shown} * ({polynomial(inner)})"
        steps.append(f"{shown} + {bracketed(coefficient)} = {polynomial(following)}")
        running = following
    prompt = phrase(
        rng,
        f"Let {given}. Write f(g(x)) as an expanded polynomial.",
        f"Given {given}, find f(g(x)) and collect like terms.",
        f"If {given}, what is f(g(x)), expanded and simplified?",
    )
    return Problem(prompt, Answer(polynomial(running), variables="x"), tuple(steps))


def _inserted(coefficients: list[Number], at: Number) -> str:
    """The polynomial with a number in place of the variable: `3(-2)^2 - 5(-2) + 1`."""
    return polynomial(coefficients, f"({number(at)})")
