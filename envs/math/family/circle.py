"""Circles: circumference, area, arcs, sectors and rings, in multiples of π."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.family.figure import TRIPLES, Measure
from loomrl.envs.math.notation import number, times_pi
from loomrl.envs.math.problem import Problem, phrase


def circle(level: int, rng: Random) -> Problem:
    """Circumference, area, arcs, sectors and rings, in multiples of π."""
    build = (
        _circumference,
        _circle_area,
        _circle_area,
        _ring,
        _arc,
        _sector,
        _sector,
        _inscribed,
        _inscribed,
        _backwards_sector,
    )
    prompt, value, unit, steps = build[level - 1](level, rng)
    prompt += phrase(rng, " Give the exact value in terms of pi.", " Leave pi in the answer.")
    return Problem(prompt, Answer(times_pi(value), unit=unit), tuple(steps))


def _circumference(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 99)
    if rng.random() < 0.5:
        prompt = phrase(
            rng,
            f"What is the circumference of a circle with radius {r} cm?",
            f"A round table has a radius of {r} cm. How long is its edge, in cm?",
        )
        return prompt, Fraction(2 * r), "cm", [f"2 * {r} = {2 * r}", f"2 * π * {r} = {2 * r}π"]
    prompt = phrase(
        rng,
        f"A circle has a diameter of {r} cm. Find its circumference in cm.",
        f"How far, in cm, does a wheel with diameter {r} cm roll in one turn?",
    )
    return prompt, Fraction(r), "cm", [f"The circumference is twice the radius times π: 2 * π * {r} / 2 = {r}π"]


def _circle_area(level: int, rng: Random) -> Measure:
    if level == 2:
        r = rng.randint(2, 150)
        prompt = phrase(
            rng,
            f"Find the area of a circle with radius {r} cm, in cm^2.",
            f"A circular plate has a radius of {r} cm. What is its area in cm^2?",
        )
        return prompt, Fraction(r * r), "cm^2", [f"{r}^2 = {r * r}", f"π * {r}^2 = {r * r}π"]
    r = rng.randint(2, 120)
    half = Fraction(r, 2)
    prompt = phrase(
        rng,
        f"Find the area of a circle with diameter {r} cm, in cm^2.",
        f"A circle has a circumference of {r}π cm. What is its area in cm^2?",
    )
    steps = [f"The radius: {r} / 2 = {number(half)}", f"({number(half)})^2 = {number(half * half)}"]
    steps = steps if half.denominator == 1 else [f"The radius is {r}/2", f"({r}/2)^2 = {number(half * half)}"]
    return prompt, half * half, "cm^2", steps


def _ring(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 40)
    outer = r + rng.randint(1, 20)
    prompt = phrase(
        rng,
        f"A ring lies between two circles with the same centre and radii {r} cm and {outer} cm. What is its "
        "area in cm^2?",
        f"A circular hole of radius {r} cm is cut from a disc of radius {outer} cm. Find the remaining area in cm^2.",
    )
    steps = [f"{outer}^2 = {outer * outer}", f"{r}^2 = {r * r}", f"{outer * outer} - {r * r} = {outer * outer - r * r}"]
    return prompt, Fraction(outer * outer - r * r), "cm^2", steps


def _arc(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 40)
    degrees = rng.choice((20, 30, 36, 40, 45, 50, 60, 72, 80, 90, 100, 108, 120, 135, 150, 240, 270))
    result = Fraction(2 * r * degrees, 360)
    prompt = phrase(
        rng,
        f"How long, in cm, is the arc over a central angle of {degrees} degrees in a circle with radius {r} cm?",
        f"The tip of a clock hand of {r} cm turns through {degrees} degrees. How many cm does it travel?",
    )
    return prompt, result, "cm", [f"2 * π * {r} = {2 * r}π", f"{2 * r}π * {degrees} / 360 = {times_pi(result)}"]


def _sector(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 40)
    degrees = rng.choice((20, 30, 36, 40, 45, 60, 72, 80, 90, 100, 108, 120, 135, 150, 160, 200, 240, 300))
    if level == 6:
        result = Fraction(r * r * degrees, 360)
        prompt = phrase(
            rng,
            f"What is the area, in cm^2, of a circular sector with radius {r} cm and central angle {degrees} degrees?",
            f"A slice of pizza has a radius of {r} cm and an angle of {degrees} degrees. Find its area in cm^2.",
        )
        return prompt, result, "cm^2", [f"{r}^2 = {r * r}", f"{r * r}π * {degrees} / 360 = {times_pi(result)}"]
    outer = r + rng.randint(1, 20)
    gap = outer * outer - r * r
    result = Fraction(gap * degrees, 360)
    prompt = (
        f"A windscreen wiper turns through {degrees} degrees. Its blade reaches from {r} cm to {outer} cm "
        "from the pivot. "
        "What area, in cm^2, does it wipe?"
    )
    return prompt, result, "cm^2", [f"{outer}^2 - {r}^2 = {gap}", f"{gap}π * {degrees} / 360 = {times_pi(result)}"]


def _inscribed(level: int, rng: Random) -> Measure:
    """Circles around rectangles and right triangles; at level 9 within a right triangle."""
    scale = rng.randint(1, 12)
    a, b, c = (scale * side for side in rng.choice(TRIPLES))
    if level == 8:
        noun = rng.choice((f"a rectangle of {a} cm by {b} cm", f"a right triangle with legs {a} cm and {b} cm"))
        prompt = phrase(
            rng,
            f"A circle passes through all vertices of {noun}. What is its area in cm^2?",
            f"Find the area, in cm^2, of the circumscribed circle of {noun}.",
        )
        result = Fraction(c * c, 4)
        steps = [f"The diameter is √({a}^2 + {b}^2) = {c}", f"({c}/2)^2 = {number(result)}"]
        return prompt, result, "cm^2", steps
    r = Fraction(a + b - c, 2)
    prompt = phrase(
        rng,
        f"Find the area, in cm^2, of the circle inscribed in a right triangle with legs {a} cm and {b} cm.",
        f"The largest circle that fits into a right triangle with legs {a} cm and {b} cm touches all three "
        "sides. What is its area in cm^2?",
    )
    steps = [
        f"The hypotenuse: √({a}^2 + {b}^2) = {c}",
        f"The radius: ({a} + {b} - {c}) / 2 = {number(r)}",
        f"({number(r)})^2 = {number(r * r)}",
    ]
    return prompt, r * r, "cm^2", steps


def _backwards_sector(level: int, rng: Random) -> Measure:
    """The area of a sector from its perimeter."""
    r = rng.randint(3, 40)
    degrees = rng.choice((30, 36, 40, 45, 60, 72, 90, 108, 120, 135, 150))
    arc = Fraction(2 * r * degrees, 360)
    result = arc * r / 2
    prompt = phrase(
        rng,
        f"A circular sector with central angle {degrees} degrees has an arc of length {times_pi(arc)} cm. What is "
        "the area of the sector in cm^2?",
        f"The arc of a sector is {times_pi(arc)} cm long and its central angle measures {degrees} degrees. Find "
        "the sector's area in cm^2.",
    )
    steps = [
        f"2 * π * r * {degrees}/360 is the arc, so r is {number(arc)} * 360 / (2 * {degrees}) = {r}",
        f"({number(arc)})π * {r} / 2 = {times_pi(result)}",
    ]
    return prompt, result, "cm^2", steps
