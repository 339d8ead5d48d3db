"""Captions: what stands next to what, as triples, judged by their F1 against the scene graph."""

import re
from itertools import pairwise
from random import Random

from loomrl.envs.multimodal.canvas import draw_scene
from loomrl.envs.multimodal.quiz import Quiz
from loomrl.envs.multimodal.scene import COLOURS, KINDS, LOOKS, SceneFrame, Shape, ShapeScene

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
