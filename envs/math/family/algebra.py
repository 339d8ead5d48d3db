"""Algebra: equations and systems, polynomials expanded, factored and composed, inequalities."""

import re
from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import MathAnswer
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import (
    Number,
    bracket,
    multiply,
    number,
    polynomial,
    surd,
    term,
    total,
    value_at,
)
from loomrl.envs.math.problem import MathProblem, Worked, nonzero, phrase, pose
from loomrl.gym.generate import between, listed


def linear(level: int, rng: Random) -> MathProblem:
    """One unknown: from ax + b = c to brackets on both sides and fractions."""
    name = rng.choice("xxyztn")
    size = between(level, 12, 20)
    root = Fraction(nonzero(rng, size)) if level <= 6 else Fraction(nonzero(rng, size), rng.randint(2, 7))
    build = (
        _one_side,
        _one_side,
        _two_sides,
        _two_sides,
        _brackets,
        _brackets,
        _brackets,
        _brackets,
        _fractions,
        _fractions,
    )
    text, steps = build[level - 1](level, rng, name, root)
    prompt = phrase(
        rng, f"Solve for {name}: {text}.", f"Find {name} if {text}.", f"What value of {name} satisfies {text}?"
    )
    if level > 6:
        prompt += " Give a whole number or a fraction in lowest terms."
    answer = MathAnswer(number(root), form=Form.LOWEST, names=(name,))
    return MathProblem(prompt, answer, tuple(steps), ({name: number(root)},))


def _one_side(level: int, rng: Random, name: str, root: Fraction) -> tuple[str, list[str]]:
    a = rng.randint(2, 9 * level)
    b = nonzero(rng, 20 * level)
    return f"{polynomial([a, b], name)} = {number(a * root + b)}", _divide_out(a, b, 0, a * root + b, name)


def _two_sides(level: int, rng: Random, name: str, root: Fraction) -> tuple[str, list[str]]:
    a = nonzero(rng, 5 * level)
    b = nonzero(rng, 10 * level)
    c = rng.choice([k for k in range(-5 * level, 5 * level) if k not in (0, a)])
    d = (a - c) * root + b
    return f"{polynomial([a, b], name)} = {polynomial([c, d], name)}", _divide_out(a, b, c, d, name)


def _divide_out(a: Number, b: Number, c: Number, d: Number, name: str) -> list[str]:
    """From ax + b = cx + d to x."""
    steps = []
    if c:
        sign = "-" if c > 0 else "+"
        steps.append(
            f"Bring {name} to one side: {term(a, name)} {sign} {term(c if c > 0 else -c, name)} = {term(a - c, name)}"
        )
    if b:
        sign = "-" if b > 0 else "+"
        steps.append(
            f"Bring the numbers to the other: {number(d)} {sign} {number(b if b > 0 else -b)} = {number(d - b)}"
        )
    steps.append(f"So {term(a - c, name)} = {number(d - b)}")
    if a - c not in (1, -1):
        steps.append(f"{bracket(d - b)} / {bracket(a - c)} = {number(Fraction(d - b) / (a - c))}")
    return steps


def _brackets(level: int, rng: Random, name: str, root: Fraction) -> tuple[str, list[str]]:
    """p(ax + b) + r = q(cx + d), with b made to fit where the unknown is a fraction."""
    p = rng.randint(2, level)
    q = nonzero(rng, level)
    a = nonzero(rng, 6) * root.denominator
    c = nonzero(rng, 6) * root.denominator
    if p * a == q * c:
        c += root.denominator
    b = nonzero(rng, 12)
    d = nonzero(rng, 12)
    r = q * (c * root + d) - p * (a * root + b)
    left = f"{p}({polynomial([a, b], name)})" + (f" {'+' if r > 0 else '-'} {number(abs(r))}" if r else "")
    right = term(q, f"({polynomial([c, d], name)})")
    steps = [
        f"{p}({polynomial([a, b], name)}) = {polynomial([p * a, p * b], name)}",
        f"{right} = {polynomial([q * c, q * d], name)}",
    ]
    if r:
        steps.append(f"{number(p * b)} + {bracket(r)} = {number(p * b + r)}")
    return f"{left} = {right}", steps + _divide_out(p * a, p * b + r, q * c, q * d, name)


def _fractions(level: int, rng: Random, name: str, root: Fraction) -> tuple[str, list[str]]:
    """(x + a)/p + (x + b)/q = c."""
    p, q = rng.sample((2, 3, 4, 5, 6, 7, 8, 9), 2)
    a = nonzero(rng, 9)
    b = nonzero(rng, 9)
    right = (root + a) / p + (root + b) / q
    text = f"({polynomial([1, a], name)})/{p} + ({polynomial([1, b], name)})/{q} = {number(right)}"
    both = f"{q}({polynomial([1, a], name)}) + {p}({polynomial([1, b], name)})"
    steps = [
        f"Multiply by {p} * {q} = {p * q}: {both} = {number(right * p * q)}",
        f"{both} = {polynomial([p + q, q * a + p * b], name)}",
    ]
    return text, steps + _divide_out(p + q, q * a + p * b, 0, right * p * q, name)


def quadratic(level: int, rng: Random) -> MathProblem:
    """Quadratic equations with whole, then fractional, then irrational solutions."""
    name = rng.choice("xxyzt")
    if level >= 7:
        return _surd_quadratic(level, rng, name)
    size = between(level, 9, 14)
    first, second = rng.sample([k for k in range(-size, size + 1) if k], 2)
    bottoms = (1, 1) if level <= 3 else (rng.randint(2, 4), 1 if level == 4 else rng.randint(1, 3))
    roots = sorted({Fraction(first, bottoms[0]), Fraction(second, bottoms[1])})
    factors = [[root.denominator, -root.numerator] for root in roots]
    a, b, c = multiply(factors[0], factors[-1])
    moved = [
        nonzero(rng, 5) if level == 6 else 0,
        nonzero(rng, 9) if level in (3, 6) else 0,
        nonzero(rng, 9) if level in (3, 6) else 0,
    ]
    left = [a + moved[0], b + moved[1], c + moved[2]]
    steps = [f"Standard form: {polynomial([a, b, c], name)} = 0"] if any(moved) else []
    steps.append(
        f"Factor: {polynomial([a, b, c], name)} = ({polynomial(factors[0], name)})({polynomial(factors[-1], name)})"
    )
    for (slope, offset), root in zip(factors, roots, strict=False):
        steps.append(f"{polynomial([slope, offset], name)} = 0 gives {name} = {number(root)}")
    text = f"{polynomial(left, name)} = {polynomial(moved, name)}"
    return _quadratic_problem(rng, name, text, [number(root) for root in roots], steps)


def _surd_quadratic(level: int, rng: Random, name: str) -> MathProblem:
    """(mx - p)^2 = n with n no square: the solutions are (p ± √n)/m."""
    m = 1 if level == 7 else rng.randint(1, level - 6)
    p = nonzero(rng, between(level, 6, 12))
    n = rng.choice([k for k in range(2, 12 * level) if int(k**0.5) ** 2 != k])
    scale = 1 if level < 9 else rng.randint(1, 4)
    a, b, c = (scale * k for k in (m * m, -2 * m * p, p * p - n))
    discriminant = b * b - 4 * a * c
    steps = [
        f"Discriminant: {bracket(b)}^2 - 4 * {bracket(a)} * {bracket(c)} = {discriminant}",
        f"√{discriminant} = {surd(1, discriminant)}",
    ]
    text = f"{polynomial([a, b, c], name)} = 0"
    roots = [f"{number(Fraction(p, m))} {sign} {surd(Fraction(1, m), n)}" for sign in "+-"]
    steps += [f"({-b} {sign} √{discriminant}) / {2 * a} = {root}" for sign, root in zip("+-", roots, strict=True)]
    return _quadratic_problem(rng, name, text, roots, steps)


def _quadratic_problem(rng: Random, name: str, text: str, roots: list[str], steps: list[str]) -> MathProblem:
    answer = MathAnswer(", ".join(roots), "set", names=(name,))
    return pose(
        rng,
        answer,
        steps,
        f"Solve {text}. Give all real solutions, separated by commas.",
        f"Find all real numbers {name} with {text}.",
        f"What are the real solutions of {text}? List every one of them.",
        note=" Write exact values." if "√" in "".join(roots) else "",
        known=tuple({name: root} for root in roots),
    )


def system(level: int, rng: Random) -> MathProblem:
    """Two, later three, linear equations; whole, later fractional solutions."""
    names = ("x", "y") if level <= 6 else ("x", "y", "z")
    size = between(level, 8, 12)
    bottom = rng.randint(2, 4) if level in (5, 6, 10) else 1
    values = [Fraction(nonzero(rng, size), bottom) for _ in names]
    high = between(level, 4, 9)
    while True:
        rows = [[nonzero(rng, high) for _ in names] for _ in names]
        if _determinant(rows):
            break
    rights = [sum((c * v for c, v in zip(row, values, strict=True)), Fraction(0)) for row in rows]
    equations = [f"{_row(row, names)} = {number(right)}" for row, right in zip(rows, rights, strict=True)]
    steps = _eliminate(rows, rights, names, values)
    prompt = phrase(
        rng, f"Solve the system {listed(equations)}.", f"Find {listed(names)} such that {listed(equations)}."
    )
    prompt += f" Answer as ({', '.join(names)})."
    if bottom > 1:
        prompt += " Fractions in lowest terms."
    answer = MathAnswer(", ".join(map(number, values)), "tuple", form=Form.LOWEST, names=names)
    return MathProblem(prompt, answer, tuple(steps), (dict(zip(names, map(number, values), strict=True)),))


def _row(row: list[int], names: tuple[str, ...]) -> str:
    return total(list(zip(row, names, strict=True)))


def _determinant(rows: list[list[int]]) -> int:
    if len(rows) == 1:
        return rows[0][0]
    minors = [[row[:k] + row[k + 1 :] for row in rows[1:]] for k in range(len(rows))]
    return sum((-1) ** k * rows[0][k] * _determinant(minor) for k, minor in enumerate(minors))


def _eliminate(
    rows: list[list[int]], rights: list[Fraction], names: tuple[str, ...], values: list[Fraction]
) -> list[str]:
    """Gauss without division on the way down, then back substitution."""
    table: list[tuple[list[int], Fraction]] = list(zip([list(row) for row in rows], rights, strict=True))
    steps = []
    for column in range(len(names) - 1):
        at = next(i for i in range(column, len(table)) if table[i][0][column])
        table[column], table[at] = table[at], table[column]
        pivot, right = table[column]
        for i in range(column + 1, len(table)):
            row, other = table[i]
            p = pivot[column]
            q = row[column]
            if not q:
                continue
            combined = [p * r - q * s for r, s in zip(row, pivot, strict=True)]
            value = p * other - q * right
            table[i] = combined, value
            steps.append(
                f"Eliminate {names[column]}: {bracket(p)} * {bracket(other)} - {bracket(q)} * {bracket(right)} "
                f"= {number(value)}, so {_row(combined, names)} = {number(value)}"
            )
    for column in reversed(range(len(names))):
        row, right = table[column]
        rest = sum((row[k] * values[k] for k in range(column + 1, len(names))), Fraction(0))
        if rest:
            steps.append(f"{number(right)} - {bracket(rest)} = {number(right - rest)}")
        top = bracket(right - rest)
        steps.append(f"{names[column]} = {top} / {bracket(row[column])} = {number(values[column])}")
    return steps


def expand(level: int, rng: Random) -> MathProblem:
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
        f"{polynomial([c, *[0] * (top - k)]) if k < top else bracket(c)} * ({polynomial(a)}) = "
        + polynomial([*(c * each for each in a), *[0] * (top - k)])
        for k, c in enumerate(b)
        if c not in (0, 1)
    ]


def _expand_two_variables(level: int, rng: Random) -> MathProblem:
    """(ax + by)(cx + dy), or a square of a sum of three terms."""
    if level == 5:
        a, b, c, d = (nonzero(rng, 8) for _ in range(4))
        left, right = total([(a, "x"), (b, "y")]), total([(c, "x"), (d, "y")])
        result = total([(a * c, "x^2"), (a * d + b * c, "xy"), (b * d, "y^2")])
        steps = [
            f"{term(a, 'x')} * ({right}) = {total([(a * c, 'x^2'), (a * d, 'xy')])}",
            f"{bracket(a * d)} + {bracket(b * c)} = {a * d + b * c}",
            f"({left})({right}) = {result}",
        ]
        return _expand_problem(rng, f"({left})({right})", result, steps, "xy")
    a, b, c = (nonzero(rng, 7) for _ in range(3))
    inner = total([(a, "x"), (b, "y"), (c, "")])
    result = total([(a * a, "x^2"), (b * b, "y^2"), (c * c, ""), (2 * a * b, "xy"), (2 * a * c, "x"), (2 * b * c, "y")])
    steps = [f"2 * {bracket(p)} * {bracket(q)} = {2 * p * q}" for p, q in ((a, b), (a, c), (b, c))]
    return _expand_problem(rng, f"({inner})^2", result, [*steps, f"({inner})^2 = {result}"], "xy")


def _expand_problem(rng: Random, text: str, result: str, steps: list[str], variables: str) -> MathProblem:
    return pose(
        rng,
        MathAnswer(result, variables=variables),
        steps,
        f"Expand and simplify {text}.",
        f"Multiply out {text} and collect like terms.",
        f"Write {text} as a sum of terms without brackets, like terms collected.",
    )


def factor(level: int, rng: Random) -> MathProblem:
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
    text = _show_factors(common, sorted(factors))
    steps = [f"{polynomial(product)} = {term(common, f'({polynomial([c / Fraction(common) for c in product])})')}"] * (
        common > 1
    )
    steps += _check_roots(factors, [c / Fraction(common) for c in product])
    steps.append(f"{text} = {polynomial(product)}")
    return pose(
        rng,
        MathAnswer(text, form=Form.FACTORED, variables="x"),
        steps,
        f"Factor {polynomial(product)} completely over the rational numbers.",
        f"Write {polynomial(product)} as a product of factors that cannot be factored further over the rationals.",
        f"Find the complete factorization of {polynomial(product)} over the rational numbers.",
        note=" Use whole coefficients, with any common factor in front." if level >= 3 else "",
    )


def _show_factors(common: int, factors: list[list[int]]) -> str:
    pieces = []
    for each in sorted(set(map(tuple, factors))):
        times = factors.count(list(each))
        body = "x" if each == (1, 0) else f"({polynomial(each)})"
        pieces.append((body != "x", body + (f"^{times}" if times > 1 else "")))
    return ("" if common == 1 else str(common)) + "".join(body for _, body in sorted(pieces))


def _check_roots(factors: list[list[int]], coefficients: list[Number]) -> list[str]:
    """Each root put into the polynomial gives 0."""
    steps = []
    for lead, offset in sorted(set(map(tuple, factors))):
        root = Fraction(-offset, lead)
        if root:
            steps.append(f"{polynomial(coefficients, f'({number(root)})')} = 0")
    return steps


def composition(level: int, rng: Random) -> MathProblem:
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
        steps = [f"g({at}): {_insert(inner, at)} = {middle}", f"f({middle}): {_insert(outer, middle)} = {result}"]
        return pose(
            rng,
            result,
            steps,
            f"Let {given}. Compute f(g({at})).",
            f"Given {given}, what is f(g({at}))?",
            f"If {given}, find f(g({at})).",
        )
    running: list[Number] = [outer[0]]
    steps = []
    for coefficient in outer[1:]:
        following = multiply(running, inner)
        following[-1] += coefficient
        shown = term(running[0], "") if len(running) == 1 else f"({polynomial(running)})"
        shown = f"({polynomial(inner)})" if running == [1] else f"{shown} * ({polynomial(inner)})"
        steps.append(f"{shown} + {bracket(coefficient)} = {polynomial(following)}")
        running = following
    return pose(
        rng,
        MathAnswer(polynomial(running), variables="x"),
        steps,
        f"Let {given}. Write f(g(x)) as an expanded polynomial.",
        f"Given {given}, find f(g(x)) and collect like terms.",
        f"If {given}, what is f(g(x)), expanded and simplified?",
    )


def _insert(coefficients: list[Number], at: Number) -> str:
    """The polynomial with a number in place of the variable: `3(-2)^2 - 5(-2) + 1`."""
    return polynomial(coefficients, f"({number(at)})")


def inequality(level: int, rng: Random) -> MathProblem:
    """Linear, quadratic and rational inequalities; the solution as a union of intervals."""
    build = _linear_inequality if level <= 4 else _quadratic_inequality if level <= 8 else _rational_inequality
    text, solution, steps = build(level, rng)
    ends = sorted(set(re.findall(r"-?\d+(?:/\d+)?", solution)))
    return pose(
        rng,
        MathAnswer(solution, "interval", names=("x",)),
        steps,
        f"Solve the inequality {text}. Write the solution set in interval notation.",
        f"For which real x is {text}? Answer with intervals, such as (-inf, 2] U (5, inf).",
        f"Find the set of all real x with {text}, in interval notation.",
        known=tuple({"x": end} for end in ends),
    )


_SOLVED = {"<": "(-inf, {})", "<=": "(-inf, {}]", ">": "({}, inf)", ">=": "[{}, inf)"}


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _linear_inequality(level: int, rng: Random) -> Worked:
    size = between(level, 15, 40)
    root = Fraction(nonzero(rng, size), 1 if level < 4 else rng.randint(2, 5))
    a = rng.randint(2, 12) if level == 1 else nonzero(rng, 9)
    c = 0 if level <= 2 else nonzero(rng, 6)
    a = a * root.denominator + c
    c = c
    sign = rng.choice(("<", "<=", ">", ">="))
    b = nonzero(rng, size)
    d = (a - c) * root + b
    solved = sign if a > c else _MIRRORED[sign]
    steps = [f"{number(d)} - {bracket(b)} = {number(d - b)}"]
    if c:
        steps.append(f"{term(a, 'x')} - ({term(c, 'x')}) = {term(a - c, 'x')}")
    steps.append(f"{bracket(d - b)} / {bracket(a - c)} = {number(root)}")
    if a < c:
        steps.append("Dividing by a negative number turns the sign around.")
    return f"{polynomial([a, b])} {sign} {polynomial([c, d])}", _SOLVED[solved].format(number(root)), steps


def _quadratic_inequality(level: int, rng: Random) -> Worked:
    size = between(level, 9, 14)
    low, high = sorted(rng.sample(range(-size, size + 1), 2))
    first = Fraction(low)
    second = Fraction(high, 1 if level <= 6 else rng.choice((2, 3)))
    if first >= second:
        first = Fraction(low - size)
        second = second
    lead = 1 if level == 5 else nonzero(rng, 3)
    factors: list[list[Number]] = [[1, -first], [second.denominator, -second.numerator]]
    product = [lead * c for c in multiply(*factors)]
    sign = rng.choice(("<", "<=", ">", ">="))
    effective = sign if lead > 0 else _MIRRORED[sign]
    moved: list[Number] = [0, nonzero(rng, 9), nonzero(rng, 9)] if level in (6, 8) else [0, 0, 0]
    left = [a + b for a, b in zip(product, moved, strict=True)]
    shown = {1: "", -1: "-"}.get(lead, str(lead))
    steps = [f"{polynomial(product)} = {shown}({polynomial(factors[0])})({polynomial(factors[1])})"]
    steps += [f"{polynomial(product, f'({number(root)})')} = 0" for root in (first, second) if root]
    solution = _between_or_outside(number(first), number(second), effective)
    return f"{polynomial(left)} {sign} {polynomial(moved)}", solution, steps


def _between_or_outside(low: str, high: str, sign: str) -> str:
    return {
        "<": f"({low}, {high})",
        "<=": f"[{low}, {high}]",
        ">": f"(-inf, {low}) U ({high}, inf)",
        ">=": f"(-inf, {low}] U [{high}, inf)",
    }[sign]


def _rational_inequality(level: int, rng: Random) -> Worked:
    """(x - a)/(x - b) < c: bring to one side, read off the signs."""
    size = between(level, 9, 14)
    hole = nonzero(rng, size)
    root = rng.choice([k for k in range(-size, size + 1) if k != hole])
    times = nonzero(rng, 5)
    moved = 0 if level == 9 else rng.choice([k for k in range(-6, 7) if k and k != -times])
    sign = rng.choice(("<", "<=", ">", ">="))
    top: list[Number] = [times + moved, -times * root - moved * hole]
    low, high = sorted((root, hole))
    effective = sign if times > 0 else _MIRRORED[sign]
    solution = _between_or_outside(str(low), str(high), effective)
    solution = solution.replace(f"[{hole}", f"({hole}").replace(f"{hole}]", f"{hole})")
    bottom = polynomial([1, -hole])
    steps = [f"The numerator is 0 at x = {root}: {polynomial([times, -times * root], f'({root})')} = 0"] if root else []
    steps.append(f"The denominator is 0 at x = {hole}: {polynomial([1, -hole], f'({hole})')} = 0")
    if moved:
        taken = f"{'-' if moved > 0 else '+'} {term(abs(moved), f'({bottom})')}"
        steps.insert(0, f"({polynomial(top)}) {taken} = {polynomial([times, -times * root])}")
    return f"({polynomial(top)})/({bottom}) {sign} {moved}", solution, steps
