"""From a task to a game in progress."""

import asyncio
from importlib.util import find_spec
from random import Random

from loomrl.envs.game import chess
from loomrl.envs.game.board import BOARDS, rules_of
from loomrl.envs.game.judge import SolverJudge
from loomrl.envs.game.match import Match, Setup
from loomrl.envs.game.opening import find_opening
from loomrl.envs.game.opponent import Opponent, PolicyPlayer, open_opponent
from loomrl.envs.game.play import Play
from loomrl.envs.game.puzzle import PUZZLES, Riddle
from loomrl.envs.game.setting import GameSettings, RandomOpponent, real
from loomrl.envs.game.spiel import open_state
from loomrl.envs.game.stockfish import find_stockfish, open_stockfish
from loomrl.errors import EpisodeError
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.generate import rng_of
from loomrl.gym.opponent import SCRIPTED, Rival, opponent_of
from loomrl.types import Task

FAMILIES = (*BOARDS, chess.FAMILY, *PUZZLES)


def missing_families(stockfish: str | None) -> dict[str, str]:
    """The families that this machine cannot play, and why; a path of Stockfish that is given has to be right."""
    if find_spec("pyspiel") is None:
        return dict.fromkeys((*BOARDS, chess.FAMILY), "it needs OpenSpiel: pip install 'loomrl[games]'.")
    if stockfish is None and find_stockfish(None) is None:
        return {chess.FAMILY: "it needs Stockfish: apt-get install stockfish, or name its path (settings.stockfish)."}
    return {}


def can_be_foretold(settings: GameSettings, task: Task, rival: Rival | None) -> bool:
    """True if the opponent's replies follow from the position."""
    if task.family in PUZZLES:
        return False
    return rival is not None or not isinstance(real(settings.opponent, task), RandomOpponent)


async def begin(task: Task, environment: BaseEnvironment, settings: GameSettings, rival: Rival | None = None) -> Play:
    """The first position of this task; `rival` has the second seat instead of the opponent of the settings."""
    if task.family in PUZZLES:
        return Riddle(PUZZLES[task.family](task.level, rng_of(task)))
    _refuse_absent(task, rival)
    game = "chess" if task.family == chess.FAMILY else BOARDS[task.family].sizes[task.level - 1].game
    chance = f"{task.family} {task.level} {task.seed}"
    if rival is not None:
        opponent: Opponent = PolicyPlayer(rival)
    else:
        choice = real(settings.opponent, task)
        rng = Random(f"player {chance}")
        opponent = open_opponent(choice, game=game, program=settings.stockfish, environment=environment, rng=rng)
    return Match(await _chess(task, settings, opponent) if game == "chess" else _board(task, game, opponent), chance)


def _refuse_absent(task: Task, rival: Rival | None) -> None:
    """Another opponent than the one that the task names would make it another task."""
    opponent = opponent_of(task)
    if rival is None and opponent is not None and opponent["kind"] != SCRIPTED:
        raise EpisodeError(
            f"the task is against {opponent}, and nobody has seated it: only the run's own runners have its weights. "
            "Leave the opponent out of the task's parameters, and it is against the one of the settings."
        )


def _board(task: Task, game: str, opponent: Opponent) -> Setup:
    board = BOARDS[task.family]
    state = open_state(game)
    for action in find_opening(task.family, task.level, task.seed):
        state.apply_action_with_legality_check(action)
    return Setup(board, rules_of(board, game), state, SolverJudge(draws=board.draws), opponent)


async def _chess(task: Task, settings: GameSettings, opponent: Opponent) -> Setup:
    problem = await asyncio.to_thread(chess.find_problem, task.level, task.seed, settings.stockfish)
    judge = chess.EngineJudge(open_stockfish(settings.stockfish))
    return Setup(chess.BOARD, chess.BOARD.rules, open_state("chess", problem.fen), judge, opponent, most=problem.moves)
