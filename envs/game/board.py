"""The board games: rules in a sentence, sizes by level, and how they are written."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from loomrl.envs.game import notation
from loomrl.envs.game.spiel import BoardState


class BoardSize(NamedTuple):
    """A game of OpenSpiel, and how many random moves may have been made in it when the policy begins."""

    game: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class BoardGame:
    """A family of board games."""

    rules: str
    """The winning condition and the notation of moves."""
    sides: tuple[str, str]
    """The names of the two players, the first to move first."""
    sizes: tuple[BoardSize, ...]
    """Sizes for the ten levels."""
    show: Callable[[BoardState], str]
    spell: Callable[[BoardState, int], str]
    draws: bool = False
    sudden: bool = False
    """True if a single move can end the game long before the board is full."""
    repeats: Callable[[BoardState], bool] = lambda state: False
    """True if it ended by repetition, which is no draw for a player who could have won."""


def rules_of(board: BoardGame, game: str) -> str:
    """The rules for this size of the game."""
    row = re.search(r"\b(?:k|x_in_row)=(\d+)", game)
    return board.rules.format(k=row[1] if row else 3, end="loses" if "is_misere=True" in game else "wins")


def _sizes(*steps: tuple[int, str, int, int]) -> tuple[BoardSize, ...]:
    """Sizes for consecutive levels, each with a game and the bounds of its opening."""
    return tuple(BoardSize(game, first, last) for levels, game, first, last in steps for _ in range(levels))


BOARDS: Mapping[str, BoardGame] = {
    "board.tictactoe": BoardGame(
        "Tic-tac-toe: {k} in a row win, across, down or diagonally. Moves look like b1.",
        ("x", "o"),
        _sizes(
            (2, "tic_tac_toe", 4, 5),
            (2, "tic_tac_toe", 2, 4),
            (3, "mnk(m=4,n=4,k=3)", 3, 5),
            (3, "mnk(m=5,n=5,k=4)", 14, 16),
        ),
        notation.label_board,
        notation.cell,
        draws=True,
        sudden=True,
    ),
    "board.connect_four": BoardGame(
        "Connect {k}: {k} in a row win, across, down or diagonally. A move is a column, where the stone falls to the "
        "lowest free cell.",
        ("x", "o"),
        _sizes(
            (2, "connect_four(rows=4,columns=4,x_in_row=3)", 4, 6),
            (2, "connect_four(rows=4,columns=5,x_in_row=4)", 9, 11),
            (2, "connect_four(rows=5,columns=5,x_in_row=4)", 13, 15),
            (2, "connect_four(rows=5,columns=6,x_in_row=4)", 16, 18),
            (2, "connect_four(rows=6,columns=7,x_in_row=4)", 24, 27),
        ),
        notation.label_board,
        notation.column,
        draws=True,
        sudden=True,
    ),
    "board.hex": BoardGame(
        "Hex: x wins by connecting top and bottom, o left and right. A cell touches those left and right, two above "
        "and two below, as the rows are shifted. Moves look like b1.",
        ("x", "o"),
        _sizes(
            (2, "hex(board_size=4)", 9, 11),
            (3, "hex(board_size=4)", 7, 8),
            (3, "hex(board_size=5)", 14, 16),
            (2, "hex(board_size=6)", 24, 26),
        ),
        notation.hex_board,
        notation.spell_move,
        sudden=True,
    ),
    "board.y": BoardGame(
        "Y: connecting all three sides of the triangle wins. A cell touches those left and right, two above and two "
        "below, as the rows are shifted. Moves look like b1.",
        ("x", "o"),
        _sizes(
            (2, "y(board_size=4)", 4, 6),
            (3, "y(board_size=4)", 3, 4),
            (3, "y(board_size=5)", 7, 9),
            (2, "y(board_size=6)", 12, 14),
        ),
        notation.triangle,
        notation.spell_move,
        sudden=True,
    ),
    "board.breakthrough": BoardGame(
        "Breakthrough: pawns step forward or diagonally forward, and capture diagonally only; b goes down, w up. "
        "Reaching the last row or capturing all wins. Moves look like b2b3.",
        ("b", "w"),
        _sizes(
            (2, "breakthrough(rows=4,columns=3)", 0, 5),
            (2, "breakthrough(rows=5,columns=3)", 3, 6),
            (2, "breakthrough(rows=5,columns=4)", 6, 9),
            (2, "breakthrough(rows=5,columns=5)", 10, 13),
            (2, "breakthrough(rows=6,columns=5)", 24, 28),
        ),
        notation.plain_board,
        notation.spell_move,
        sudden=True,
    ),
    "board.clobber": BoardGame(
        "Clobber: move one of your stones onto a neighbour of the other player, which is removed. Who cannot move "
        "loses. Moves look like a2b2.",
        ("o", "x"),
        _sizes(
            (2, "clobber(rows=3,columns=4)", 1, 4),
            (2, "clobber(rows=4,columns=4)", 4, 6),
            (2, "clobber(rows=4,columns=4)", 3, 5),
            (2, "clobber(rows=5,columns=4)", 5, 7),
            (2, "clobber(rows=5,columns=5)", 8, 10),
        ),
        notation.plain_board,
        notation.spell_move,
    ),
    "board.dots_and_boxes": BoardGame(
        "Dots and boxes: who draws a box's fourth side owns it and moves again. Most boxes win. Moves look like h12 or "
        "v12: a horizontal or vertical line, its row, its column.",
        ("player 1", "player 2"),
        _sizes(
            (2, "dots_and_boxes(num_rows=1,num_cols=3)", 2, 5),
            (3, "dots_and_boxes(num_rows=2,num_cols=2)", 4, 6),
            (3, "dots_and_boxes(num_rows=2,num_cols=3)", 8, 10),
            (2, "dots_and_boxes(num_rows=3,num_cols=3)", 14, 16),
        ),
        notation.fences,
        notation.fence,
        draws=True,
    ),
    "board.nim": BoardGame(
        "Nim: take any number from one pile. Who takes the last {end}. A move is pile and number, such as 1 take 2.",
        ("player 1", "player 2"),
        _sizes(
            (2, "nim(pile_sizes=2;3;4,is_misere=False)", 0, 3),
            (2, "nim(pile_sizes=4;5;6,is_misere=False)", 1, 4),
            (2, "nim(pile_sizes=5;6;7,is_misere=True)", 1, 4),
            (2, "nim(pile_sizes=6;7;8,is_misere=True)", 1, 3),
            (2, "nim(pile_sizes=4;5;6;7,is_misere=True)", 2, 5),
        ),
        notation.piles,
        notation.taking,
    ),
    "board.othello": BoardGame(
        "Othello: enclose disks of the other player in a line, and they become yours. Most disks win. Moves look like "
        "b1, or pass.",
        ("x", "o"),
        _sizes(
            (2, "othello", 54, 56),
            (2, "othello", 53, 55),
            (2, "othello", 52, 54),
            (2, "othello", 51, 53),
            (2, "othello", 50, 52),
        ),
        notation.disks,
        notation.spell_move,
        draws=True,
    ),
}
