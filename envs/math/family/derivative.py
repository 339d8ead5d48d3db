"""Derivatives and tangents."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import (
    Number,
    bracketed,
    multiply,
    number,
    polynomial,
    power,
    slope,
    term,
    total,
    value_at,
    x_power,
)
from loomrl.envs.math.problem import Problem, nonzero, phrase
from loomrl.gym.generate import between


def derivative(level: int, rng: Random) -> Problem:
    """Polynomials, then negative powers, products, chains, quotients, exponentials and circular functions."""
    build = (
        _powers,
        _powers,
        _powers,
        _product_rule,
        _elementary,
        _exponential_product,
        _chain,
        _quotient,
        _chain_product,
    )
    text, result, steps = (*build, _composed)[level - 1](level, rng)
    prompt = phrase(
        rng,
        f"Find the derivative of f(x) = {text}.",
        f"Differentiate f(x) = {text} with respect to x.",
        f"Let f(x) = {text}. What is f'(x)?",
    )
    return Problem(prompt, Answer(result, form=Form.ANY, variables="x"), tuple(steps))


def _powers(level: int, rng: Random) -> tuple[str, str, list[str]]:
    exponents = sorted(rng.sample(range(2, between(level, 5, 20)), min(level, 2)), reverse=True)
    exponents += [1, 0] if level < 3 else [-rng.randint(1, 4), 0]
    numbers = [nonzero(rng, 12) for _ in exponents]
    shown = [x_power(n) for n in exponents]
    result = total([(c * n, x_power(n - 1)) for c, n in zip(numbers, exponents, strict=True)])
    steps = [
        f"{term(c, b)}: the coefficient is {bracketed(c)} * {bracketed(n)} = {c * n}, the exponent {n} - 1 = {n - 1}"
        for c, n, b in zip(numbers, exponents, shown, strict=True)
        if n not in (0, 1)
    ]
    return total(list(zip(numbers, shown, strict=True))), result, steps


def _product_rule(level: int, rng: Random) -> tuple[str, str, list[str]]:
    left, right = _random_polynomial(rng, 2), _random_polynomial(rng, rng.randint(1, 2))
    result = slope(multiply(left, right))
    u = polynomial(left)
    v = polynomial(right)
    steps = [
        f"u = {u}, v = {v}; u' is {polynomial(slope(left))} and v' is {polynomial(slope(right))}",
        f"({polynomial(slope(left))})({v}) + ({u})({polynomial(slope(right))}) = {polynomial(result)}",
    ]
    return f"({u})({v})", polynomial(result), steps


def _random_polynomial(rng: Random, degree: int) -> list[Number]:
    return [nonzero(rng, 6) for _ in range(degree + 1)]


_BASIC = {"e^({})": "e^({})", "sin({})": "cos({})", "cos({})": "-sin({})"}


def _elementary(level: int, rng: Random) -> tuple[str, str, list[str]]:
    """A sum of e^(kx), sin(kx), cos(kx) and ln(x)."""
    functions = rng.sample(sorted(_BASIC), 2)
    text = []
    result = []
    steps = []
    for function in functions:
        c = nonzero(rng, 9)
        k = rng.randint(2, 9)
        inner = term(k, "x")
        derived = _BASIC[function]
        sign = -1 if derived.startswith("-") else 1
        text.append((c, function.format(inner)))
        result.append((sign * c * k, derived.removeprefix("-").format(inner)))
        steps.append(f"The inner derivative is {k}: {bracketed(c)} * {bracketed(sign * k)} = {sign * c * k}")
    c = nonzero(rng, 9)
    return total([*text, (c, "ln(x)")]), f"{total(result)} {'+' if c > 0 else '-'} {abs(c)}/x", steps


def _exponential_product(level: int, rng: Random) -> tuple[str, str, list[str]]:
    n = rng.randint(2, 6)
    k = rng.choice((-5, -4, -3, -2, 2, 3, 4, 5, 6))
    c = rng.randint(2, 9)
    factor = rng.choice(("e^({})", "sin({})", "cos({})"))
    inner = term(k, "x")
    other = _BASIC[factor]
    sign = -1 if other.startswith("-") else 1
    first = f"{c * n}{power('x', n - 1)}*{factor.format(inner)}"
    second = f"{term(sign * c * k, power('x', n))}*{other.removeprefix('-').format(inner)}"
    result = f"{first} + {second}".replace("+ -", "- ")
    steps = [
        f"The derivative of {c}x^{n}: {c} * {n} = {c * n}",
        f"The derivative of {factor.format(inner)} has the factor {sign * k}: {c} * {bracketed(sign * k)} = "
        f"{sign * c * k}",
    ]
    return f"{c}x^{n} * {factor.format(inner)}", result, steps


def _chain(level: int, rng: Random) -> tuple[str, str, list[str]]:
    n = rng.randint(3, 9)
    c = rng.randint(2, 6)
    inner = _random_polynomial(rng, rng.randint(1, 2))
    derived = polynomial(slope(inner))
    body = f"({polynomial(inner)})"
    front = str(c * n * inner[0]) if len(inner) == 2 else f"{c * n}({derived})"
    result = f"{front}{body}^{n - 1}"
    steps = [
        f"The outer derivative: {c} * {n} = {c * n} with exponent {n} - 1 = {n - 1}",
        f"The inner derivative is {derived}",
    ]
    steps.append(f"{c * n}({derived}) = {polynomial([c * n * k for k in slope(inner)])}")
    return f"{c}{body}^{n}", result, steps


def _quotient(level: int, rng: Random) -> tuple[str, str, list[str]]:
    while True:
        top, bottom = _random_polynomial(rng, rng.randint(1, 2)), _random_polynomial(rng, rng.randint(1, 2))
        left, right = multiply(slope(top), bottom), multiply(top, slope(bottom))
        width = max(len(left), len(right))
        numerator = [a - b for a, b in zip(_padded(left, width), _padded(right, width), strict=True)]
        if any(numerator):
            break
    u = polynomial(top)
    v = polynomial(bottom)
    steps = [
        f"u = {u}, v = {v}; u' is {polynomial(slope(top))} and v' is {polynomial(slope(bottom))}",
        f"({polynomial(slope(top))})({v}) - ({u})({polynomial(slope(bottom))}) = {polynomial(numerator)}",
    ]
    return f"({u})/({v})", f"({polynomial(numerator)})/({v})^2", steps


def _padded(coefficients: list[Number], width: int) -> list[Number]:
    return [0] * (width - len(coefficients)) + coefficients


def _chain_product(level: int, rng: Random) -> tuple[str, str, list[str]]:
    """(ax + b)^m (cx + d)^n."""
    m = rng.randint(2, 6)
    n = rng.randint(2, 6)
    left, right = _random_polynomial(rng, 1), _random_polynomial(rng, 1)
    u = f"({polynomial(left)})"
    v = f"({polynomial(right)})"
    a = left[0]
    c = right[0]
    first = f"{u}^{m - 1}{v}^{n}"
    second = f"{u}^{m}{v}^{n - 1}"
    result = total([(m * a, first), (n * c, second)])
    both = [m * a * q + n * c * p for p, q in zip(left, right, strict=True)]
    steps = [
        f"The derivative of {u}^{m} has the factor {m} * {bracketed(a)} = {number(m * a)}",
        f"The derivative of {v}^{n} has the factor {n} * {bracketed(c)} = {number(n * c)}",
        f"Common factors out: {bracketed(m * a)}{v} + {bracketed(n * c)}{u} = {polynomial(both)}",
    ]
    return f"{u}^{m} * {v}^{n}", result, steps


def _composed(level: int, rng: Random) -> tuple[str, str, list[str]]:
    """A function of a polynomial, times a power."""
    inner = _random_polynomial(rng, 2)
    c = rng.randint(2, 9)
    n = rng.randint(1, 5)
    function = rng.choice(("e^({})", "sin({})", "cos({})", "ln({})"))
    if function == "ln({})":
        inner = [rng.randint(1, 6), 0, rng.randint(1, 6)]
    body = polynomial(inner)
    derived = polynomial(slope(inner))
    outer = "1/({})" if function == "ln({})" else _BASIC[function]
    x = power("x", n)
    first = f"{number(c * n)}{'*' + power('x', n - 1) if n > 1 else ''}*{function.format(body)}"
    sign = "-" if outer.startswith("-") else "+"
    second = f"{c}{x}*({derived})*{outer.removeprefix('-').format(body)}"
    if function == "ln({})":
        second = f"{term(2 * c * inner[0], power('x', n + 1))}/({body})"
    steps = [
        f"The inner derivative of {body} is {derived}",
        f"{c}{x} * ({derived}) = {polynomial([c * k for k in slope(inner)] + [0] * n)}",
    ]
    steps += [f"The derivative of {c}{x}: {c} * {n} = {c * n}"] if n > 1 else []
    return f"{c}{x} * {function.format(body)}", f"{first} {sign} {second}", steps


def tangent(level: int, rng: Random) -> Problem:
    """The tangent line to a curve at a point."""
    degree = 2 if level <= 3 else 3 if level <= 7 else 4
    size = between(level, 4, 9)
    curve: list[Number] = [
        nonzero(rng, max(2, size // 2)),
        *(rng.randint(-size, size) for _ in range(degree - 1)),
        nonzero(rng, size),
    ]
    at: Number = rng.choice([k for k in range(-4, 5) if abs(k) > 1])
    if level in (6, 7, 10):
        at = Fraction(nonzero(rng, 3), 2)
    height = value_at(curve, at)
    rise = value_at(slope(curve), at)
    offset = height - rise * at
    text = polynomial(curve)
    derived = polynomial(slope(curve))
    steps = [
        f"The derivative is {derived}",
        f"The slope: {polynomial(slope(curve), f'({number(at)})')} = {number(rise)}",
        f"The height: {polynomial(curve, f'({number(at)})')} = {number(height)}",
        f"The intercept: {number(height)} - {bracketed(rise)} * {bracketed(at)} = {number(offset)}",
    ]
    prompt = phrase(
        rng,
        f"Find the equation of the tangent line to y = {text} at x = {number(at)}.",
        f"What is the tangent to the graph of y = {text} at the point with x = {number(at)}?",
        f"The line y = mx + b touches the curve y = {text} where x = {number(at)}. Find the line.",
    )
    answer = Answer(f"y = {polynomial([rise, offset])}", "equation", form=Form.ANY, variables="xy")
    return Problem(
        f"{prompt} Answer with an equation in x and y.", answer, tuple(steps), ({"x": number(at), "y": number(height)},)
    )
