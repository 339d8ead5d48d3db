"""Sliding tiles on two rows, where the exact distance of every position fits into a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from loomrl.gym.generate import between

ROWS = 2
Tiles = bytes
"""Row by row; 0 is the gap."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """Tiles on a board."""

    rules = (
        "Sliding tiles. Bring the tiles into order, row by row, the gap (.) last. A move is the number of a tile next "
        "to the gap, which slides into it."
    )

    columns: int
    tiles: Tiles

    def shown(self) -> str:
        """The board."""
        signs = [str(tile) if tile else "." for tile in self.tiles]
        return "\n".join(" ".join(signs[row * self.columns :][: self.columns]) for row in range(ROWS))

    def moves(self) -> Sequence[str]:
        """The tiles next to the gap."""
        return [str(self.tiles[place]) for place in _near(self.tiles, self.columns)]

    def after(self, move: str) -> "Sliding":
        """With that tile slid."""
        return replace(self, tiles=_slid(self.tiles, self.tiles.index(int(move))))

    def distance(self) -> int:
        """From the table."""
        return distances(self.columns)[self.tiles]


@lru_cache(maxsize=4)
def distances(columns: int) -> Mapping[Tiles, int]:
    """Of every position that can be reached, how far it is from order."""
    order = bytes([*range(1, ROWS * columns), 0])
    known = {order: 0}
    border = [order]
    while border:
        tiles = [_slid(tiles, place) for tiles in border for place in _near(tiles, columns)]
        distance = known[border[0]] + 1
        border = []
        for found in tiles:
            if found not in known:
                known[found] = distance
                border.append(found)
    return known


def make_sliding(level: int, rng: Random) -> Sliding:
    """A position that is as far from order as the level says."""
    columns = 3 if level <= 3 else 4
    wanted = between(level, 5, 30)
    choices = _at(columns, wanted)
    return Sliding(columns, rng.choice(choices))


@lru_cache(maxsize=32)
def _at(columns: int, distance: int) -> Sequence[Tiles]:
    return [tiles for tiles, known in distances(columns).items() if known == distance]


def _near(tiles: Tiles, columns: int) -> Sequence[int]:
    """The places from which a tile can slide."""
    gap = tiles.index(0)
    row, column = divmod(gap, columns)
    places = [gap - columns] * (row > 0) + [gap - 1] * (column > 0)
    return places + [gap + 1] * (column < columns - 1) + [gap + columns] * (row < ROWS - 1)


def _slid(tiles: Tiles, place: int) -> Tiles:
    board = bytearray(tiles)
    gap = tiles.index(0)
    board[gap] = board[place]
    board[place] = 0
    return bytes(board)
