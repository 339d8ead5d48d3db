"""Inequalities: linear, quadratic and rational; the solution set as intervals."""

import re
from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.notation import Number, bracketed, multiply, number, polynomial, term
from loomrl.envs.math.problem import Problem, nonzero, phrase
from loomrl.gym.generate import between


def inequality(level: int, rng: Random) -> Problem:
    """Linear, quadratic and rational inequalities; the solution as a union of intervals."""
    build = _linear_inequality if level <= 4 else _quadratic_inequality if level <= 8 else _rational_inequality
    text, solution, steps = build(level, rng)
    prompt = phrase(
        rng,
        f"Solve the inequality {text}. Write the solution set in interval notation.",
        f"For which real x is {text}? Answer with intervals, such as (-inf, 2] U (5, inf).",
        f"Find the set of all real x with {text}, in interval notation.",
    )
    ends = sorted(set(re.findall(r"-?\d+(?:/\d+)?", solution)))
    return Problem(prompt, Answer(solution, "interval", names=("x",)), tuple(steps), tuple({"x": end} for end in ends))


_SOLVED = {"<": "(-inf, {})", "<=": "(-inf, {}]", ">": "({}, inf)", ">=": "[{}, inf)"}


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _linear_inequality(level: int, rng: Random) -> tuple[str, str, list[str]]:
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
    steps = [f"{number(d)} - {bracketed(b)} = {number(d - b)}"]
    if c:
        steps.append(f"{term(a, 'x')} - ({term(c, 'x')}) = {term(a - c, 'x')}")
    steps.append(f"{bracketed(d - b)} / {bracketed(a - c)} = {number(root)}")
    if a < c:
        steps.append("Dividing by a negative number turns the sign around.")
    return f"{polynomial([a, b])} {sign} {polynomial([c, d])}", _SOLVED[solved].format(number(root)), steps


def _quadratic_inequality(level: int, rng: Random) -> tuple[str, str, list[str]]:
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


def _rational_inequality(level: int, rng: Random) -> tuple[str, str, list[str]]:
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
