"""Chess: won positions drawn at random, to be won in a number of moves, judged by Stockfish."""

import asyncio
from collections.abc import Iterator, Mapping
from functools import lru_cache
from random import Random
from typing import NamedTuple

from loomrl.envs.game.board import BoardGame
from loomrl.envs.game.spiel import BoardState, fen, is_repetition, lan, line, open_state
from loomrl.envs.game.stockfish import EngineFinding, Stockfish, open_stockfish
from loomrl.errors import EpisodeError

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
        pieces = _place_pieces(rng, own, other)
        king = next(square for square, piece in pieces.items() if piece == "k")
        if not _attacks(pieces, king):
            break
    if rng.randrange(2):
        return _fen(pieces, "w")
    return _fen({(file, 7 - rank): piece.swapcase() for (file, rank), piece in pieces.items()}, "b")


def _place_pieces(rng: Random, own: str, other: str) -> Pieces:
    squares = [(file, rank) for rank in range(8) for file in range(8)]
    rng.shuffle(squares)
    pieces: dict[Square, str] = {}
    for piece in own.upper() + other.lower():
        free = (square for square in squares if square not in pieces and (piece not in "Pp" or 0 < square[1] < 7))
        pieces[next(free)] = piece
    return pieces


def _attacks(pieces: Pieces, target: Square) -> bool:
    """True if White attacks the square."""
    return any(target in _reach(pieces, square, piece) for square, piece in pieces.items() if piece.isupper())


def _reach(pieces: Pieces, square: Square, piece: str) -> Iterator[Square]:
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


FAMILY = "chess"
BOARD = BoardGame(
    "Chess. Moves look like e2e4, or e7e8q where a pawn is promoted.",
    ("Black", "White"),
    (),
    lambda state: f"{diagram(fen(state))}\nFEN: {fen(state)}",
    lan,
    draws=True,
    repeats=is_repetition,
)
JUDGE_NODES = 500
ORACLE_NODES = 60_000
"""With a third of this it wanders in simple endgames."""
SPARE = 2
"""Extra moves allowed beyond the shortest mate."""
CONVERT = 40
"""Moves in which a won endgame is to be won."""
CLEAR = 700
"""Centipawns at which an endgame without a visible mate counts as won."""
MOST = 2000


class ChessKind(NamedTuple):
    """The problems of a level: the pieces of both sides, and in how many moves there is a mate; 0 is an endgame."""

    pieces: tuple[tuple[str, str], ...]
    mate: int


_MANY = (("KQRN", "KPPN"), ("KQRR", "KRNPP"), ("KQBB", "KRPP"), ("KQRBPP", "KRNPPP"))
_MORE = (("KQRBPP", "KQRPPP"), ("KQNNPP", "KQRPPP"), ("KQRRPP", "KQRNPP"))
KINDS = (
    ChessKind((("KQR", "KP"), ("KRR", "KP")), 1),
    ChessKind(_MANY, 1),
    ChessKind((("KQR", "KPP"), ("KQRP", "KBPP")), 2),
    ChessKind(_MANY, 2),
    ChessKind(_MORE, 2),
    ChessKind((("KQR", "KPP"), ("KQRN", "KPPN")), 3),
    ChessKind(_MANY, 3),
    ChessKind(_MORE, 3),
    ChessKind((("KQ", "KPP"), ("KRR", "KPP"), ("KQB", "KRPP")), 0),
    ChessKind((("KRBP", "KPP"), ("KRRP", "KNPP"), ("KQNP", "KRPP"), ("KQBP", "KRNPP")), 0),
)
"""By level."""


class ChessProblem(NamedTuple):
    """A position that is won by the one to move."""

    fen: str
    moves: int
    """The number of moves in which it must be won."""


@lru_cache(maxsize=4096)
def find_problem(level: int, seed: int, program: str | None) -> ChessProblem:
    """The problem of this level and seed, as the Stockfish at `program` sees it."""
    rng = Random(f"problem {level} {seed}")
    kind = KINDS[level - 1]
    engine = open_stockfish(program)
    own, other = rng.choice(kind.pieces)
    for _ in range(MOST):
        position = draw_position(rng, own, other)
        if open_state("chess", position).is_terminal():
            continue
        found = engine.search(position, JUDGE_NODES)
        if kind.mate and found.mate == kind.mate:
            return ChessProblem(position, kind.mate + SPARE)
        if not kind.mate and (found.centipawns >= CLEAR or (found.mate or 0) > 5):
            return ChessProblem(position, CONVERT)
    raise EpisodeError(f"chess, level {level}, seed {seed}: no problem among {MOST} positions.")


class EngineJudge:
    """Judges by what Stockfish finds."""

    def __init__(self, engine: Stockfish) -> None:
        self._engine = engine

    async def value(self, state: BoardState, player: int) -> float:
        """1 or 0 if there is a mate, else the expected points of the advantage."""
        found = await asyncio.to_thread(self._engine.search, line(state), JUDGE_NODES)
        worth = _worth(found)
        return worth if state.current_player() == player else 1 - worth

    def best(self, state: BoardState) -> int:
        """Stockfish's move after a long search."""
        return action_of(state, self._engine.search(line(state), ORACLE_NODES).move)


def action_of(state: BoardState, move: str) -> int:
    """The action for an engine's move."""
    return next(action for action in state.legal_actions() if lan(state, action) == move)


def diagram(position: str) -> str:
    """The board of a FEN with labels."""
    ranks = position.split()[0].split("/")
    rows = ["".join("." * int(sign) if sign.isdigit() else sign for sign in rank) for rank in ranks]
    lines = [f"{8 - number} {' '.join(row)}" for number, row in enumerate(rows)]
    return "\n".join([*lines, "  a b c d e f g h"])


def _worth(found: EngineFinding) -> float:
    if found.mate is not None:
        return float(found.mate > 0)
    return float(1 / (1 + 10 ** (-found.centipawns / 400)))
