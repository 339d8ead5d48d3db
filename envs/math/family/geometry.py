"""Geometry: angles, right triangles, circles, coordinates, similar figures, solids."""

from fractions import Fraction
from random import Random

from loomrl.envs.math.answer import MathAnswer
from loomrl.envs.math.form import Form
from loomrl.envs.math.notation import bracket, number, polynomial, surd, times_pi, total
from loomrl.envs.math.problem import MathProblem, nonzero, phrase, pose
from loomrl.gym.generate import between, listed

TRIPLES = ((3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25), (20, 21, 29), (12, 35, 37), (9, 40, 41), (28, 45, 53))
Measure = tuple[str, Fraction, str, list[str]]
"""A question, the number in its answer, the unit, and the steps."""


def triangle_name(rng: Random) -> tuple[str, str, str]:
    """Three corners."""
    p, q, r = rng.choice((("A", "B", "C"), ("P", "Q", "R"), ("D", "E", "F"), ("K", "L", "M"), ("R", "S", "T")))
    return p, q, r


def angle(level: int, rng: Random) -> MathProblem:
    """Angles of triangles, polygons, and angles given as expressions."""
    build = (_third_angle, _third_angle, _isosceles, _exterior, _polygon_angle, _polygon_angle)
    return (*build, _angle_ratio, _angle_equation, _angle_equation, _angle_equation)[level - 1](level, rng)


def _third_angle(level: int, rng: Random) -> MathProblem:
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
    steps = (f"The angles add up to 180 degrees: {a} + {b} = {a + b}", f"180 - {a + b} = {180 - a - b}")
    return pose(
        rng,
        MathAnswer(str(180 - a - b), unit="degrees"),
        steps,
        f"In triangle {name}, {given}. How many degrees is angle {r}?",
        f"Triangle {name} is such that {given}. Find angle {r} in degrees.",
        f"Two angles of triangle {name} are known: {given}. What is the measure of angle {r}, in degrees?",
    )


def _isosceles(level: int, rng: Random) -> MathProblem:
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
        return MathProblem(prompt, MathAnswer(str(base), unit="degrees"), steps)
    prompt = f"{lead}Angle {q} measures {base} degrees. How many degrees is angle {p}?"
    steps = (f"Angles {q} and {r} are equal: {base} + {base} = {2 * base}", f"180 - {2 * base} = {top}")
    return MathProblem(prompt, MathAnswer(str(top), unit="degrees"), steps)


def _exterior(level: int, rng: Random) -> MathProblem:
    a = rng.randint(20, 85)
    b = rng.randint(20, 85)
    p, q, r = triangle_name(rng)
    name = p + q + r
    steps = (f"The interior angle at {r} is 180 - {a + b} = {180 - a - b}", f"180 - {180 - a - b} - {a} = {b}")
    return pose(
        rng,
        MathAnswer(str(b), unit="degrees"),
        steps,
        f"In triangle {name}, the exterior angle at {r} is {a + b} degrees and angle {p} is {a} degrees. Find "
        f"angle {q} in degrees.",
        f"The side {q}{r} of triangle {name} is extended beyond {r}; the exterior angle there measures "
        f"{a + b} degrees. "
        f"Angle {p} is {a} degrees. What is angle {q} in degrees?",
    )


def _polygon_angle(level: int, rng: Random) -> MathProblem:
    sides = rng.randint(4, 6) if level == 5 else rng.randint(5, 9)
    whole = 180 * (sides - 2)
    mean = whole // sides
    angles = [mean + nonzero(rng, 35) for _ in range(sides - 1)]
    last = whole - sum(angles)
    if not 20 <= last < 180 or max(angles) >= 180:
        return _polygon_angle(level, rng)
    noun = {4: "quadrilateral", 5: "pentagon", 6: "hexagon", 7: "heptagon", 8: "octagon", 9: "nonagon"}[sides]
    given = listed([str(a) for a in angles])
    steps = (
        f"The angle sum is ({sides} - 2) * 180 = {whole}",
        f"{' + '.join(map(str, angles))} = {sum(angles)}",
        f"{whole} - {sum(angles)} = {last}",
    )
    return pose(
        rng,
        MathAnswer(str(last), unit="degrees"),
        steps,
        f"All but one of the {sides} angles of a convex {noun} measure {given} degrees. How many degrees is "
        "the last angle?",
        f"A convex {noun} has {sides} angles; {sides - 1} of them are {given} degrees. Find the missing one "
        "in degrees.",
    )


def _angle_ratio(level: int, rng: Random) -> MathProblem:
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
    steps = (
        f"{' + '.join(map(str, parts))} = {sum(parts)}",
        f"{whole} / {sum(parts)} = {unit}",
        f"{part} * {unit} = {part * unit}",
    )
    return pose(
        rng,
        MathAnswer(str(part * unit), unit="degrees"),
        steps,
        f"The {count} angles of a {noun} are in the ratio {ratio}. How many degrees is the {which} angle?",
        f"In a {noun} the {count} angles relate as {ratio}. Find the {which} one in degrees.",
    )


def _angle_equation(level: int, rng: Random) -> MathProblem:
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
    slope = sum(slopes)
    offset = sum(offsets)
    steps = [
        f"The angle sum is ({count} - 2) * 180 = {whole}",
        f"Adding them up: {' + '.join(given)} = {polynomial([slope, offset])}",
        f"So {polynomial([slope, offset])} = {whole}",
        f"{whole} - {bracket(offset)} = {slope * root}",
        f"{slope * root} / {slope} = {root}",
    ]
    result = root
    if level == 10:
        result = max(values)
        at = values.index(result)
        steps.append(f"The largest angle: {polynomial([slopes[at], offsets[at]], f'({root})')} = {result}")
    answer = MathAnswer(str(result), names=() if level == 10 else ("x",), unit="degrees")
    return pose(
        rng,
        answer,
        steps,
        f"The angles of a {noun} measure {listed(given)} degrees. Find {wanted}.",
        f"A {noun} has angles of {listed(given)} degrees. What is {wanted}?",
        known=({"x": str(root)},),
    )


def circle(level: int, rng: Random) -> MathProblem:
    """Circumference, area, arcs, sectors and rings, in multiples of π."""
    build = (
        _circumference,
        _circle_area,
        _circle_area,
        _ring,
        _arc,
        _sector,
        _sector,
        _circle_around,
        _circle_around,
        _backwards_sector,
    )
    prompt, value, unit, steps = build[level - 1](level, rng)
    prompt += phrase(rng, " Give the exact value in terms of pi.", " Leave pi in the answer.")
    return MathProblem(prompt, MathAnswer(times_pi(value), unit=unit), tuple(steps))


def _circumference(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 99)
    if rng.random() < 0.5:
        return (
            phrase(
                rng,
                f"What is the circumference of a circle with radius {r} cm?",
                f"A round table has a radius of {r} cm. How long is its edge, in cm?",
            ),
            Fraction(2 * r),
            "cm",
            [f"2 * {r} = {2 * r}", f"2 * π * {r} = {2 * r}π"],
        )
    return (
        phrase(
            rng,
            f"A circle has a diameter of {r} cm. Find its circumference in cm.",
            f"How far, in cm, does a wheel with diameter {r} cm roll in one turn?",
        ),
        Fraction(r),
        "cm",
        [f"The circumference is twice the radius times π: 2 * π * {r} / 2 = {r}π"],
    )


def _circle_area(level: int, rng: Random) -> Measure:
    if level == 2:
        r = rng.randint(2, 150)
        return (
            phrase(
                rng,
                f"Find the area of a circle with radius {r} cm, in cm^2.",
                f"A circular plate has a radius of {r} cm. What is its area in cm^2?",
            ),
            Fraction(r * r),
            "cm^2",
            [f"{r}^2 = {r * r}", f"π * {r}^2 = {r * r}π"],
        )
    r = rng.randint(2, 120)
    half = Fraction(r, 2)
    steps = [f"The radius: {r} / 2 = {number(half)}", f"({number(half)})^2 = {number(half * half)}"]
    steps = steps if half.denominator == 1 else [f"The radius is {r}/2", f"({r}/2)^2 = {number(half * half)}"]
    return (
        phrase(
            rng,
            f"Find the area of a circle with diameter {r} cm, in cm^2.",
            f"A circle has a circumference of {r}π cm. What is its area in cm^2?",
        ),
        half * half,
        "cm^2",
        steps,
    )


def _ring(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 40)
    outer = r + rng.randint(1, 20)
    steps = [f"{outer}^2 = {outer * outer}", f"{r}^2 = {r * r}", f"{outer * outer} - {r * r} = {outer * outer - r * r}"]
    return (
        phrase(
            rng,
            f"A ring lies between two circles with the same centre and radii {r} cm and {outer} cm. What is its "
            "area in cm^2?",
            f"A circular hole of radius {r} cm is cut from a disc of radius {outer} cm. Find the remaining "
            "area in cm^2.",
        ),
        Fraction(outer * outer - r * r),
        "cm^2",
        steps,
    )


def _arc(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 40)
    degrees = rng.choice((20, 30, 36, 40, 45, 50, 60, 72, 80, 90, 100, 108, 120, 135, 150, 240, 270))
    result = Fraction(2 * r * degrees, 360)
    return (
        phrase(
            rng,
            f"How long, in cm, is the arc over a central angle of {degrees} degrees in a circle with radius {r} cm?",
            f"The tip of a clock hand of {r} cm turns through {degrees} degrees. How many cm does it travel?",
        ),
        result,
        "cm",
        [f"2 * π * {r} = {2 * r}π", f"{2 * r}π * {degrees} / 360 = {times_pi(result)}"],
    )


def _sector(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 40)
    degrees = rng.choice((20, 30, 36, 40, 45, 60, 72, 80, 90, 100, 108, 120, 135, 150, 160, 200, 240, 300))
    if level == 6:
        result = Fraction(r * r * degrees, 360)
        return (
            phrase(
                rng,
                f"What is the area, in cm^2, of a circular sector with radius {r} cm and central angle {degrees} "
                "degrees?",
                f"A slice of pizza has a radius of {r} cm and an angle of {degrees} degrees. Find its area in cm^2.",
            ),
            result,
            "cm^2",
            [f"{r}^2 = {r * r}", f"{r * r}π * {degrees} / 360 = {times_pi(result)}"],
        )
    outer = r + rng.randint(1, 20)
    gap = outer * outer - r * r
    result = Fraction(gap * degrees, 360)
    prompt = (
        f"A windscreen wiper turns through {degrees} degrees. Its blade reaches from {r} cm to {outer} cm "
        "from the pivot. "
        "What area, in cm^2, does it wipe?"
    )
    return prompt, result, "cm^2", [f"{outer}^2 - {r}^2 = {gap}", f"{gap}π * {degrees} / 360 = {times_pi(result)}"]


def _circle_around(level: int, rng: Random) -> Measure:
    """Circles around rectangles and right triangles; at level 9 within a right triangle."""
    scale = rng.randint(1, 12)
    a, b, c = (scale * side for side in rng.choice(TRIPLES))
    if level == 8:
        noun = rng.choice((f"a rectangle of {a} cm by {b} cm", f"a right triangle with legs {a} cm and {b} cm"))
        result = Fraction(c * c, 4)
        steps = [f"The diameter is √({a}^2 + {b}^2) = {c}", f"({c}/2)^2 = {number(result)}"]
        return (
            phrase(
                rng,
                f"A circle passes through all vertices of {noun}. What is its area in cm^2?",
                f"Find the area, in cm^2, of the circumscribed circle of {noun}.",
            ),
            result,
            "cm^2",
            steps,
        )
    r = Fraction(a + b - c, 2)
    steps = [
        f"The hypotenuse: √({a}^2 + {b}^2) = {c}",
        f"The radius: ({a} + {b} - {c}) / 2 = {number(r)}",
        f"({number(r)})^2 = {number(r * r)}",
    ]
    return (
        phrase(
            rng,
            f"Find the area, in cm^2, of the circle inscribed in a right triangle with legs {a} cm and {b} cm.",
            f"The largest circle that fits into a right triangle with legs {a} cm and {b} cm touches all three "
            "sides. What is its area in cm^2?",
        ),
        r * r,
        "cm^2",
        steps,
    )


def _backwards_sector(level: int, rng: Random) -> Measure:
    """The area of a sector from its perimeter."""
    r = rng.randint(3, 40)
    degrees = rng.choice((30, 36, 40, 45, 60, 72, 90, 108, 120, 135, 150))
    arc = Fraction(2 * r * degrees, 360)
    result = arc * r / 2
    steps = [
        f"2 * π * r * {degrees}/360 is the arc, so r is {number(arc)} * 360 / (2 * {degrees}) = {r}",
        f"({number(arc)})π * {r} / 2 = {times_pi(result)}",
    ]
    return (
        phrase(
            rng,
            f"A circular sector with central angle {degrees} degrees has an arc of length {times_pi(arc)} cm. What is "
            "the area of the sector in cm^2?",
            f"The arc of a sector is {times_pi(arc)} cm long and its central angle measures {degrees} degrees. Find "
            "the sector's area in cm^2.",
        ),
        result,
        "cm^2",
        steps,
    )


def pythagoras(level: int, rng: Random) -> MathProblem:
    """Right triangles, diagonals, heights; whole numbers first, roots later."""
    build = (_hypotenuse, _leg, _hypotenuse, _hypotenuse, _leg, _rectangle, _box, _box, _height, _height)
    return build[level - 1](level, rng)


def _hypotenuse(level: int, rng: Random) -> MathProblem:
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
    return _root_problem(prompt, a * a + b * b, [f"{a}^2 + {b}^2 = {a * a} + {b * b} = {a * a + b * b}"])


def _leg(level: int, rng: Random) -> MathProblem:
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
    return _root_problem(prompt, c * c - a * a, [f"{c}^2 - {a}^2 = {c * c} - {a * a} = {c * c - a * a}"])


def _root_problem(prompt: str, square: int, steps: list[str]) -> MathProblem:
    prompt += "" if surd(1, square).isdecimal() else " Give the exact value, with a root."
    return MathProblem(prompt, MathAnswer(surd(1, square), unit="cm"), (*steps, f"√{square} = {surd(1, square)}"))


def _rectangle(level: int, rng: Random) -> MathProblem:
    """The diagonal of a rectangle whose area and one side are known."""
    a = rng.randint(3, 30)
    b = rng.randint(3, 30)
    prompt = phrase(
        rng,
        f"A rectangle has an area of {a * b} cm^2 and one side of {a} cm. How long is its diagonal, in cm?",
        f"One side of a rectangle measures {a} cm, and its perimeter is {2 * (a + b)} cm. Find the diagonal in cm.",
    )
    other = f"{a * b} / {a} = {b}" if "area" in prompt else f"{2 * (a + b)} / 2 - {a} = {b}"
    return _root_problem(
        prompt, a * a + b * b, [f"The other side: {other}", f"{a}^2 + {b}^2 = {a * a} + {b * b} = {a * a + b * b}"]
    )


def _box(level: int, rng: Random) -> MathProblem:
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
    return _root_problem(prompt, square, [*steps, f"{a}^2 + {b}^2 + {c}^2 = {a * a} + {b * b} + {c * c} = {square}"])


def _height(level: int, rng: Random) -> MathProblem:
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
        return _root_problem(f"{given} What is the height on the base, in cm?", square, steps[:2])
    area = surd(half, square)
    steps.append(f"{half} * {surd(1, square)} = {area}")
    prompt = f"{given} What is its area in cm^2?" + ("" if area.isdecimal() else " Give the exact value, with a root.")
    return MathProblem(prompt, MathAnswer(area, unit="cm^2"), tuple(steps))


def coordinates(level: int, rng: Random) -> MathProblem:
    """Areas of polygons from the coordinates of their vertices."""
    count = between(level, 3, 6)
    size = between(level, 7, 15)
    points = _convex_points(count, size, rng)
    pairs = list(zip(points, [*points[1:], points[0]], strict=True))
    double = sum(x * v - u * y for (x, y), (u, v) in pairs)
    noun = {3: "triangle", 4: "quadrilateral", 5: "pentagon", 6: "hexagon"}[count]
    shown = listed([f"({x}, {y})" for x, y in points])
    products = [
        f"{bracket(x)} * {bracket(v)} - {bracket(u)} * {bracket(y)} = {x * v - u * y}" for (x, y), (u, v) in pairs
    ]
    sums = " + ".join(bracket(x * v - u * y) for (x, y), (u, v) in pairs)
    steps = (*products, f"{sums} = {double}", f"{double} / 2 = {number(Fraction(double, 2))}")
    return pose(
        rng,
        Fraction(double, 2),
        steps,
        f"What is the area of the {noun} with vertices {shown}, in this order?",
        f"Find the area of the {noun} whose vertices are, going around, {shown}.",
        f"The points {shown} are, in this order, the corners of a {noun}. Compute its area.",
    )


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


def line(level: int, rng: Random) -> MathProblem:
    """Lines: through two points, parallel, perpendicular, perpendicular bisectors."""
    size = between(level, 6, 12)
    a = nonzero(rng, size)
    b = nonzero(rng, size)
    if level <= 3:
        return _line_through(a, b, size, rng)
    return _line_beside(level, a, b, rng) if level <= 6 else _bisector(a, b, size, rng)


def _line_problem(rng: Random, prompt: str, equation: str, steps: list[str]) -> MathProblem:
    prompt += phrase(rng, " Answer with an equation in x and y.", " Give an equation in x and y.")
    return MathProblem(prompt, MathAnswer(equation, "equation", form=Form.ANY, variables="xy"), tuple(steps))


def _line_through(a: int, b: int, size: int, rng: Random) -> MathProblem:
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
        f"The slope: ({b + dy} - {bracket(b)}) / ({a + dx} - {bracket(a)}) = {number(m)}",
        f"The intercept: {b} - {bracket(m)} * {bracket(a)} = {number(c)}",
    ]
    return _line_problem(rng, prompt, f"y = {polynomial([m, c])}", steps)


def _line_beside(level: int, a: int, b: int, rng: Random) -> MathProblem:
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
    steps = [f"The slope of the given line: {bracket(-p)} / {bracket(q)} = {number(own)}"]
    steps += [f"The slopes multiply to -1: {bracket(own)} * {bracket(m)} = -1"] if crossing else []
    steps.append(f"The intercept: {b} - {bracket(m)} * {bracket(a)} = {number(c)}")
    return _line_problem(rng, prompt, f"y = {polynomial([m, c])}", steps)


def _bisector(a: int, b: int, size: int, rng: Random) -> MathProblem:
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
        f"The middle: ({a} + {bracket(a + dx)}) / 2 = {number(mid[0])} and ({b} + {bracket(b + dy)}) / 2 "
        f"= {number(mid[1])}",
        f"The slope of the segment: ({b + dy} - {bracket(b)}) / ({a + dx} - {bracket(a)}) = {number(Fraction(dy, dx))}",
        f"The slopes multiply to -1: {bracket(Fraction(dy, dx))} * {bracket(m)} = -1",
        f"The intercept: {number(mid[1])} - {bracket(m)} * {bracket(mid[0])} = {number(c)}",
    ]
    return _line_problem(rng, prompt, f"y = {polynomial([m, c])}", steps)


def similarity(level: int, rng: Random) -> MathProblem:
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
    steps.append(f"{base} * {bracket(ratio**dimension)} = {number(result)}")
    return MathProblem(prompt, MathAnswer(number(result), unit=unit), tuple(steps))


def _ratio_backwards(dimension: int, ratio: Fraction, rng: Random) -> MathProblem:
    """A length from areas or volumes."""
    p = ratio.denominator
    q = ratio.numerator
    k = rng.randint(1, 5)
    first = k * p**dimension
    second = k * q**dimension
    base = p * rng.randint(2, 15)
    noun, unit = ("areas", "cm^2") if dimension == 2 else ("volumes", "cm^3")
    what = "polygons" if dimension == 2 else "bottles"
    steps = (
        f"The {noun} have the ratio {second}/{first}, the lengths {number(ratio)}: "
        f"({number(ratio)})^{dimension} "
        f"= {second}/{first}",
        f"{base} * {bracket(ratio)} = {number(base * ratio)}",
    )
    return pose(
        rng,
        MathAnswer(number(base * ratio), unit="cm"),
        steps,
        f"Two similar {what} have {noun} of {first} {unit} and {second} {unit}. An edge of the first is "
        f"{base} cm long. How long is the "
        "corresponding edge "
        "of the second, in cm?",
        f"The {noun} of two similar {what} are {first} {unit} and {second} {unit}. The first is {base} cm "
        "high. How high is the second, in cm?",
    )


def solid(level: int, rng: Random) -> MathProblem:
    """Volumes and surfaces of boxes, cylinders, cones, spheres, and of things put together from them."""
    build = (_cuboid, _cuboid, _cylinder, _cylinder, _cone, _sphere, _sphere, _capsule, _capsule, _cone_surface)
    prompt, value, unit, steps = build[level - 1](level, rng)
    if level <= 2:
        return MathProblem(prompt, MathAnswer(number(value), unit=unit), tuple(steps))
    prompt += phrase(rng, " Give the exact value in terms of pi.", " Leave pi in the answer.")
    return MathProblem(prompt, MathAnswer(times_pi(value), unit=unit), tuple(steps))


def _cuboid(level: int, rng: Random) -> Measure:
    a, b, c = (rng.randint(2, 20) for _ in range(3))
    if level == 1:
        return (
            phrase(
                rng,
                f"What is the volume, in cm^3, of a box with edges {a} cm, {b} cm and {c} cm?",
                f"An aquarium measures {a} cm by {b} cm by {c} cm. Find its volume in cm^3.",
            ),
            Fraction(a * b * c),
            "cm^3",
            [f"{a} * {b} = {a * b}", f"{a * b} * {c} = {a * b * c}"],
        )
    surface = 2 * (a * b + b * c + a * c)
    sides = [f"{p} * {q} = {p * q}" for p, q in ((a, b), (b, c), (a, c))]
    return (
        phrase(
            rng,
            f"Find the total surface area, in cm^2, of a box with edges {a} cm, {b} cm and {c} cm.",
            f"How many cm^2 of paper cover a box of {a} cm by {b} cm by {c} cm exactly?",
        ),
        Fraction(surface),
        "cm^2",
        [*sides, f"2 * ({a * b} + {b * c} + {a * c}) = {surface}"],
    )


def _cylinder(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 20)
    h = rng.randint(2, 30)
    if level == 3:
        return (
            phrase(
                rng,
                f"What is the volume, in cm^3, of a cylinder with radius {r} cm and height {h} cm?",
                f"A can has a radius of {r} cm and is {h} cm high. Find its volume in cm^3.",
            ),
            Fraction(r * r * h),
            "cm^3",
            [f"{r}^2 = {r * r}", f"π * {r * r} * {h} = {r * r * h}π"],
        )
    total_area = 2 * r * (r + h)
    steps = [
        f"Top and bottom: 2 * π * {r}^2 = {2 * r * r}π",
        f"The side: 2 * π * {r} * {h} = {2 * r * h}π",
        f"{2 * r * r}π + {2 * r * h}π = {total_area}π",
    ]
    return (
        phrase(
            rng,
            f"Find the total surface area, in cm^2, of a closed cylinder with radius {r} cm and height {h} cm.",
            f"A closed can has a radius of {r} cm and a height of {h} cm. How many cm^2 of metal is it made of?",
        ),
        Fraction(total_area),
        "cm^2",
        steps,
    )


def _cone(level: int, rng: Random) -> Measure:
    r = rng.randint(2, 20)
    h = rng.randint(2, 30)
    result = Fraction(r * r * h, 3)
    return (
        phrase(
            rng,
            f"What is the volume, in cm^3, of a cone with base radius {r} cm and height {h} cm?",
            f"A paper cup has the shape of a cone with a radius of {r} cm and a depth of {h} cm. How many cm^3 "
            "does it hold?",
        ),
        result,
        "cm^3",
        [f"{r}^2 = {r * r}", f"π * {r * r} * {h} / 3 = {times_pi(result)}"],
    )


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
    return (
        phrase(
            rng,
            f"A solid consists of a cylinder with radius {r} cm and height {h} cm, with {cap}. What is its volume "
            "in cm^3?",
            f"A cylinder (radius {r} cm, height {h} cm) has {cap}. Find the volume of the whole solid in cm^3.",
        ),
        result,
        "cm^3",
        steps,
    )


def _cone_surface(level: int, rng: Random) -> Measure:
    scale = rng.randint(1, 15)
    r, h, s = (scale * side for side in rng.choice(TRIPLES))
    r, h = rng.sample((r, h), 2)
    result = Fraction(r * (r + s))
    steps = [
        f"The slant height: √({r}^2 + {h}^2) = {s}",
        f"The side: π * {r} * {s} = {r * s}π",
        f"The base: π * {r}^2 = {r * r}π",
    ]
    return (
        phrase(
            rng,
            f"What is the total surface area, in cm^2, of a solid cone with base radius {r} cm and height {h} cm?",
            f"A solid cone is {h} cm high; its base has a radius of {r} cm. Find its total surface area in cm^2.",
        ),
        result,
        "cm^2",
        [*steps, f"{r * s}π + {r * r}π = {times_pi(result)}"],
    )
