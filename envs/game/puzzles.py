"""Puzzles for one player, each with the exact distance to its solution; solved within a number of moves or lost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from string import ascii_lowercase
from typing import Protocol

from loomrl.envs.game.notation import grid, plain
from loomrl.envs.game.play import FEW, OpponentReply, list_moves
from loomrl.gym.generate import between


class GamePuzzle(Protocol):
    """A puzzle's state."""

    @property
    def rules(self) -> str:
        """The goal, and the notation of moves."""

    def show(self) -> str:
        """The state for people."""

    def moves(self) -> Sequence[str]:
        """The legal moves in notation."""

    def after(self, move: str) -> "GamePuzzle":
        """The puzzle after one of these moves."""

    def distance(self) -> int | None:
        """Minimum number of moves to the solution; None if it is out of reach."""


class Riddle:
    """One attempt at a puzzle. Two moves, or a quarter, more than the shortest solution are allowed."""

    def __init__(self, puzzle: GamePuzzle) -> None:
        self.outcome: float | None = None
        self.answer: OpponentReply | None = None
        self._puzzle = puzzle
        self._shortest = puzzle.distance() or 0
        self._left = self._shortest + max(2, self._shortest // 4)

    @property
    def slips(self) -> int:
        """None: there is no opponent."""
        return 0

    def opening(self) -> str:
        """The rules and the first state."""
        return f"{self._puzzle.rules} You have {self._left} moves.\n{self._show()}"

    def moves(self) -> Sequence[str]:
        """The legal moves in notation."""
        return self._puzzle.moves()

    async def worth(self) -> float | None:
        """From one half at the start to 1 when solved; 0 if the solution is out of reach."""
        distance = self._puzzle.distance()
        return 0.0 if distance is None else self._shortest / (self._shortest + distance)

    def best(self) -> str:
        """The first move of a shortest solution."""
        known = ((move, self._puzzle.after(move).distance()) for move in self.moves())
        return min((distance, move) for move, distance in known if distance is not None)[1]

    async def move(self, text: str) -> str | None:
        """Make a move; None for an illegal one."""
        move = plain(text)
        if move not in self.moves():
            return None
        self._puzzle = self._puzzle.after(move)
        self._left -= 1
        if self._puzzle.distance() == 0:
            self.outcome = 1.0
        elif self._left == 0:
            self.outcome = 0.0
        return f"{self._show()}\nMoves left: {self._left}."

    def _show(self) -> str:
        moves = self.moves()
        lines = [self._puzzle.show(), *([list_moves(moves, FEW)] if len(moves) <= FEW else [])]
        return "\n".join(lines)


PEGS = "abc"
NEAR = 3
"""The shortest solution is at most so much longer than the level asks for."""


@dataclass(frozen=True, slots=True)
class Hanoi:
    """Disks on pegs."""

    rules = (
        "Tower of Hanoi. Move all disks to peg c. Only the top disk of a peg moves, never onto a smaller one. "
        "A move is two pegs, such as ab."
    )

    pegs: tuple[int, ...]
    """The peg of each disk, smallest disk first."""

    def show(self) -> str:
        """Every peg's disks from the bottom, larger numbers for larger disks."""
        return "\n".join(f"{name}: {self._on(number)}" for number, name in enumerate(PEGS))

    def moves(self) -> Sequence[str]:
        """Top disks to where they may go."""
        tops = [min((disk for disk, peg in enumerate(self.pegs) if peg == at), default=99) for at in range(3)]
        return [PEGS[a] + PEGS[b] for a in range(3) for b in range(3) if tops[a] < tops[b]]

    def after(self, move: str) -> "Hanoi":
        """With the top disk moved."""
        source, target = map(PEGS.index, move)
        disk = self.pegs.index(source)
        return replace(self, pegs=(*self.pegs[:disk], target, *self.pegs[disk + 1 :]))

    def distance(self) -> int:
        """Every misplaced disk costs a power of two: those above it must go elsewhere first."""
        target = 2
        moves = 0
        for disk in reversed(range(len(self.pegs))):
            if self.pegs[disk] != target:
                moves += 1 << disk
                target = 3 - target - self.pegs[disk]
        return moves

    def _on(self, at: int) -> str:
        return " ".join(str(disk + 1) for disk in reversed(range(len(self.pegs))) if self.pegs[disk] == at) or "-"


def make_hanoi(level: int, rng: Random) -> Hanoi:
    """A position that is as far from the solution as the level says."""
    least = between(level, 4, 40)
    disks = (least + NEAR).bit_length()
    while True:
        hanoi = Hanoi(tuple(rng.randrange(3) for _ in range(disks)))
        if least <= hanoi.distance() <= least + NEAR:
            return hanoi


NAMES = "abc"
Litres = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Jugs:
    """Jugs with water in them."""

    capacity: Litres
    target: int
    water: Litres

    @property
    def rules(self) -> str:
        """The goal and the moves."""
        return (
            f"Measure exactly {self.target} litres in one of the jugs. Moves: fill a, empty a, pour a b, which ends "
            "when a is empty or b is full."
        )

    def show(self) -> str:
        """The water in every jug, with its capacity."""
        return "\n".join(
            f"{name}: {water} of {most}" for name, water, most in zip(NAMES, self.water, self.capacity, strict=False)
        )

    def moves(self) -> Sequence[str]:
        """The moves that change anything."""
        return list(_changes(self.capacity, self.water))

    def after(self, move: str) -> "Jugs":
        """The state after a move."""
        return replace(self, water=_changes(self.capacity, self.water)[move])

    def distance(self) -> int | None:
        """From the table of all that can be reached."""
        return _distances(self.capacity, self.target).get(self.water)


def make_jugs(level: int, rng: Random) -> Jugs:
    """Empty jugs and a target that takes as many moves as the level says; with two jugs there are even numbers only."""
    wanted = between(level, 4, 13)
    while True:
        count = 2 if level < 4 else rng.choice((2, 2, 3))
        capacity = tuple(sorted(rng.sample(range(3, 7 + level), count)))
        targets = [target for target, distance in _targets(capacity).items() if distance in (wanted, wanted + 1)]
        if targets:
            return Jugs(capacity, rng.choice(targets), (0,) * count)


@lru_cache(maxsize=4096)
def _targets(capacity: Litres) -> Mapping[int, int]:
    """Minimum number of moves from empty jugs, for each amount that can be measured."""
    known = {(0,) * len(capacity): 0}
    border = [(0,) * len(capacity)]
    found = {0: 0}
    for water in border:
        for after in _changes(capacity, water).values():
            if after not in known:
                known[after] = known[water] + 1
                border.append(after)
                for litres in after:
                    found.setdefault(litres, known[after])
    return found


def _changes(capacity: Litres, water: Litres) -> Mapping[str, Litres]:
    """Move → the resulting water, for all moves that change anything."""
    found = {}
    for a, name in enumerate(NAMES[: len(water)]):
        found[f"fill {name}"] = _with(water, {a: capacity[a]})
        found[f"empty {name}"] = _with(water, {a: 0})
        for b, other in enumerate(NAMES[: len(water)]):
            poured = min(water[a], capacity[b] - water[b])
            if a != b:
                found[f"pour {name} {other}"] = _with(water, {a: water[a] - poured, b: water[b] + poured})
    return {move: after for move, after in found.items() if after != water}


def _with(water: Litres, changed: Mapping[int, int]) -> Litres:
    return tuple(changed.get(jug, litres) for jug, litres in enumerate(water))


@lru_cache(maxsize=256)
def _distances(capacity: Litres, target: int) -> Mapping[Litres, int]:
    """Moves to the target, for each state that empty jugs can reach; states without a way are missing."""
    before: dict[Litres, list[Litres]] = {(0,) * len(capacity): []}
    border = list(before)
    for water in border:
        for after in _changes(capacity, water).values():
            if after not in before:
                before[after] = []
                border.append(after)
            before[after].append(water)
    known = {water: 0 for water in before if target in water}
    border = list(known)
    for water in border:
        for earlier in before[water]:
            if earlier not in known:
                known[earlier] = known[water] + 1
                border.append(earlier)
    return known


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

    def show(self) -> str:
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

    def show(self) -> str:
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
    """Distance to the ordered position, for each position that can be reached."""
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


PUZZLES: Mapping[str, Callable[[int, Random], GamePuzzle]] = {
    "puzzle.hanoi": make_hanoi,
    "puzzle.jugs": make_jugs,
    "puzzle.lights": make_lights,
    "puzzle.sliding": make_sliding,
}
"""Family → what makes its puzzle of a level."""

__all__ = ["PUZZLES", "GamePuzzle", "Riddle"]
