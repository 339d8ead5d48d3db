"""Critical points, extreme values, and extrema on an interval."""

from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.notation import (
    Number,
    minus,
    multiply,
    number,
    polynomial,
    slope,
    value_at,
)
from loomrl.envs.math.problem import Problem, nonzero, phrase
from loomrl.gym.generate import between


def extremum(level: int, rng: Random) -> Problem:
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


def _factored_slope(curve: list[Number], p: int, q: int) -> str:
    lead = slope(curve)[0]
    return f"{polynomial(slope(curve))} = {number(lead)}{minus(p)}{minus(q)}"


def _critical_points(level: int, rng: Random) -> Problem:
    curve, p, q = _cubic(level, rng)
    prompt = phrase(
        rng,
        f"Find all critical points (values of x) of f(x) = {polynomial(curve)}.",
        f"For which x is the tangent to y = {polynomial(curve)} horizontal? List every x.",
        f"Let f(x) = {polynomial(curve)}. Solve f'(x) = 0; give all solutions.",
    )
    steps = (f"f'(x) = {_factored_slope(curve, p, q)}", *_zeros(curve, p, q))
    known = ({"x": str(p)}, {"x": str(q)})
    return Problem(prompt, Answer(f"{p}, {q}", "set", names=("x",)), steps, known)


def _zeros(curve: list[Number], p: int, q: int) -> list[str]:
    return [f"{polynomial(slope(curve), f'({root})')} = 0" for root in (p, q) if root]


def _extreme_value(level: int, rng: Random) -> Problem:
    curve, p, q = _cubic(level, rng)
    which = rng.choice(("maximum", "minimum"))
    at = p if (which == "maximum") == (curve[0] > 0) else q
    result = value_at(curve, at)
    prompt = phrase(
        rng,
        f"What is the local {which} value of f(x) = {polynomial(curve)}?",
        f"Find the value that f(x) = {polynomial(curve)} takes at its local {which}.",
    )
    steps = (
        f"f'(x) = {_factored_slope(curve, p, q)}",
        *_zeros(curve, p, q),
        f"The local {which} is at {at}: {polynomial(curve, f'({at})')} = {number(result)}",
    )
    return Problem(prompt, Answer(number(result)), steps, ({"x": str(p)}, {"x": str(q)}))


def _largest_on_interval(level: int, rng: Random) -> Problem:
    curve, p, q = _cubic(level, rng)
    low, high = p - rng.randint(0, 3), q + rng.randint(-1, 3)
    which = rng.choice(("largest", "smallest"))
    candidates = sorted({low, high, *(k for k in (p, q) if low <= k <= high)})
    values = [value_at(curve, k) for k in candidates]
    result = max(values) if which == "largest" else min(values)
    prompt = phrase(
        rng,
        f"What is the {which} value of f(x) = {polynomial(curve)} on the interval [{low}, {high}]?",
        f"Find the {which} value that f(x) = {polynomial(curve)} takes for {low} <= x <= {high}.",
    )
    steps = [f"f'(x) = {_factored_slope(curve, p, q)}"]
    for k, value in zip(candidates, values, strict=True):
        steps.append(
            f"f({k}) = {polynomial(curve, f'({k})')} = {number(value)}"
            if k
            else f"f(0) is the constant {number(value)}"
        )
    return Problem(prompt, Answer(number(result)), tuple(steps), tuple({"x": str(k)} for k in candidates))
