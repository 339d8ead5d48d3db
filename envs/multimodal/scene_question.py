"""Questions about a scene, and captions: what stands next to what, as triples, judged by their F1.

The answer is drawn first, then a scene for it: so no answer is likelier than another."""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from random import Random

from loomrl.envs.multimodal.canvas import draw_scene
from loomrl.envs.multimodal.quiz import Quiz, exact
from loomrl.envs.multimodal.scene import (
    COLOURS,
    DIRECTIONS,
    KINDS,
    LOOKS,
    Cell,
    SceneFrame,
    Shape,
    ShapeLook,
    ShapeScene,
    beside,
)

NAMED = "Answer with colour and shape, such as: red circle."
MOST = 8
"""The largest count in a question."""
COUNTS = tuple(map(str, range(1, MOST + 1)))

Asked = tuple[str, str, ShapeScene]
"""Question, answer, scene."""


def scene_quiz(level: int, rng: Random) -> Quiz:
    """A question of this level."""
    kind = rng.choice(LEVELS[level])
    question, answer, scene = KIND_OF[kind](SceneFrame.of(level), rng)
    return Quiz(question, answer, lambda: draw_scene(scene), exact(answer), _guesses(kind, scene.side))


def _guesses(kind: str, side: int) -> tuple[tuple[str, ...], ...]:
    if kind == "colour":
        return (COLOURS,)
    if kind == "place":
        return (tuple(map(str, range(1, side + 1))),) * 2
    return (COUNTS,) if kind in COUNTING else (COLOURS, KINDS)


def _colour(frame: SceneFrame, rng: Random) -> Asked:
    shape = _somewhere(frame, rng, rng.choice(LOOKS))
    return "What colour is the shape?", shape.look.colour, frame.scene(rng, [shape])


def _name(frame: SceneFrame, rng: Random) -> Asked:
    shape = _somewhere(frame, rng, rng.choice(LOOKS))
    return f"Which shape is this? {NAMED}", str(shape.look), frame.scene(rng, [shape])


def _count(frame: SceneFrame, rng: Random) -> Asked:
    number = rng.randint(1, MOST)
    cells = rng.sample(frame.cells, number)
    shapes = [Shape(rng.choice(LOOKS), cell) for cell in cells]
    return "How many shapes are there?", str(number), frame.scene(rng, shapes)


def _place(frame: SceneFrame, rng: Random) -> Asked:
    shape = _somewhere(frame, rng, rng.choice(LOOKS))
    row, column = shape.cell
    question = (
        f"The picture has {frame.side} rows and {frame.side} columns. Where is the {shape.look}? "
        "Answer with row and column, counted from the top left, such as: 1, 2."
    )
    return question, f"{row + 1}, {column + 1}", frame.scene(rng, frame.fill(rng, [shape]))


def _cell(frame: SceneFrame, rng: Random) -> Asked:
    shape = _somewhere(frame, rng, rng.choice(LOOKS))
    row, column = shape.cell
    question = f"The picture has {frame.side} rows and {frame.side} columns. What is in row {row + 1}, column "
    return f"{question}{column + 1}? {NAMED}", str(shape.look), frame.scene(rng, frame.fill(rng, [shape]))


def _count_of(frame: SceneFrame, rng: Random) -> Asked:
    number = rng.randint(1, MOST)
    if rng.random() < 0.5:
        colour = rng.choice(COLOURS)
        wanted = [look for look in LOOKS if look.colour == colour]
        question = f"How many {colour} shapes are there?"
    else:
        kind = rng.choice(KINDS)
        wanted = [look for look in LOOKS if look.kind == kind]
        question = f"How many {kind if kind != 'cross' else 'crosse'}s are there?"
    shapes = [Shape(rng.choice(wanted), cell) for cell in rng.sample(frame.cells, number)]
    others = [look for look in LOOKS if look not in wanted]
    return question, str(number), frame.scene(rng, frame.fill(rng, shapes, others))


def _beside(frame: SceneFrame, rng: Random) -> Asked:
    direction = rng.choice(tuple(DIRECTIONS))
    known, sought = rng.sample(LOOKS, 2)
    cell = _with_neighbour(frame, rng, direction)
    shapes = [Shape(known, cell), Shape(sought, beside(cell, direction))]
    question = f"What is directly {direction} the {known}? {NAMED}"
    return question, str(sought), frame.scene(rng, frame.fill(rng, shapes))


def _hop(frame: SceneFrame, rng: Random) -> Asked:
    known, between, sought = rng.sample(LOOKS, 3)
    while True:
        first, second = (rng.choice(tuple(DIRECTIONS)) for _ in range(2))
        start = rng.choice(frame.cells)
        middle = beside(start, first)
        end = beside(middle, second)
        if end != start and middle in frame.cells and end in frame.cells:
            break
    shapes = [Shape(known, start), Shape(between, middle), Shape(sought, end)]
    question = f"What is directly {second} the shape that is directly {first} the {known}? {NAMED}"
    return question, str(sought), frame.scene(rng, frame.fill(rng, shapes))


def _smallest(frame: SceneFrame, rng: Random) -> Asked:
    sought, *others = rng.sample(LOOKS, frame.others)
    cells = rng.sample(frame.cells, frame.others)
    shapes = [Shape(look, cell, look == sought) for look, cell in zip((sought, *others), cells, strict=True)]
    return f"Which shape is the smallest? {NAMED}", str(sought), frame.scene(rng, shapes)


def _same(frame: SceneFrame, rng: Random) -> Asked:
    number = rng.randint(1, MOST)
    known = rng.choice(LOOKS)
    cell, *cells = rng.sample(frame.cells, number + 1)
    alike = [ShapeLook(known.colour, kind) for kind in KINDS if kind != known.kind]
    shapes = [Shape(known, cell), *(Shape(rng.choice(alike), other) for other in cells)]
    others = [look for look in LOOKS if look.colour != known.colour]
    question = f"How many other shapes have the same colour as the {known}?"
    return question, str(number), frame.scene(rng, frame.fill(rng, shapes, others))


def _higher(frame: SceneFrame, rng: Random) -> Asked:
    number = rng.randint(1, MOST)
    rows = [row for row in range(frame.side) if row * frame.side >= number]
    known = rng.choice(LOOKS)
    row = rng.choice(rows)
    higher = [cell for cell in frame.cells if cell[0] < row]
    lower = [cell for cell in frame.cells if cell[0] > row]
    looks = [look for look in LOOKS if look != known]
    cells = rng.sample(higher, number) + rng.sample(lower, min(len(lower), rng.randint(0, frame.others)))
    shapes = [Shape(known, (row, rng.randrange(frame.side)))]
    shapes += [Shape(rng.choice(looks), cell, rng.random() < 0.4) for cell in cells]
    question = f"How many shapes are in the rows above the row of the {known}?"
    return question, str(number), frame.scene(rng, shapes)


def _front(frame: SceneFrame, rng: Random) -> Asked:
    behind = rng.choice(LOOKS)
    front = rng.choice([look for look in LOOKS if look.colour != behind.colour])
    shape = Shape(behind, rng.choice(frame.cells), before=front)
    question = f"One shape covers a part of another. Which shape is in front? {NAMED}"
    return question, str(front), frame.scene(rng, frame.fill(rng, [shape]))


def _somewhere(frame: SceneFrame, rng: Random, look: ShapeLook) -> Shape:
    return Shape(look, rng.choice(frame.cells))


def _with_neighbour(frame: SceneFrame, rng: Random, direction: str) -> Cell:
    return rng.choice([cell for cell in frame.cells if beside(cell, direction) in frame.cells])


KIND_OF: Mapping[str, Callable[[SceneFrame, Random], Asked]] = {
    "colour": _colour,
    "name": _name,
    "count": _count,
    "place": _place,
    "cell": _cell,
    "count_of": _count_of,
    "beside": _beside,
    "hop": _hop,
    "smallest": _smallest,
    "same": _same,
    "higher": _higher,
    "front": _front,
}
COUNTING = ("count", "count_of", "same", "higher")
LEVELS: Mapping[int, tuple[str, ...]] = {
    1: ("colour",),
    2: ("name",),
    3: ("name", "count"),
    4: ("count", "place", "cell"),
    5: ("cell", "count_of", "beside"),
    6: ("count_of", "beside", "smallest"),
    7: ("beside", "smallest", "same"),
    8: ("same", "higher", "front", "hop"),
    9: ("higher", "front", "hop"),
    10: ("higher", "front", "hop", "same"),
}


MOST_LINES = 60
"""More than any scene has; a longer list is no caption."""
LONGEST = 8000
INVERSE = {"right of": "left of", "below": "above"}

Triple = tuple[str, str, str]


def caption_quiz(level: int, rng: Random) -> Quiz:
    """A scene to describe."""
    scene = _scene(level, rng)
    right = triples(scene)
    question = (
        "Describe the picture. For all shapes that are next to each other in a row or column, with no other shape "
        "between them, write a line such as: red circle | left of | blue square\nUse left of and above only."
    )
    answer = "\n".join(" | ".join(triple) for triple in sorted(right))
    names = tuple(map(str, LOOKS))
    return Quiz(question, answer, lambda: draw_scene(scene), lambda given: f1(given, right), (names,))


def triples(scene: ShapeScene) -> frozenset[Triple]:
    """Every two shapes in one row or column without a third between them."""
    found = set()
    for axis, relation in ((0, "left of"), (1, "above")):
        for line in range(scene.side):
            there = [shape for shape in scene.shapes if shape.cell[axis] == line]
            there.sort(key=lambda shape: shape.cell)
            found |= {(str(one.look), relation, str(other.look)) for one, other in pairwise(there)}
    return frozenset(found)


def f1(given: str, right: frozenset[Triple]) -> float:
    """F1 of the lines; a line that is not a triple of shapes counts as a wrong one."""
    if len(given) > LONGEST:
        return 0.0
    plain = (line.translate(_MARKS).strip(" .,") for line in given.lower().splitlines())
    lines = {" ".join(line.split()) for line in plain if line}
    if not 0 < len(lines) <= MOST_LINES:
        return 0.0
    read = {_triple(line) or (line, "", "") for line in lines}
    return 2 * len(read & right) / (len(read) + len(right))


def _triple(line: str) -> Triple | None:
    """The triple that a line says, in the direction that the scene graph has."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    one, relation, other = match.groups()
    return (other, INVERSE[relation], one) if relation in INVERSE else (one, relation, other)


_MARKS = str.maketrans("", "", "*_`")
_LOOK = f"((?:{'|'.join(COLOURS)}) (?:{'|'.join(KINDS)}))"
_LINE = re.compile(rf"(?:(?:[-•]|[0-9]{{1,2}}[.)]) )?{_LOOK} ?\| ?(left of|right of|above|below) ?\| ?{_LOOK}")


def _scene(level: int, rng: Random) -> ShapeScene:
    """Shapes of different looks, of which at least two are next to each other."""
    frame = SceneFrame.of(level)
    looks = rng.sample(LOOKS, level + 1)
    while True:
        cells = rng.sample(frame.cells, min(len(looks), len(frame.cells) - 1))
        shapes = [
            Shape(look, cell, frame.varied and rng.random() < 0.4) for look, cell in zip(looks, cells, strict=False)
        ]
        scene = frame.scene(rng, shapes)
        if triples(scene):
            return scene
