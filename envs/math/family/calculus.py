"""Calculus: derivatives and tangents, extrema, integrals and areas, limits."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import MathAnswer
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import (
    Number,
    bracket,
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
from loomrl.envs.math.problem import MathProblem, Worked, nonzero, pose
from loomrl.gym.generate import between


def derivative(level: int, rng: Random) -> MathProblem:
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
    text, result, steps = (*build, _compose)[level - 1](level, rng)
    return pose(
        rng,
        MathAnswer(result, form=Form.ANY, variables="x"),
        steps,
        f"Find the derivative of f(x) = {text}.",
        f"Differentiate f(x) = {text} with respect to x.",
        f"Let f(x) = {text}. What is f'(x)?",
    )


def _powers(level: int, rng: Random) -> Worked:
    exponents = sorted(rng.sample(range(2, between(level, 5, 20)), min(level, 2)), reverse=True)
    exponents += [1, 0] if level < 3 else [-rng.randint(1, 4), 0]
    numbers = [nonzero(rng, 12) for _ in exponents]
    shown = [x_power(n) for n in exponents]
    result = total([(c * n, x_power(n - 1)) for c, n in zip(numbers, exponents, strict=True)])
    steps = [
        f"{term(c, b)}: the coefficient is {bracket(c)} * {bracket(n)} = {c * n}, the exponent {n} - 1 = {n - 1}"
        for c, n, b in zip(numbers, exponents, shown, strict=True)
        if n not in (0, 1)
    ]
    return total(list(zip(numbers, shown, strict=True))), result, steps


def _product_rule(level: int, rng: Random) -> Worked:
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


def _elementary(level: int, rng: Random) -> Worked:
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
        steps.append(f"The inner derivative is {k}: {bracket(c)} * {bracket(sign * k)} = {sign * c * k}")
    c = nonzero(rng, 9)
    return total([*text, (c, "ln(x)")]), f"{total(result)} {'+' if c > 0 else '-'} {abs(c)}/x", steps


def _exponential_product(level: int, rng: Random) -> Worked:
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
        f"The derivative of {factor.format(inner)} has the factor {sign * k}: {c} * {bracket(sign * k)} = "
        f"{sign * c * k}",
    ]
    return f"{c}x^{n} * {factor.format(inner)}", result, steps


def _chain(level: int, rng: Random) -> Worked:
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


def _quotient(level: int, rng: Random) -> Worked:
    while True:
        top, bottom = _random_polynomial(rng, rng.randint(1, 2)), _random_polynomial(rng, rng.randint(1, 2))
        left, right = multiply(slope(top), bottom), multiply(top, slope(bottom))
        width = max(len(left), len(right))
        numerator = [a - b for a, b in zip(_pad(left, width), _pad(right, width), strict=True)]
        if any(numerator):
            break
    u = polynomial(top)
    v = polynomial(bottom)
    steps = [
        f"u = {u}, v = {v}; u' is {polynomial(slope(top))} and v' is {polynomial(slope(bottom))}",
        f"({polynomial(slope(top))})({v}) - ({u})({polynomial(slope(bottom))}) = {polynomial(numerator)}",
    ]
    return f"({u})/({v})", f"({polynomial(numerator)})/({v})^2", steps


def _pad(coefficients: list[Number], width: int) -> list[Number]:
    return [0] * (width - len(coefficients)) + coefficients


def _chain_product(level: int, rng: Random) -> Worked:
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
        f"The derivative of {u}^{m} has the factor {m} * {bracket(a)} = {number(m * a)}",
        f"The derivative of {v}^{n} has the factor {n} * {bracket(c)} = {number(n * c)}",
        f"Common factors out: {bracket(m * a)}{v} + {bracket(n * c)}{u} = {polynomial(both)}",
    ]
    return f"{u}^{m} * {v}^{n}", result, steps


def _compose(level: int, rng: Random) -> Worked:
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


def tangent(level: int, rng: Random) -> MathProblem:
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
        f"The intercept: {number(height)} - {bracket(rise)} * {bracket(at)} = {number(offset)}",
    ]
    answer = MathAnswer(f"y = {polynomial([rise, offset])}", "equation", form=Form.ANY, variables="xy")
    return pose(
        rng,
        answer,
        steps,
        f"Find the equation of the tangent line to y = {text} at x = {number(at)}.",
        f"What is the tangent to the graph of y = {text} at the point with x = {number(at)}?",
        f"The line y = mx + b touches the curve y = {text} where x = {number(at)}. Find the line.",
        note=" Answer with an equation in x and y.",
        known=({"x": number(at), "y": number(height)},),
    )


def extremum(level: int, rng: Random) -> MathProblem:
    """Critical points, extreme values, and the largest value on an interval."""
    if level <= 3:
        return _critical_points(level, rng)
    return _extreme_value(level, rng) if level <= 7 else _largest_on_interval(level, rng)


def _cubic(level: int, rng: Random) -> tuple[list[Number], int, int]:
    """A cubic with whole coefficients, and its two critical points in order."""
    size = between(level, 9, 7)
    p = rng.randint(-size, size - 2)
    q = p + 2 * rng.randint(1, 4)
    scale = nonzero(rng, 2 if level < 6 else 3)
    derived = [6 * scale * c for c in multiply([1, -p], [1, -q])]
    return [derived[0] // 3, derived[1] // 2, derived[2], rng.randint(-30, 30)], p, q


def _show_slope(curve: list[Number], p: int, q: int) -> str:
    lead = slope(curve)[0]
    return f"{polynomial(slope(curve))} = {number(lead)}{minus(p)}{minus(q)}"


def _critical_points(level: int, rng: Random) -> MathProblem:
    curve, p, q = _cubic(level, rng)
    steps = (f"f'(x) = {_show_slope(curve, p, q)}", *_zeros(curve, p, q))
    known = ({"x": str(p)}, {"x": str(q)})
    return pose(
        rng,
        MathAnswer(f"{p}, {q}", "set", names=("x",)),
        steps,
        f"Find all critical points (values of x) of f(x) = {polynomial(curve)}.",
        f"For which x is the tangent to y = {polynomial(curve)} horizontal? List every x.",
        f"Let f(x) = {polynomial(curve)}. Solve f'(x) = 0; give all solutions.",
        known=known,
    )


def _zeros(curve: list[Number], p: int, q: int) -> list[str]:
    return [f"{polynomial(slope(curve), f'({root})')} = 0" for root in (p, q) if root]


def _extreme_value(level: int, rng: Random) -> MathProblem:
    curve, p, q = _cubic(level, rng)
    which = rng.choice(("maximum", "minimum"))
    at = p if (which == "maximum") == (curve[0] > 0) else q
    result = value_at(curve, at)
    steps = (
        f"f'(x) = {_show_slope(curve, p, q)}",
        *_zeros(curve, p, q),
        f"The local {which} is at {at}: {polynomial(curve, f'({at})')} = {number(result)}",
    )
    return pose(
        rng,
        result,
        steps,
        f"What is the local {which} value of f(x) = {polynomial(curve)}?",
        f"Find the value that f(x) = {polynomial(curve)} takes at its local {which}.",
        known=({"x": str(p)}, {"x": str(q)}),
    )


def _largest_on_interval(level: int, rng: Random) -> MathProblem:
    curve, p, q = _cubic(level, rng)
    low, high = p - rng.randint(0, 3), q + rng.randint(-1, 3)
    which = rng.choice(("largest", "smallest"))
    candidates = sorted({low, high, *(k for k in (p, q) if low <= k <= high)})
    values = [value_at(curve, k) for k in candidates]
    result = max(values) if which == "largest" else min(values)
    steps = [f"f'(x) = {_show_slope(curve, p, q)}"]
    for k, value in zip(candidates, values, strict=True):
        steps.append(
            f"f({k}) = {polynomial(curve, f'({k})')} = {number(value)}"
            if k
            else f"f(0) is the constant {number(value)}"
        )
    return pose(
        rng,
        result,
        steps,
        f"What is the {which} value of f(x) = {polynomial(curve)} on the interval [{low}, {high}]?",
        f"Find the {which} value that f(x) = {polynomial(curve)} takes for {low} <= x <= {high}.",
        known=tuple({"x": str(k)} for k in candidates),
    )


def integral(level: int, rng: Random) -> MathProblem:
    """Antiderivatives, from powers to substitution and parts."""
    build = (_sum_of_powers, _sum_of_powers, _sum_of_powers, _with_reciprocal, _of_functions, _of_functions)
    build += (_linear_substitution, _by_parts, _inner_derivative, _by_parts)  # type: ignore[assignment]
    text, result, steps = build[level - 1](level, rng)
    answer = MathAnswer(result, "antiderivative", form=Form.ANY, variables="x")
    return pose(
        rng,
        answer,
        steps,
        f"Find an antiderivative of f(x) = {text}.",
        f"Integrate {text} with respect to x.",
        f"Determine the indefinite integral of f(x) = {text}.",
        note=" The constant C may be left out.",
    )


def _sum_of_powers(level: int, rng: Random) -> Worked:
    exponents = sorted(rng.sample(range(1, between(level, 7, 25)), level), reverse=True)
    whole = level < 3
    numbers = [nonzero(rng, 15) * (n + 1 if whole else 1) for n in exponents]
    return _integrate(numbers, exponents)


def _integrate(numbers: list[int], exponents: list[int]) -> Worked:
    ends = [Fraction(c, n + 1) for c, n in zip(numbers, exponents, strict=True)]
    text = total([(c, x_power(n)) for c, n in zip(numbers, exponents, strict=True)])
    result = total([(c, x_power(n + 1)) for c, n in zip(ends, exponents, strict=True)])
    steps = [
        f"{term(c, x_power(n))}: {n} + 1 = {n + 1} and {bracket(c)} / {bracket(n + 1)} = {number(end)}"
        for c, n, end in zip(numbers, exponents, ends, strict=True)
    ]
    return text, result, steps


def _with_reciprocal(level: int, rng: Random) -> Worked:
    exponents = [rng.randint(2, 6), -rng.randint(2, 5)]
    text, result, steps = _integrate([nonzero(rng, 9) for _ in exponents], exponents)
    c = rng.randint(2, 9)
    return f"{text} + {c}/x", f"{result} + {c}ln(x)", [*steps, f"{c}/x becomes {c}ln|x|"]


def _of_functions(level: int, rng: Random) -> Worked:
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
            f"The coefficient over the inner derivative {k} is {number(end)}: {bracket(end)} * {k} = {sign * c}"
        )
    return total(text), total(result), steps


def _linear_substitution(level: int, rng: Random) -> Worked:
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


def _by_parts(level: int, rng: Random) -> Worked:
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
    steps = [f"Parts with u = {x}: {k} * {k} = {k * k}", f"{bracket(a)} / {k * k} = {number(Fraction(a, k * k))}"]
    return f"({x}) * {function}({inner})", result.replace("+ -", "- "), steps


def _exponential_parts(factor: list[Number], k: int) -> Worked:
    """p e^(kx) = (q e^(kx))' with q k + q' = p, coefficient by coefficient."""
    found: list[Number] = []
    steps = []
    for place, c in enumerate(factor):
        degree = len(factor) - 1 - place
        carried = (degree + 1) * found[-1] if found else Fraction(0)
        found.append(Fraction(c - carried) / k)
        top = bracket(c) if not found[:-1] else f"({number(c)} - {bracket(carried)})"
        steps.append(f"Coefficient of {power('x', degree) or 'the constant'}: {top} / {k} = {number(found[-1])}")
    inner = term(k, "x")
    return f"({polynomial(factor)}) * e^({inner})", f"({polynomial(found)}) * e^({inner})", steps


def _inner_derivative(level: int, rng: Random) -> Worked:
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


def area(level: int, rng: Random) -> MathProblem:
    """Definite integrals, and areas between a curve and a line."""
    if level >= 7:
        return _area_between(level, rng)
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
    steps.append(f"{number(ends[0])} - {bracket(ends[1])} = {number(result)}")
    text = polynomial(integrand)
    return pose(
        rng,
        MathAnswer(number(result), form=Form.LOWEST),
        steps,
        f"Compute the definite integral of {text} from x = {low} to x = {high}.",
        f"Evaluate the integral of f(x) = {text} over the interval [{low}, {high}].",
        f"What is the integral from {low} to {high} of ({text}) dx?",
        note=" Give a whole number or a fraction in lowest terms.",
        known=({"x": str(low)}, {"x": str(high)}),
    )


def _area_between(level: int, rng: Random) -> MathProblem:
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
        f"They meet at {p} and {q}: {q} - {bracket(p)} = {width}",
        f"The area is {abs(a)} * {width}^3 / 6 = {number(result)}"
        if abs(a) > 1
        else f"The area is {width}^3 / 6 = {number(result)}",
    ]
    return pose(
        rng,
        MathAnswer(number(result), form=Form.LOWEST),
        steps,
        f"Find the area of the region enclosed by y = {polynomial(curve)} and {other}.",
        f"The curve y = {polynomial(curve)} and {other} enclose a region. What is its area?",
        note=" Give a whole number or a fraction in lowest terms.",
        known=({"x": str(p)}, {"x": str(q)}),
    )


def limit(level: int, rng: Random) -> MathProblem:
    """Limits: removable gaps, infinity, roots, sines and exponentials."""
    build = (_gap, _gap, _gap, _at_infinity, _at_infinity, _root_gap, _root_gap, _near_zero, _near_zero, _near_zero)
    text, target, result, steps = build[level - 1](level, rng)
    return pose(
        rng,
        MathAnswer(number(result), form=Form.LOWEST),
        steps,
        f"Find the limit of {text} as x approaches {target}.",
        f"What does {text} tend to as x -> {target}?",
        f"Compute lim (x -> {target}) of {text}.",
        note=" Give a whole number or a fraction in lowest terms.",
        known=({"x": target},) if target != "infinity" else (),
    )


def _gap(level: int, rng: Random) -> tuple[str, str, Number, list[str]]:
    """(x - a)p(x) over (x - a)q(x)."""
    a = nonzero(rng, between(level, 9, 12))
    while True:
        top: list[Number] = [1 if level == 1 else nonzero(rng, 5), nonzero(rng, 12)]
        bottom: list[Number] = [1] if level == 1 else [1 if level == 2 else nonzero(rng, 4), nonzero(rng, 9)]
        if value_at(bottom, a) and value_at(top, a):
            break
    left, right = multiply([1, -a], top), multiply([1, -a], bottom)
    result = Fraction(value_at(top, a)) / Fraction(value_at(bottom, a))
    factor = f"({polynomial([1, -a])})"
    steps = [f"{polynomial(left)} = {factor}({polynomial(top)})"]
    if len(bottom) > 1:
        steps.append(f"{polynomial(right)} = {factor}({polynomial(bottom)})")
    steps.append(f"Cancel {factor} and put x = {a}: {polynomial(top, f'({a})')} = {value_at(top, a)}")
    if len(bottom) > 1:
        steps.append(f"{polynomial(bottom, f'({a})')} = {value_at(bottom, a)}")
        steps.append(f"{bracket(value_at(top, a))} / {bracket(value_at(bottom, a))} = {number(result)}")
    return f"({polynomial(left)})/({polynomial(right)})", str(a), result, steps


def _at_infinity(level: int, rng: Random) -> tuple[str, str, Number, list[str]]:
    degree = rng.randint(2, 4 if level == 4 else 6)
    top = [nonzero(rng, 40), *(rng.randint(-9, 9) for _ in range(degree))]
    bottom = [nonzero(rng, 20), *(rng.randint(-9, 9) for _ in range(degree))]
    result = Fraction(top[0], bottom[0])
    steps = [
        "Only the highest powers matter.",
        f"{term(top[0], power('x', degree))} / ({term(bottom[0], power('x', degree))}) = {number(result)}",
    ]
    return f"({polynomial(top)})/({polynomial(bottom)})", "infinity", result, steps


def _root_gap(level: int, rng: Random) -> tuple[str, str, Number, list[str]]:
    """(√(kx + c) - r)/(x - a) with ka + c = r², the limit k/(2r)."""
    r = rng.randint(2, 40)
    k = 1 if level == 6 else rng.randint(2, 9)
    a = nonzero(rng, 12)
    c = r * r - k * a
    result = Fraction(k, 2 * r)
    inside = polynomial([k, c])
    steps = [
        f"Multiply by √({inside}) + {r}: ({inside}) - {r}^2 = {term(k, f'({polynomial([1, -a])})')}",
        f"At x = {a} the root is {r}: {r} + {r} = {2 * r}",
        f"{k} / (2 * {r}) = {number(result)}",
    ]
    return f"(sqrt({inside}) - {r})/({polynomial([1, -a])})", str(a), result, steps


def _near_zero(level: int, rng: Random) -> tuple[str, str, Number, list[str]]:
    a, b, c, d = (rng.randint(2, 12) for _ in range(4))
    if level == 8:
        kind = rng.choice(("sin", "exp"))
        text = f"{c}sin({a}x)/({b}x)" if kind == "sin" else f"{c}(e^({a}x) - 1)/({b}x)"
        result = Fraction(c * a, b)
        return text, "0", result, [f"{c} * {a} = {c * a}", f"{c * a} / {b} = {number(result)}"]
    if level == 9:
        result = Fraction(a * c, b * d)
        text = f"({c}sin({a}x))/({d}(e^({b}x) - 1))"
        steps = [f"{c} * {a} = {c * a}", f"{d} * {b} = {d * b}", f"{c * a} / {d * b} = {number(result)}"]
        return text, "0", result, steps
    result = Fraction(c * a * a, 2 * b)
    text = f"{c}(1 - cos({a}x))/({b}x^2)"
    steps = [f"Near 0, 1 - cos(u) behaves like u^2 / 2: {a}^2 = {a * a}", f"{c} * {a * a} = {c * a * a}"]
    return text, "0", result, [*steps, f"{c * a * a} / (2 * {b}) = {number(result)}"]
