"""Shapes on a grid: the scene graph that a picture is drawn from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import NamedTuple

from loomrl.gym.generate import words

COLOURS = words("red green blue yellow orange purple pink black")
KINDS = words("circle square triangle diamond star cross")

Cell = tuple[int, int]
"""Row and column, from 0 at the top left."""


class ShapeLook(NamedTuple):
    """The look of a shape."""

    colour: str
    kind: str

    def __str__(self) -> str:
        return f"{self.colour} {self.kind}"


LOOKS = tuple(ShapeLook(*pair) for pair in product(COLOURS, KINDS))
DIRECTIONS = {"left of": (0, -1), "right of": (0, 1), "above": (-1, 0), "below": (1, 0)}
"""Direction → rows and columns to go."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One shape of a scene."""

    look: ShapeLook
    cell: Cell
    small: bool = False
    before: ShapeLook | None = None
    """The shape in front of it in its cell, which covers a part."""


@dataclass(frozen=True, slots=True)
class ShapeScene:
    """The content of a picture."""

    side: int
    """Rows and columns of the grid."""
    pixels: int
    shapes: tuple[Shape, ...]
    striped: bool = False
    """Thin grey lines run over everything."""
    tinted: int = 0
    """Index of its light background."""


@dataclass(frozen=True, slots=True)
class SceneFrame:
    """A level's scenes: grid, picture size, and the number of irrelevant shapes."""

    side: int
    pixels: int
    others: int
    varied: bool
    striped: bool

    @staticmethod
    def of(level: int) -> "SceneFrame":
        """Larger and fuller with every level; small shapes from level 6, lines across from level 8."""
        side = 3 if level <= 4 else 4 if level <= 7 else 5
        pixels = {3: 64, 4: 96, 5: 160}[side] if level < 10 else 224
        return SceneFrame(side, pixels, others=max(0, level - 2), varied=level >= 6, striped=level >= 8)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All of them, row by row."""
        return tuple((row, column) for row in range(self.side) for column in range(self.side))

    def scene(self, rng: Random, shapes: Sequence[Shape]) -> ShapeScene:
        """The scene with these shapes."""
        return ShapeScene(self.side, self.pixels, tuple(shapes), self.striped, rng.randrange(4) if self.varied else 0)

    def fill(self, rng: Random, shapes: Sequence[Shape], looks: Iterable[ShapeLook] | None = None) -> list[Shape]:
        """These shapes and others, in free cells, none of which looks like another or, if given, all of `looks`."""
        free = [cell for cell in self.cells if cell not in {shape.cell for shape in shapes}]
        taken = {shape.look for shape in shapes} | {shape.before for shape in shapes}
        choices = [look for look in (LOOKS if looks is None else looks) if look not in taken]
        count = min(self.others, len(free), len(choices))
        added = zip(rng.sample(choices, count), rng.sample(free, count), strict=True)
        return [*shapes, *(Shape(look, cell, self.varied and rng.random() < 0.4) for look, cell in added)]


def beside(cell: Cell, direction: str) -> Cell:
    """The neighbouring cell that lies in this direction."""
    down, right = DIRECTIONS[direction]
    return cell[0] + down, cell[1] + right
