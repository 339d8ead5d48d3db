"""Chess: won positions drawn at random, to be won in a number of moves, judged by Stockfish."""

import asyncio
from functools import lru_cache
from random import Random
from typing import NamedTuple

from loomrl.envs.game.board import Board
from loomrl.envs.game.placement import draw_position
from loomrl.envs.game.spiel import State, fen, lan, line, open_state, repeated
from loomrl.envs.game.stockfish import Finding, Stockfish, open_stockfish
from loomrl.errors import EpisodeError

FAMILY = "chess"
BOARD = Board(
    "Chess. Moves look like e2e4, or e7e8q where a pawn is promoted.",
    ("Black", "White"),
    (),
    lambda state: f"{diagram(fen(state))}\nFEN: {fen(state)}",
    lan,
    draws=True,
    repeats=repeated,
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


class Kind(NamedTuple):
    """The problems of a level: the pieces of both sides, and in how many moves there is a mate; 0 is an endgame."""

    pieces: tuple[tuple[str, str], ...]
    mate: int


_MANY = (("KQRN", "KPPN"), ("KQRR", "KRNPP"), ("KQBB", "KRPP"), ("KQRBPP", "KRNPPP"))
_MORE = (("KQRBPP", "KQRPPP"), ("KQNNPP", "KQRPPP"), ("KQRRPP", "KQRNPP"))
KINDS = (
    Kind((("KQR", "KP"), ("KRR", "KP")), 1),
    Kind(_MANY, 1),
    Kind((("KQR", "KPP"), ("KQRP", "KBPP")), 2),
    Kind(_MANY, 2),
    Kind(_MORE, 2),
    Kind((("KQR", "KPP"), ("KQRN", "KPPN")), 3),
    Kind(_MANY, 3),
    Kind(_MORE, 3),
    Kind((("KQ", "KPP"), ("KRR", "KPP"), ("KQB", "KRPP")), 0),
    Kind((("KRBP", "KPP"), ("KRRP", "KNPP"), ("KQNP", "KRPP"), ("KQBP", "KRNPP")), 0),
)
"""By level."""


class Problem(NamedTuple):
    """A position that is won by the one to move."""

    fen: str
    moves: int
    """The number of moves in which it must be won."""


@lru_cache(maxsize=4096)
def find_problem(level: int, seed: int, program: str | None) -> Problem:
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
            return Problem(position, kind.mate + SPARE)
        if not kind.mate and (found.centipawns >= CLEAR or (found.mate or 0) > 5):
            return Problem(position, CONVERT)
    raise EpisodeError(f"chess, level {level}, seed {seed}: no problem among {MOST} positions.")


class EngineJudge:
    """Judges by what Stockfish finds."""

    def __init__(self, engine: Stockfish) -> None:
        self._engine = engine

    async def value(self, state: State, player: int) -> float:
        """1 or 0 if there is a mate, else the expected points of the advantage."""
        found = await asyncio.to_thread(self._engine.search, line(state), JUDGE_NODES)
        worth = _worth(found)
        return worth if state.current_player() == player else 1 - worth

    def best(self, state: State) -> int:
        """Stockfish's move after a long search."""
        return action_of(state, self._engine.search(line(state), ORACLE_NODES).move)


def action_of(state: State, move: str) -> int:
    """The action for an engine's move."""
    return next(action for action in state.legal_actions() if lan(state, action) == move)


def diagram(position: str) -> str:
    """The board of a FEN with labels."""
    ranks = position.split()[0].split("/")
    rows = ["".join("." * int(sign) if sign.isdigit() else sign for sign in rank) for rank in ranks]
    lines = [f"{8 - number} {' '.join(row)}" for number, row in enumerate(rows)]
    return "\n".join([*lines, "  a b c d e f g h"])


def _worth(found: Finding) -> float:
    if found.mate is not None:
        return float(found.mate > 0)
    return float(1 / (1 + 10 ** (-found.centipawns / 400)))
