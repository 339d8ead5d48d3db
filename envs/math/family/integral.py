"""Antiderivatives, definite integrals and enclosed areas."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import (
    Number,
    bracketed,
    minus,
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

_BASIC = {"e^({})": "e^({})", "sin({})": "cos({})", "cos({})": "-sin({})"}


def integral(level: int, rng: Random) -> Problem:
    """Antiderivatives, from powers to substitution and parts."""
    build = (_sum_of_powers, _sum_of_powers, _sum_of_powers, _with_reciprocal, _of_functions, _of_functions)
    build += (_linear_substitution, _by_parts, _inner_derivative, _by_parts)  # type: ignore[assignment]
    text, result, steps = build[level - 1](level, rng)
    prompt = phrase(
        rng,
        f"Find an antiderivative of f(x) = {text}.",
        f"Integrate {text} with respect to x.",
        f"Determine the indefinite integral of f(x) = {text}.",
    )
    answer = Answer(result, "antiderivative", form=Form.ANY, variables="x")
    return Problem(f"{prompt} The constant C may be left out.", answer, tuple(steps))


def _sum_of_powers(level: int, rng: Random) -> tuple[str, str, list[str]]:
    exponents = sorted(rng.sample(range(1, between(level, 7, 25)), level), reverse=True)
    whole = level < 3
    numbers = [nonzero(rng, 15) * (n + 1 if whole else 1) for n in exponents]
    return _integrated(numbers, exponents)


def _integrated(numbers: list[int], exponents: list[int]) -> tuple[str, str, list[str]]:
    ends = [Fraction(c, n + 1) for c, n in zip(numbers, exponents, strict=True)]
    text = total([(c, x_power(n)) for c, n in zip(numbers, exponents, strict=True)])
    result = total([(c, x_power(n + 1)) for c, n in zip(ends, exponents, strict=True)])
    steps = [
        f"{term(c, x_power(n))}: {n} + 1 = {n + 1} and {bracketed(c)} / {bracketed(n + 1)} = {number(end)}"
        for c, n, end in zip(numbers, exponents, ends, strict=True)
    ]
    return text, result, steps


def _with_reciprocal(level: int, rng: Random) -> tuple[str, str, list[str]]:
    exponents = [rng.randint(2, 6), -rng.randint(2, 5)]
    text, result, steps = _integrated([nonzero(rng, 9) for _ in exponents], exponents)
    c = rng.randint(2, 9)
    return f"{text} + {c}/x", f"{result} + {c}ln(x)", [*steps, f"{c}/x becomes {c}ln|x|"]


def _of_functions(level: int, rng: Random) -> tuple[str, str, list[str]]:
    """A sum of e^(kx), sin(kx) and cos(kx)."""
    text = []
    result = []
    steps = []
    for function in rng.sample(sorted(_BASIC), level - 4 + 1):
        k = rng.randint(2, 9)
        c = nonzero(rng, 12)
        inner = term(k, "x")
        source = {"e^({})": "e^({})", "sin({})": "-cos({})", "cos({})": "sin({})"}[function]
        sign = -1 if source.startswith("-") else 1
        text.append((c, function.format(inner)))
        result.append((Fraction(sign * c, k), source.removeprefix("-").format(inner)))
        end = Fraction(sign * c, k)
        steps.append(
            f"The coefficient over the inner derivative {k} is {number(end)}: {bracketed(end)} * {k} = {sign * c}"
        )
    return total(text), total(result), steps


def _linear_substitution(level: int, rng: Random) -> tuple[str, str, list[str]]:
    a = rng.randint(2, 7)
    b = nonzero(rng, 9)
    n = rng.randint(3, 9)
    c = rng.randint(2, 12)
    end = Fraction(c, a * (n + 1))
    body = f"({polynomial([a, b])})"
    steps = [
        f"Substitute u = {body[1:-1]}; the exponent becomes {n} + 1 = {n + 1}",
        f"{a} * {n + 1} = {a * (n + 1)}",
        f"{c} / {a * (n + 1)} = {number(end)}",
    ]
    return f"{c}{body}^{n}", term(end, f"{body}^{n + 1}"), steps


def _by_parts(level: int, rng: Random) -> tuple[str, str, list[str]]:
    """(ax + b)e^(kx), and with degree 2 or sine and cosine at the top."""
    k = rng.randint(2, 6)
    a = nonzero(rng, 9)
    b = nonzero(rng, 9)
    if level < 10 or rng.random() < 0.5:
        factor: list[Number] = [a, b] if level < 10 else [a, b, nonzero(rng, 9)]
        return _exponential_parts(factor, k)
    inner = term(k, "x")
    x = polynomial([a, b])
    function = rng.choice(("sin", "cos"))
    if function == "sin":
        result = f"-({x})/{k}*cos({inner}) + {number(Fraction(a, k * k))}*sin({inner})"
    else:
        result = f"({x})/{k}*sin({inner}) + {number(Fraction(a, k * k))}*cos({inner})"
    steps = [f"Parts with u = {x}: {k} * {k} = {k * k}", f"{bracketed(a)} / {k * k} = {number(Fraction(a, k * k))}"]
    return f"({x}) * {function}({inner})", result.replace("+ -", "- "), steps


def _exponential_parts(factor: list[Number], k: int) -> tuple[str, str, list[str]]:
    """p e^(kx) = (q e^(kx))' with q k + q' = p, coefficient by coefficient."""
    found: list[Number] = []
    steps = []
    for place, c in enumerate(factor):
        degree = len(factor) - 1 - place
        carried = (degree + 1) * found[-1] if found else Fraction(0)
        found.append(Fraction(c - carried) / k)
        top = bracketed(c) if not found[:-1] else f"({number(c)} - {bracketed(carried)})"
        steps.append(f"Coefficient of {power('x', degree) or 'the constant'}: {top} / {k} = {number(found[-1])}")
    inner = term(k, "x")
    return f"({polynomial(factor)}) * e^({inner})", f"({polynomial(found)}) * e^({inner})", steps


def _inner_derivative(level: int, rng: Random) -> tuple[str, str, list[str]]:
    """c g'(x) g(x)^n or c g'(x) e^(g(x))."""
    inner = [nonzero(rng, 5), nonzero(rng, 9), nonzero(rng, 9)]
    c = rng.randint(2, 9)
    n = rng.randint(2, 8)
    derived: list[Number] = [c * k for k in slope(inner)]
    body = f"({polynomial(inner)})"
    steps = [f"With u = {body[1:-1]}: {c}({polynomial(slope(inner))}) = {polynomial(derived)}"]
    if rng.random() < 0.5:
        return f"({polynomial(derived)}) * e^{body}", f"{c}*e^{body}", steps
    end = Fraction(c, n + 1)
    steps.append(f"{c} / ({n} + 1) = {number(end)}")
    return f"({polynomial(derived)}) * {body}^{n}", term(end, f"{body}^{n + 1}"), steps


def area(level: int, rng: Random) -> Problem:
    """Definite integrals, and areas between a curve and a line."""
    if level >= 7:
        return _enclosed_area(level, rng)
    degree = between(level, 1, 5)
    size = between(level, 6, 9)
    low = rng.randint(-3, 2) if level > 2 else rng.randint(0, 3)
    high = low + rng.randint(1, 4)
    integrand: list[Number] = [nonzero(rng, size), *(rng.randint(-size, size) for _ in range(degree))]
    source = [Fraction(c) / (degree + 1 - place) for place, c in enumerate(integrand)] + [Fraction(0)]
    ends = value_at(source, high), value_at(source, low)
    result = ends[0] - ends[1]
    steps = [f"An antiderivative is F(x) = {polynomial(source)}"]
    for at, end in zip((high, low), ends, strict=True):
        if at:
            steps.append(f"F({at}): {polynomial(source, f'({at})')} = {number(end)}")
    steps.append(f"{number(ends[0])} - {bracketed(ends[1])} = {number(result)}")
    text = polynomial(integrand)
    prompt = phrase(
        rng,
        f"Compute the definite integral of {text} from x = {low} to x = {high}.",
        f"Evaluate the integral of f(x) = {text} over the interval [{low}, {high}].",
        f"What is the integral from {low} to {high} of ({text}) dx?",
    )
    prompt += " Give a whole number or a fraction in lowest terms."
    return Problem(prompt, Answer(number(result), form=Form.LOWEST), tuple(steps), ({"x": str(low)}, {"x": str(high)}))


def _enclosed_area(level: int, rng: Random) -> Problem:
    """a(x - p)(x - q) between its zeros, moved onto a line: the area is |a|(q - p)^3/6."""
    a = nonzero(rng, level - 4)
    p = rng.randint(-8, 4)
    width = rng.randint(2, 9)
    q = p + width
    gap = [a * c for c in multiply([1, -p], [1, -q])]
    line: list[Number] = [0, 0, 0] if level == 7 else [0, nonzero(rng, 6), rng.randint(-9, 9)]
    if level == 10:
        line[0] = nonzero(rng, 4)
    curve = [c + d for c, d in zip(gap, line, strict=True)]
    result = Fraction(abs(a) * width**3, 6)
    other = "the x-axis" if level == 7 else f"y = {polynomial(line)}"
    sign = "" if a == 1 else "-" if a == -1 else str(a)
    steps = [
        f"The difference of the two is {polynomial(gap)} = {sign}{minus(p)}{minus(q)}",
        f"They meet at {p} and {q}: {q} - {bracketed(p)} = {width}",
        f"The area is {abs(a)} * {width}^3 / 6 = {number(result)}"
        if abs(a) > 1
        else f"The area is {width}^3 / 6 = {number(result)}",
    ]
    prompt = phrase(
        rng,
        f"Find the area of the region enclosed by y = {polynomial(curve)} and {other}.",
        f"The curve y = {polynomial(curve)} and {other} enclose a region. What is its area?",
    )
    prompt += " Give a whole number or a fraction in lowest terms."
    return Problem(prompt, Answer(number(result), form=Form.LOWEST), tuple(steps), ({"x": str(p)}, {"x": str(q)}))
