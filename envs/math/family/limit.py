"""Limits: removable gaps, infinity, roots, sines and exponentials."""

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
    term,
    value_at,
)
from loomrl.envs.math.problem import Problem, nonzero, phrase
from loomrl.gym.generate import between


def limit(level: int, rng: Random) -> Problem:
    """Limits: removable gaps, infinity, roots, sines and exponentials."""
    build = (_gap, _gap, _gap, _at_infinity, _at_infinity, _root_gap, _root_gap, _near_zero, _near_zero, _near_zero)
    text, target, result, steps = build[level - 1](level, rng)
    prompt = phrase(
        rng,
        f"Find the limit of {text} as x approaches {target}.",
        f"What does {text} tend to as x -> {target}?",
        f"Compute lim (x -> {target}) of {text}.",
    )
    prompt += " Give a whole number or a fraction in lowest terms."
    return Problem(
        prompt, Answer(number(result), form=Form.LOWEST), tuple(steps), ({"x": target},) if target != "infinity" else ()
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
        steps.append(f"{bracketed(value_at(top, a))} / {bracketed(value_at(bottom, a))} = {number(result)}")
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
