"""Solids: volumes and surfaces, in multiples of π where they are round."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.family.figure import TRIPLES, Measure
from loomrl.envs.math.notation import number, times_pi
from loomrl.envs.math.problem import Problem, phrase


def solid(level: int, rng: Random) -> Problem:
    """Volumes and surfaces of boxes, cylinders, cones, spheres, and of things put together from them."""
    build = (_cuboid, _cuboid, _cylinder, _cylinder, _cone, _sphere, _sphere, _capsule, _capsule, _cone_surface)
    prompt, value, unit, steps = build[level - 1](level, rng)
    if level <= 2:
        return Problem(prompt, Answer(number(value), unit=unit), tuple(steps))
    prompt += phrase(rng, " Give the exact value in terms of pi.", " Leave pi in the answer.")
    return Problem(prompt, Answer(times_pi(value), unit=unit), tuple(steps))


def _cuboid(level: int, rng: Random) -> Measure:
    a, b, c = (rng.randint(2, 20) for _ in range(3))
    if level == 1:
        prompt = phrase(
            rng,
            f"What is the volume, in cm^3, of a box with edges {a} cm, {b} cm and {c} cm?",
            f"An aquarium measures {a} cm by {b} cm by {c} cm. Find its volume in cm^3.",
        )
        return prompt, Fraction(a * b * c), "cm^3", [f"{a} * {b} = {a * b}", f"{a * b} * {c} = {a * b * c}"]
    surface = 2 * (a * b + b * c + a * c)
    prompt = phrase(
        rng,
        f"Find the total surface area, in cm^2, of a box with edges {a} cm, {b} cm and {c} cm.",
        f"How many cm^2 of paper cover a box of {a} cm by {b} cm by {c} cm exactly?",
    )
    sides = [f"{p} * {q} = {p * q}" for p, q in ((a, b), (b, c), (a, c))]
    return prompt, Fraction(surface), "cm^2", [*sides, f"2 * ({a * b} + {b * c} + {a * c}) = {surface}"]


def _cylinder(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 20)
    h = rng.randint(2, 30)
    if level == 3:
        prompt = phrase(
            rng,
            f"What is the volume, in cm^3, of a cylinder with radius {r} cm and height {h} cm?",
            f"A can has a radius of {r} cm and is {h} cm high. Find its volume in cm^3.",
        )
        return prompt, Fraction(r * r * h), "cm^3", [f"{r}^2 = {r * r}", f"π * {r * r} * {h} = {r * r * h}π"]
    total_area = 2 * r * (r + h)
    prompt = phrase(
        rng,
        f"Find the total surface area, in cm^2, of a closed cylinder with radius {r} cm and height {h} cm.",
        f"A closed can has a radius of {r} cm and a height of {h} cm. How many cm^2 of metal is it made of?",
    )
    steps = [
        f"Top and bottom: 2 * π * {r}^2 = {2 * r * r}π",
        f"The side: 2 * π * {r} * {h} = {2 * r * h}π",
        f"{2 * r * r}π + {2 * r * h}π = {total_area}π",
    ]
    return prompt, Fraction(total_area), "cm^2", steps


def _cone(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 20)
    h = rng.randint(2, 30)
    result = Fraction(r * r * h, 3)
    prompt = phrase(
        rng,
        f"What is the volume, in cm^3, of a cone with base radius {r} cm and height {h} cm?",
        f"A paper cup has the shape of a cone with a radius of {r} cm and a depth of {h} cm. How many cm^3 "
        "does it hold?",
    )
    return prompt, result, "cm^3", [f"{r}^2 = {r * r}", f"π * {r * r} * {h} / 3 = {times_pi(result)}"]


def _sphere(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 60)
    d = 2 * r
    given = rng.choice((f"radius {r} cm", f"diameter {d} cm"))
    first = [f"The radius: {d} / 2 = {r}"] if "diameter" in given else []
    half = level == 7
    volume = rng.random() < 0.5
    result = Fraction(4 * r**3, 3) if volume else Fraction(4 * r * r)
    noun = "sphere"
    if half:
        noun = "solid hemisphere"
        result = Fraction(2 * r**3, 3) if volume else Fraction(3 * r * r)
    what, unit = ("volume", "cm^3") if volume else ("total surface area", "cm^2")
    prompt = phrase(
        rng,
        f"Find the {what}, in {unit}, of a {noun} with {given}.",
        f"A {noun} has {given}. What is its {what} in {unit}?",
    )
    if volume:
        return (
            prompt,
            result,
            unit,
            [*first, f"{r}^3 = {r**3}", f"{2 if half else 4} * π * {r**3} / 3 = {times_pi(result)}"],
        )
    return prompt, result, unit, [*first, f"{r}^2 = {r * r}", f"{3 if half else 4} * π * {r * r} = {times_pi(result)}"]


def _capsule(level: int, rng: Random) -> Measure:
    """A cylinder with a hemisphere on one or both ends, or with a cone."""
    r = 3 * rng.randint(1, 8)
    h = rng.randint(3, 30)
    k = rng.randint(3, 20)
    body = r * r * h
    steps = [f"The cylinder: π * {r}^2 * {h} = {body}π"]
    if level == 8:
        ends = rng.choice((1, 2))
        result = Fraction(body + ends * 2 * r**3 // 3)
        cap = "a hemisphere on top" if ends == 1 else "a hemisphere at each end"
        steps.append(f"The rounded part: {2 * ends} * π * {r}^3 / 3 = {ends * 2 * r**3 // 3}π")
        steps.append(f"{body}π + {ends * 2 * r**3 // 3}π = {times_pi(result)}")
    else:
        drilled = rng.random() < 0.5
        part = r * r * k // 3
        k = k if not drilled else min(k, h)
        part = r * r * k // 3
        result = Fraction(body - part if drilled else body + part)
        cap = f"a cone of the same radius and height {k} cm " + ("hollowed out of it" if drilled else "on top")
        steps.append(f"The cone: π * {r}^2 * {k} / 3 = {part}π")
        steps.append(f"{body}π {'-' if drilled else '+'} {part}π = {times_pi(result)}")
    prompt = phrase(
        rng,
        f"A solid consists of a cylinder with radius {r} cm and height {h} cm, with {cap}. What is its volume in cm^3?",
        f"A cylinder (radius {r} cm, height {h} cm) has {cap}. Find the volume of the whole solid in cm^3.",
    )
    return prompt, result, "cm^3", steps


def _cone_surface(level: int, rng: Random) -> Measure:
    scale = rng.randint(1, 15)
    r, h, s = (scale * side for side in rng.choice(TRIPLES))
    r, h = rng.sample((r, h), 2)
    result = Fraction(r * (r + s))
    prompt = phrase(
        rng,
        f"What is the total surface area, in cm^2, of a solid cone with base radius {r} cm and height {h} cm?",
        f"A solid cone is {h} cm high; its base has a radius of {r} cm. Find its total surface area in cm^2.",
    )
    steps = [
        f"The slant height: √({r}^2 + {h}^2) = {s}",
        f"The side: π * {r} * {s} = {r * s}π",
        f"The base: π * {r}^2 = {r * r}π",
    ]
    return prompt, result, "cm^2", [*steps, f"{r * s}π + {r * r}π = {times_pi(result)}"]
