"""Equations: linear, quadratic, and systems. Built from the solution backwards."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import Number, bracketed, listing, multiply, number, polynomial, surd, term, total
from loomrl.envs.math.problem import Problem, nonzero, phrase
from loomrl.gym.generate import between


def linear(level: int, rng: Random) -> Problem:
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
    answer = Answer(number(root), form=Form.LOWEST, names=(name,))
    return Problem(prompt, answer, tuple(steps), ({name: number(root)},))


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
        steps.append(f"{bracketed(d - b)} / {bracketed(a - c)} = {number(Fraction(d - b) / (a - c))}")
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
        steps.append(f"{number(p * b)} + {bracketed(r)} = {number(p * b + r)}")
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


def quadratic(level: int, rng: Random) -> Problem:
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


def _surd_quadratic(level: int, rng: Random, name: str) -> Problem:
    """(mx - p)^2 = n with n no square: the solutions are (p ± √n)/m."""
    m = 1 if level == 7 else rng.randint(1, level - 6)
    p = nonzero(rng, between(level, 6, 12))
    n = rng.choice([k for k in range(2, 12 * level) if int(k**0.5) ** 2 != k])
    scale = 1 if level < 9 else rng.randint(1, 4)
    a, b, c = (scale * k for k in (m * m, -2 * m * p, p * p - n))
    discriminant = b * b - 4 * a * c
    steps = [
        f"Discriminant: {bracketed(b)}^2 - 4 * {bracketed(a)} * {bracketed(c)} = {discriminant}",
        f"√{discriminant} = {surd(1, discriminant)}",
    ]
    text = f"{polynomial([a, b, c], name)} = 0"
    roots = [f"{number(Fraction(p, m))} {sign} {surd(Fraction(1, m), n)}" for sign in "+-"]
    steps += [f"({-b} {sign} √{discriminant}) / {2 * a} = {root}" for sign, root in zip("+-", roots, strict=True)]
    return _quadratic_problem(rng, name, text, roots, steps)


def _quadratic_problem(rng: Random, name: str, text: str, roots: list[str], steps: list[str]) -> Problem:
    prompt = phrase(
        rng,
        f"Solve {text}. Give all real solutions, separated by commas.",
        f"Find all real numbers {name} with {text}.",
        f"What are the real solutions of {text}? List every one of them.",
    )
    prompt += " Write exact values." if "√" in "".join(roots) else ""
    answer = Answer(", ".join(roots), "set", names=(name,))
    return Problem(prompt, answer, tuple(steps), tuple({name: root} for root in roots))


def system(level: int, rng: Random) -> Problem:
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
        rng, f"Solve the system {listing(equations)}.", f"Find {listing(names)} such that {listing(equations)}."
    )
    prompt += f" Answer as ({', '.join(names)})."
    if bottom > 1:
        prompt += " Fractions in lowest terms."
    answer = Answer(", ".join(map(number, values)), "tuple", form=Form.LOWEST, names=names)
    return Problem(prompt, answer, tuple(steps), (dict(zip(names, map(number, values), strict=True)),))


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
                f"Eliminate {names[column]}: {bracketed(p)} * {bracketed(other)} - {bracketed(q)} * {bracketed(right)} "
                f"= {number(value)}, so {_row(combined, names)} = {number(value)}"
            )
    for column in reversed(range(len(names))):
        row, right = table[column]
        rest = sum((row[k] * values[k] for k in range(column + 1, len(names))), Fraction(0))
        if rest:
            steps.append(f"{number(right)} - {bracketed(rest)} = {number(right - rest)}")
        top = bracketed(right - rest)
        steps.append(f"{names[column]} = {top} / {bracketed(row[column])} = {number(values[column])}")
    return steps
