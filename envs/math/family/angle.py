"""Angles of triangles and polygons."""

from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.family.figure import triangle_name
from loomrl.envs.math.notation import bracketed, listing, polynomial
from loomrl.envs.math.problem import Problem, nonzero, phrase


def angle(level: int, rng: Random) -> Problem:
    """Angles of triangles, polygons, and angles given as expressions."""
    build = (_third_angle, _third_angle, _isosceles, _exterior, _polygon_angle, _polygon_angle)
    return (*build, _angle_ratio, _angle_equation, _angle_equation, _angle_equation)[level - 1](level, rng)


def _third_angle(level: int, rng: Random) -> Problem:
    a = rng.randint(15, 110)
    b = rng.randint(15, 165 - a)
    if level == 2:
        a = 90
        b = rng.randint(5, 84)
    p, q, r = triangle_name(rng)
    name = p + q + r
    given = (
        f"angle {p} is {a} degrees and angle {q} is {b} degrees"
        if level == 1
        else f"angle {p} is a right angle and angle {q} measures {b} degrees"
    )
    prompt = phrase(
        rng,
        f"In triangle {name}, {given}. How many degrees is angle {r}?",
        f"Triangle {name} is such that {given}. Find angle {r} in degrees.",
        f"Two angles of triangle {name} are known: {given}. What is the measure of angle {r}, in degrees?",
    )
    steps = (f"The angles add up to 180 degrees: {a} + {b} = {a + b}", f"180 - {a + b} = {180 - a - b}")
    return Problem(prompt, Answer(str(180 - a - b), unit="degrees"), steps)


def _isosceles(level: int, rng: Random) -> Problem:
    base = rng.randint(10, 85)
    top = 180 - 2 * base
    p, q, r = triangle_name(rng)
    name = p + q + r
    lead = phrase(
        rng,
        f"Triangle {name} is isosceles with {p}{q} = {p}{r}. ",
        f"In triangle {name} the sides {p}{q} and {p}{r} are equal. ",
    )
    if rng.random() < 0.5:
        prompt = f"{lead}Angle {p} measures {top} degrees. Find angle {q} in degrees."
        steps = (f"The other two angles are equal and share 180 - {top} = {180 - top}", f"{180 - top} / 2 = {base}")
        return Problem(prompt, Answer(str(base), unit="degrees"), steps)
    prompt = f"{lead}Angle {q} measures {base} degrees. How many degrees is angle {p}?"
    steps = (f"Angles {q} and {r} are equal: {base} + {base} = {2 * base}", f"180 - {2 * base} = {top}")
    return Problem(prompt, Answer(str(top), unit="degrees"), steps)


def _exterior(level: int, rng: Random) -> Problem:
    a = rng.randint(20, 85)
    b = rng.randint(20, 85)
    p, q, r = triangle_name(rng)
    name = p + q + r
    prompt = phrase(
        rng,
        f"In triangle {name}, the exterior angle at {r} is {a + b} degrees and angle {p} is {a} degrees. Find "
        f"angle {q} in degrees.",
        f"The side {q}{r} of triangle {name} is extended beyond {r}; the exterior angle there measures "
        f"{a + b} degrees. "
        f"Angle {p} is {a} degrees. What is angle {q} in degrees?",
    )
    steps = (f"The interior angle at {r} is 180 - {a + b} = {180 - a - b}", f"180 - {180 - a - b} - {a} = {b}")
    return Problem(prompt, Answer(str(b), unit="degrees"), steps)


def _polygon_angle(level: int, rng: Random) -> Problem:
    sides = rng.randint(4, 6) if level == 5 else rng.randint(5, 9)
    whole = 180 * (sides - 2)
    mean = whole // sides
    angles = [mean + nonzero(rng, 35) for _ in range(sides - 1)]
    last = whole - sum(angles)
    if not 20 <= last < 180 or max(angles) >= 180:
        return _polygon_angle(level, rng)
    noun = {4: "quadrilateral", 5: "pentagon", 6: "hexagon", 7: "heptagon", 8: "octagon", 9: "nonagon"}[sides]
    given = listing([str(a) for a in angles])
    prompt = phrase(
        rng,
        f"All but one of the {sides} angles of a convex {noun} measure {given} degrees. How many degrees is "
        "the last angle?",
        f"A convex {noun} has {sides} angles; {sides - 1} of them are {given} degrees. Find the missing one "
        "in degrees.",
    )
    steps = (
        f"The angle sum is ({sides} - 2) * 180 = {whole}",
        f"{' + '.join(map(str, angles))} = {sum(angles)}",
        f"{whole} - {sum(angles)} = {last}",
    )
    return Problem(prompt, Answer(str(last), unit="degrees"), steps)


def _angle_ratio(level: int, rng: Random) -> Problem:
    count = rng.choice((3, 4))
    whole = 180 * (count - 2)
    while True:
        parts = [rng.randint(1, 20) for _ in range(count)]
        if whole % sum(parts) == 0 and max(parts) * whole // sum(parts) < 175:
            break
    which = rng.choice(("largest", "smallest"))
    part = max(parts) if which == "largest" else min(parts)
    unit = whole // sum(parts)
    noun = "triangle" if count == 3 else "convex quadrilateral"
    ratio = " : ".join(map(str, parts))
    prompt = phrase(
        rng,
        f"The {count} angles of a {noun} are in the ratio {ratio}. How many degrees is the {which} angle?",
        f"In a {noun} the {count} angles relate as {ratio}. Find the {which} one in degrees.",
    )
    steps = (
        f"{' + '.join(map(str, parts))} = {sum(parts)}",
        f"{whole} / {sum(parts)} = {unit}",
        f"{part} * {unit} = {part * unit}",
    )
    return Problem(prompt, Answer(str(part * unit), unit="degrees"), steps)


def _angle_equation(level: int, rng: Random) -> Problem:
    """Angles such as (3x + 10) degrees; x, and at level 10 the largest angle."""
    count = 3 if level == 8 else 4 if level == 9 else rng.choice((4, 5))
    whole = 180 * (count - 2)
    root = rng.randint(4, 25)
    slopes = [rng.randint(1, 6) for _ in range(count - 1)]
    values = [whole // count + nonzero(rng, 25) for _ in slopes]
    last = whole - sum(values)
    slopes.append(rng.randint(1, 6))
    values.append(last)
    if max(values) >= 175 or min(values) < 15:
        return _angle_equation(level, rng)
    offsets = [v - s * root for v, s in zip(values, slopes, strict=True)]
    given = [f"({polynomial([s, o])})" for s, o in zip(slopes, offsets, strict=True)]
    noun = {3: "triangle", 4: "convex quadrilateral", 5: "convex pentagon"}[count]
    wanted = "the largest angle in degrees" if level == 10 else "x"
    prompt = phrase(
        rng,
        f"The angles of a {noun} measure {listing(given)} degrees. Find {wanted}.",
        f"A {noun} has angles of {listing(given)} degrees. What is {wanted}?",
    )
    slope = sum(slopes)
    offset = sum(offsets)
    steps = [
        f"The angle sum is ({count} - 2) * 180 = {whole}",
        f"Adding them up: {' + '.join(given)} = {polynomial([slope, offset])}",
        f"So {polynomial([slope, offset])} = {whole}",
        f"{whole} - {bracketed(offset)} = {slope * root}",
        f"{slope * root} / {slope} = {root}",
    ]
    result = root
    if level == 10:
        result = max(values)
        at = values.index(result)
        steps.append(f"The largest angle: {polynomial([slopes[at], offsets[at]], f'({root})')} = {result}")
    answer = Answer(str(result), names=() if level == 10 else ("x",), unit="degrees")
    return Problem(prompt, answer, tuple(steps), ({"x": str(root)},))
