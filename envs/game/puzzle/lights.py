"""Lights out on rectangles in which every pattern has exactly one solution."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from string import ascii_lowercase

from loomrl.envs.game.notation import grid
from loomrl.gym.generate import between

SHAPES = ((3, 3), (3, 3), (3, 3), (3, 4), (3, 4), (3, 6), (4, 6), (5, 6), (6, 6), (6, 6))
"""Rows and columns by level; pressing different cells never does the same there."""


@dataclass(frozen=True, slots=True)
class Lights:
    """The cells that remain to be pressed, as a set; the lit cells follow from them."""

    rules = (
        "Lights out. Pressing a cell switches it and its neighbours left, right, above and below. Switch all lights "
        "(*) off. A move is a cell, such as b1."
    )

    rows: int
    columns: int
    pressed: frozenset[tuple[int, int]]

    def shown(self) -> str:
        """The lit cells as stars."""
        return grid(
            ["".join(".*"[self._lit(row, column)] for column in range(self.columns)) for row in range(self.rows)]
        )

    def moves(self) -> Sequence[str]:
        """Every cell."""
        return [f"{ascii_lowercase[column]}{row + 1}" for row in range(self.rows) for column in range(self.columns)]

    def after(self, move: str) -> "Lights":
        """With that cell pressed."""
        cell = (int(move[1:]) - 1, ascii_lowercase.index(move[0]))
        return replace(self, pressed=self.pressed ^ {cell})

    def distance(self) -> int:
        """The number of cells to press."""
        return len(self.pressed)

    def _lit(self, row: int, column: int) -> bool:
        near = ((row, column), (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        return sum(cell in self.pressed for cell in near) % 2 == 1


def make_lights(level: int, rng: Random) -> Lights:
    """A pattern that needs as many presses as the level says."""
    rows, columns = SHAPES[level - 1]
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    return Lights(rows, columns, frozenset(rng.sample(cells, between(level, 3, 14))))
