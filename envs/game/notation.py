"""Notation of positions and moves for the policy: boards with labels, moves as short as `b3`."""

import re
from collections.abc import Sequence
from string import ascii_lowercase

from loomrl.envs.game.spiel import BoardState

_NUMBER = re.compile(r"\d+")
_LINES = str.maketrans("┌┬┐├┼┤└┴┘─│╴╶", "+++++++++-|  ")


def plain(text: str) -> str:
    """A move normalised for comparison: lower case, single spaces."""
    return " ".join(text.casefold().split())


def spell_move(state: BoardState, action: int) -> str:
    """OpenSpiel's spelling without its mark for captures."""
    return state.action_to_string(action).rstrip("*").lower()


def plain_board(state: BoardState) -> str:
    """A board that already has labels, with spaces between the cells."""
    return "\n".join(" ".join(line) for line in str(state).splitlines() if line.strip())


def label_board(state: BoardState) -> str:
    """A rectangle with letters for columns and numbers for rows, both from the upper left."""
    return grid(str(state).split())


def grid(rows: Sequence[str]) -> str:
    """Rows of cells with labels."""
    header = " ".join(ascii_lowercase[: len(rows[0])])
    return "\n".join([f"  {header}", *(f"{number} {' '.join(row)}" for number, row in enumerate(rows, start=1))])


def cell(state: BoardState, action: int) -> str:
    """`x(1,0)`, which is row and column, as `a2`."""
    row, column = _numbers(state, action)
    return f"{ascii_lowercase[column]}{row + 1}"


def column(state: BoardState, action: int) -> str:
    """`x2` as `c`."""
    return ascii_lowercase[_numbers(state, action)[-1]]


def hex_board(state: BoardState) -> str:
    """The rhombus of Hex, every row half a cell further to the right."""
    rows = str(state).splitlines()
    cells = [row.split() for row in rows if row.strip()]
    header = " ".join(ascii_lowercase[: len(cells[0])])
    lines = [f"{' ' * number}{number + 1} {' '.join(row)}" for number, row in enumerate(cells)]
    return "\n".join([f"  {header}", *lines])


def triangle(state: BoardState) -> str:
    """The triangle of Y with x and o; the mark of the last move is left out."""
    lines = str(state).translate(str.maketrans("[]O@", "  xo")).splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip())


def disks(state: BoardState) -> str:
    """The board of Othello without the line of the player to move."""
    return "\n".join(str(state).splitlines()[1:-1]).rstrip()


def fences(state: BoardState) -> str:
    """Dots, drawn lines, and the boxes of both players."""
    board = str(state).translate(_LINES).strip("\n")
    own, other = (boxes(state, player) for player in (0, 1))
    return f"{board}\nBoxes: player 1 has {own}, player 2 has {other}."


def boxes(state: BoardState, player: int) -> int:
    """This player's number of boxes: the tensor has each cell's three parts: unowned, first and second player."""
    tensor = state.observation_tensor(0)
    size = len(tensor) // 3
    return round(sum(tensor[(player + 1) * size + 2 : (player + 2) * size : 3]))


def fence(state: BoardState, action: int) -> str:
    """`P1(h,0,2)` as `h12`: horizontal or vertical, row and column of the line, both from 1."""
    row, column = _numbers(state, action)[-2:]
    return f"{'h' if '(h' in state.action_to_string(action) else 'v'}{row + 1}{column + 1}"


def piles(state: BoardState) -> str:
    """`(0): 2 0 3` as `1: 2, 2: 0, 3: 3`."""
    sizes = _NUMBER.findall(str(state).partition(":")[2])
    return "\n".join(f"Pile {number}: {size}" for number, size in enumerate(sizes, start=1))


def taking(state: BoardState, action: int) -> str:
    """`pile:2, take:1;` as `2 take 1`."""
    pile, count = _numbers(state, action)
    return f"{pile} take {count}"


def _numbers(state: BoardState, action: int) -> list[int]:
    return [int(number) for number in _NUMBER.findall(state.action_to_string(action))]
