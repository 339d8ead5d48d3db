"""Chess positions drawn at random: which pieces, where, and who is to move. Always legal, never sensible."""

from collections.abc import Iterator, Mapping
from random import Random

Square = tuple[int, int]
"""File and rank from 0."""
Pieces = Mapping[Square, str]
"""Capitals are White's, as in FEN."""

_STRAIGHT = ((0, 1), (1, 0), (0, -1), (-1, 0))
_DIAGONAL = ((1, 1), (1, -1), (-1, -1), (-1, 1))
_JUMPS = ((1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2))
_RAYS = {"r": _STRAIGHT, "b": _DIAGONAL, "q": _STRAIGHT + _DIAGONAL}
_STEPS = {"n": _JUMPS, "k": _STRAIGHT + _DIAGONAL}


def draw_position(rng: Random, own: str, other: str) -> str:
    """The FEN of a position with these pieces, named by letters, in which the side that owns `own` is to move.

    The other king is not in check, so that it could have moved last.
    """
    while True:
        pieces = _placed(rng, own, other)
        king = next(square for square, piece in pieces.items() if piece == "k")
        if not _attacked(pieces, king):
            break
    if rng.randrange(2):
        return _fen(pieces, "w")
    return _fen({(file, 7 - rank): piece.swapcase() for (file, rank), piece in pieces.items()}, "b")


def _placed(rng: Random, own: str, other: str) -> Pieces:
    squares = [(file, rank) for rank in range(8) for file in range(8)]
    rng.shuffle(squares)
    pieces: dict[Square, str] = {}
    for piece in own.upper() + other.lower():
        free = (square for square in squares if square not in pieces and (piece not in "Pp" or 0 < square[1] < 7))
        pieces[next(free)] = piece
    return pieces


def _attacked(pieces: Pieces, target: Square) -> bool:
    """True if White attacks the square."""
    return any(target in _reached(pieces, square, piece) for square, piece in pieces.items() if piece.isupper())


def _reached(pieces: Pieces, square: Square, piece: str) -> Iterator[Square]:
    file, rank = square
    kind = piece.lower()
    if kind == "p":
        yield from ((file - 1, rank + 1), (file + 1, rank + 1))
    yield from ((file + right, rank + up) for right, up in _STEPS.get(kind, ()))
    for right, up in _RAYS.get(kind, ()):
        for distance in range(1, 8):
            reached = (file + distance * right, rank + distance * up)
            yield reached
            if reached in pieces:
                break


def _fen(pieces: Pieces, side: str) -> str:
    ranks = ("".join(pieces.get((file, rank), "1") for file in range(8)) for rank in range(7, -1, -1))
    return f"{'/'.join(ranks)} {side} - - 0 1"
