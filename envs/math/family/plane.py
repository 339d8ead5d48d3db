"""Figures in the plane: right triangles, areas by coordinates, lines, similarity."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import Answer
from loomrl.envs.math.family.figure import TRIPLES, triangle_name
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import bracketed, listing, number, polynomial, surd, total
from loomrl.envs.math.problem import Problem, nonzero, phrase
from loomrl.gym.generate import between


def pythagoras(level: int, rng: Random) -> Problem:
    """Right triangles, diagonals, heights; whole numbers first, roots later."""
    build = (_hypotenuse, _leg, _hypotenuse, _hypotenuse, _leg, _rectangle, _box, _box, _height, _height)
    return build[level - 1](level, rng)


def _hypotenuse(level: int, rng: Random) -> Problem:
    if level <= 3:
        scale = rng.randint(1, 9 * level)
        a, b = (scale * side for side in rng.sample(rng.choice(TRIPLES)[:2], 2))
    else:
        a = rng.randint(2, 30)
        b = rng.randint(2, 30)
    p, q, r = triangle_name(rng)
    name = p + q + r
    prompt = phrase(
        rng,
        f"A right triangle has legs of {a} cm and {b} cm. How long is the hypotenuse, in cm?",
        f"In triangle {name} the angle at {r} is right, {p}{r} = {a} cm and {q}{r} = {b} cm. Find {p}{q} in cm.",
        f"On a map, a path leads {a} cm north and then {b} cm east. How far apart, in cm, are its ends on the map?",
    )
    return _rooted(prompt, a * a + b * b, [f"{a}^2 + {b}^2 = {a * a} + {b * b} = {a * a + b * b}"])


def _leg(level: int, rng: Random) -> Problem:
    if level <= 3:
        scale = rng.randint(1, 40)
        a, _, c = (scale * side for side in rng.choice(TRIPLES))
    else:
        a = rng.randint(3, 25)
        c = a + rng.randint(1, 20)
    prompt = phrase(
        rng,
        f"The hypotenuse of a right triangle measures {c} cm and one leg {a} cm. How long is the other leg, in cm?",
        f"A ladder of {c} cm leans against a wall, its foot {a} cm away from the wall. How high, in cm, does it reach?",
    )
    return _rooted(prompt, c * c - a * a, [f"{c}^2 - {a}^2 = {c * c} - {a * a} = {c * c - a * a}"])


def _rooted(prompt: str, square: int, steps: list[str]) -> Problem:
    prompt += "" if surd(1, square).isdecimal() else " Give the exact value, with a root."
    return Problem(prompt, Answer(surd(1, square), unit="cm"), (*steps, f"√{square} = {surd(1, square)}"))


def _rectangle(level: int, rng: Random) -> Problem:
    """The diagonal of a rectangle whose area and one side are known."""
    a = rng.randint(3, 30)
    b = rng.randint(3, 30)
    prompt = phrase(
        rng,
        f"A rectangle has an area of {a * b} cm^2 and one side of {a} cm. How long is its diagonal, in cm?",
        f"One side of a rectangle measures {a} cm, and its perimeter is {2 * (a + b)} cm. Find the diagonal in cm.",
    )
    other = f"{a * b} / {a} = {b}" if "area" in prompt else f"{2 * (a + b)} / 2 - {a} = {b}"
    return _rooted(
        prompt, a * a + b * b, [f"The other side: {other}", f"{a}^2 + {b}^2 = {a * a} + {b * b} = {a * a + b * b}"]
    )


def _box(level: int, rng: Random) -> Problem:
    a, b, c = (rng.randint(2, between(level, 4, 20)) for _ in range(3))
    square = a * a + b * b + c * c
    prompt = phrase(
        rng,
        f"A box is {a} cm long, {b} cm wide and {c} cm high. How long is its space diagonal, in cm?",
        f"What is the longest straight rod that fits into a box of {a} cm by {b} cm by {c} cm? Give its length in cm.",
    )
    if level == 8:
        prompt = (
            f"A box with edges {a} cm and {b} cm at its base has a volume of {a * b * c} cm^3. How long is its "
            "space diagonal, in cm?"
        )
    steps = [f"The height: {a * b * c} / ({a} * {b}) = {c}"] if level == 8 else []
    return _rooted(prompt, square, [*steps, f"{a}^2 + {b}^2 + {c}^2 = {a * a} + {b * b} + {c * c} = {square}"])


def _height(level: int, rng: Random) -> Problem:
    """Isosceles triangles: the height, and at level 10 the area."""
    half = rng.randint(2, 20)
    side = 0
    side = half + rng.randint(1, 25)
    square = side * side - half * half
    given = phrase(
        rng,
        f"An isosceles triangle has two sides of {side} cm and a base of {2 * half} cm.",
        f"The equal sides of an isosceles triangle measure {side} cm each, the base {2 * half} cm.",
    )
    steps = [
        f"Half the base: {2 * half} / 2 = {half}",
        f"{side}^2 - {half}^2 = {square}",
        f"√{square} = {surd(1, square)}",
    ]
    if level == 9:
        return _rooted(f"{given} What is the height on the base, in cm?", square, steps[:2])
    area = surd(half, square)
    steps.append(f"{half} * {surd(1, square)} = {area}")
    prompt = f"{given} What is its area in cm^2?" + ("" if area.isdecimal() else " Give the exact value, with a root.")
    return Problem(prompt, Answer(area, unit="cm^2"), tuple(steps))


def coordinates(level: int, rng: Random) -> Problem:
    """Areas of polygons from the coordinates of their vertices."""
    count = between(level, 3, 6)
    size = between(level, 7, 15)
    points = _convex_points(count, size, rng)
    pairs = list(zip(points, [*points[1:], points[0]], strict=True))
    double = sum(x * v - u * y for (x, y), (u, v) in pairs)
    noun = {3: "triangle", 4: "quadrilateral", 5: "pentagon", 6: "hexagon"}[count]
    shown = listing([f"({x}, {y})" for x, y in points])
    prompt = phrase(
        rng,
        f"What is the area of the {noun} with vertices {shown}, in this order?",
        f"Find the area of the {noun} whose vertices are, going around, {shown}.",
        f"The points {shown} are, in this order, the corners of a {noun}. Compute its area.",
    )
    products = [
        f"{bracketed(x)} * {bracketed(v)} - {bracketed(u)} * {bracketed(y)} = {x * v - u * y}"
        for (x, y), (u, v) in pairs
    ]
    sums = " + ".join(bracketed(x * v - u * y) for (x, y), (u, v) in pairs)
    steps = (*products, f"{sums} = {double}", f"{double} / 2 = {number(Fraction(double, 2))}")
    return Problem(prompt, Answer(number(Fraction(double, 2))), steps)


def _convex_points(count: int, size: int, rng: Random) -> list[tuple[int, int]]:
    """Corners of a strictly convex polygon, counterclockwise."""
    while True:
        points = sorted({(rng.randint(-size, size), rng.randint(-size, size)) for _ in range(count + 3)})
        hull = [*_half_hull(points), *_half_hull(points[::-1])]
        if len(hull) == count:
            return hull


def _half_hull(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    hull: list[tuple[int, int]] = []
    for x, y in points:
        while len(hull) > 1:
            (a, b), (c, d) = hull[-2:]
            if (c - a) * (y - b) - (d - b) * (x - a) > 0:
                break
            hull.pop()
        hull.append((x, y))
    return hull[:-1]


def line(level: int, rng: Random) -> Problem:
    """Lines: through two points, parallel, perpendicular, perpendicular bisectors."""
    size = between(level, 6, 12)
    a = nonzero(rng, size)
    b = nonzero(rng, size)
    if level <= 3:
        return _line_through(a, b, size, rng)
    return _line_beside(level, a, b, rng) if level <= 6 else _bisector(a, b, size, rng)


def _line_problem(rng: Random, prompt: str, equation: str, steps: list[str]) -> Problem:
    prompt += phrase(rng, " Answer with an equation in x and y.", " Give an equation in x and y.")
    return Problem(prompt, Answer(equation, "equation", form=Form.ANY, variables="xy"), tuple(steps))


def _line_through(a: int, b: int, size: int, rng: Random) -> Problem:
    dx = nonzero(rng, size)
    dy = nonzero(rng, size)
    m = Fraction(dy, dx)
    c = b - m * a
    prompt = phrase(
        rng,
        f"Find the line through ({a}, {b}) and ({a + dx}, {b + dy}).",
        f"A line passes through the points ({a}, {b}) and ({a + dx}, {b + dy}). What is its equation?",
    )
    steps = [
        f"The slope: ({b + dy} - {bracketed(b)}) / ({a + dx} - {bracketed(a)}) = {number(m)}",
        f"The intercept: {b} - {bracketed(m)} * {bracketed(a)} = {number(c)}",
    ]
    return _line_problem(rng, prompt, f"y = {polynomial([m, c])}", steps)


def _line_beside(level: int, a: int, b: int, rng: Random) -> Problem:
    p = nonzero(rng, 9)
    q = nonzero(rng, 9)
    r = rng.randint(-20, 20)
    crossing = level >= 5 and (level == 6 or rng.random() < 0.5)
    m = Fraction(q, p) if crossing else Fraction(-p, q)
    c = b - m * a
    word = "perpendicular" if crossing else "parallel"
    given = f"{total([(p, 'x'), (q, 'y')])} = {r}"
    prompt = phrase(
        rng,
        f"Find the line through ({a}, {b}) that is {word} to {given}.",
        f"What is the equation of the line {word} to {given} that passes through the point ({a}, {b})?",
    )
    own = Fraction(-p, q)
    steps = [f"The slope of the given line: {bracketed(-p)} / {bracketed(q)} = {number(own)}"]
    steps += [f"The slopes multiply to -1: {bracketed(own)} * {bracketed(m)} = -1"] if crossing else []
    steps.append(f"The intercept: {b} - {bracketed(m)} * {bracketed(a)} = {number(c)}")
    return _line_problem(rng, prompt, f"y = {polynomial([m, c])}", steps)


def _bisector(a: int, b: int, size: int, rng: Random) -> Problem:
    dx = nonzero(rng, size)
    dy = nonzero(rng, size)
    mid = Fraction(2 * a + dx, 2), Fraction(2 * b + dy, 2)
    m = Fraction(-dx, dy)
    c = mid[1] - m * mid[0]
    prompt = phrase(
        rng,
        f"Find the perpendicular bisector of the segment from ({a}, {b}) to ({a + dx}, {b + dy}).",
        f"Which line consists of all points that are equally far from ({a}, {b}) and ({a + dx}, {b + dy})?",
    )
    steps = [
        f"The middle: ({a} + {bracketed(a + dx)}) / 2 = {number(mid[0])} and ({b} + {bracketed(b + dy)}) / 2 "
        f"= {number(mid[1])}",
        f"The slope of the segment: ({b + dy} - {bracketed(b)}) / ({a + dx} - {bracketed(a)}) = "
        f"{number(Fraction(dy, dx))}",
        f"The slopes multiply to -1: {bracketed(Fraction(dy, dx))} * {bracketed(m)} = -1",
        f"The intercept: {number(mid[1])} - {bracketed(m)} * {bracketed(mid[0])} = {number(c)}",
    ]
    return _line_problem(rng, prompt, f"y = {polynomial([m, c])}", steps)


def similarity(level: int, rng: Random) -> Problem:
    """Scaling: lengths, then areas, then volumes."""
    p, q = rng.sample(range(2, between(level, 8, 14)), 2)
    ratio = Fraction(q, p)
    dimension = 1 if level <= 4 else 2 if level <= 7 else 3
    if level in (7, 10):
        return _ratio_backwards(dimension, ratio, rng)
    base = p**dimension * rng.randint(1, between(level, 12, 6))
    result = base * ratio**dimension
    noun, unit = {1: ("side", "cm"), 2: ("area", "cm^2"), 3: ("volume", "cm^3")}[dimension]
    k = rng.randint(1, 4)
    sides = (p * k, q * k)
    what = "solids" if dimension == 3 else "triangles"
    article = "an" if dimension == 2 else "a"
    if dimension == 1:
        prompt = phrase(
            rng,
            f"Two similar triangles have corresponding sides of {sides[0]} cm and {sides[1]} cm. Another side of "
            f"the first is {base} cm. "
            "How long is the corresponding side of the second, in cm?",
            f"A stick of {sides[0]} cm casts a shadow of {sides[1]} cm. How long, in cm, is the shadow of a pole "
            f"of {base} cm at the same time?",
        )
    else:
        prompt = phrase(
            rng,
            f"Two similar {what} have corresponding edges of {sides[0]} cm and {sides[1]} cm. The first has {article} "
            f"{noun} of {base} {unit}. Find "
            f"the {noun} of the second in {unit}.",
            f"The {noun} of a figure is {base} {unit}. It is scaled so that an edge of {sides[0]} cm becomes "
            f"{sides[1]} cm. What is "
            f"its {noun} then, in {unit}?",
        )
    steps = [f"The scale factor: {sides[1]} / {sides[0]} = {number(ratio)}"] if ratio.denominator == 1 or k > 1 else []
    powered = f"({number(ratio)})^{dimension} = {number(ratio**dimension)}"
    steps += [powered] if dimension > 1 else []
    steps.append(f"{base} * {bracketed(ratio**dimension)} = {number(result)}")
    return Problem(prompt, Answer(number(result), unit=unit), tuple(steps))


def _ratio_backwards(dimension: int, ratio: Fraction, rng: Random) -> Problem:
    """A length from areas or volumes."""
    p = ratio.denominator
    q = ratio.numerator
    k = rng.randint(1, 5)
    first = k * p**dimension
    second = k * q**dimension
    base = p * rng.randint(2, 15)
    noun, unit = ("areas", "cm^2") if dimension == 2 else ("volumes", "cm^3")
    what = "polygons" if dimension == 2 else "bottles"
    prompt = phrase(
        rng,
        f"Two similar {what} have {noun} of {first} {unit} and {second} {unit}. An edge of the first is "
        f"{base} cm long. How long is the "
        "corresponding edge "
        "of the second, in cm?",
        f"The {noun} of two similar {what} are {first} {unit} and {second} {unit}. The first is {base} cm "
        "high. How high is the second, in cm?",
    )
    steps = (
        f"The {noun} have the ratio {second}/{first}, the lengths {number(ratio)}: "
        f"({number(ratio)})^{dimension} "
        f"= {second}/{first}",
        f"{base} * {bracketed(ratio)} = {number(base * ratio)}",
    )
    return Problem(prompt, Answer(number(base * ratio), unit="cm"), steps)
