"""From a task to a game in progress."""

import asyncio
from random import Random

from loomrl.envs.game import chess
from loomrl.envs.game.board import BOARDS, rules_of
from loomrl.envs.game.judge import SolverJudge
from loomrl.envs.game.match import Match, Setup
from loomrl.envs.game.opening import find_opening
from loomrl.envs.game.opponent import Opponent, open_opponent
from loomrl.envs.game.play import Play
from loomrl.envs.game.puzzle import PUZZLES, Riddle
from loomrl.envs.game.setting import BOARD_LADDER, CHESS_LADDER, GameSettings, LadderOpponent, RealOpponent
from loomrl.envs.game.spiel import open_state
from loomrl.envs.game.stockfish import open_stockfish
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.generate import rng_of
from loomrl.types import Task

FAMILIES = (*BOARDS, chess.FAMILY, *PUZZLES)


def opponent_of(settings: GameSettings, task: Task) -> RealOpponent | None:
    """The opponent of this task; None in a puzzle."""
    if task.family in PUZZLES:
        return None
    if not isinstance(settings.opponent, LadderOpponent):
        return settings.opponent
    return (CHESS_LADDER if task.family == chess.FAMILY else BOARD_LADDER)[task.level - 1]


async def begin(task: Task, environment: BaseEnvironment, settings: GameSettings) -> Play:
    """The first position of this task."""
    choice = opponent_of(settings, task)
    if choice is None:
        return Riddle(PUZZLES[task.family](task.level, rng_of(task)))
    game = "chess" if task.family == chess.FAMILY else BOARDS[task.family].sizes[task.level - 1].game
    chance = f"{task.family} {task.level} {task.seed}"
    rng = Random(f"player {chance}")
    opponent = open_opponent(choice, game=game, program=settings.stockfish, environment=environment, rng=rng)
    return Match(await _chess(task, settings, opponent) if game == "chess" else _board(task, game, opponent), chance)


def _board(task: Task, game: str, opponent: Opponent) -> Setup:
    board, state = BOARDS[task.family], open_state(game)
    for action in find_opening(task.family, task.level, task.seed):
        state.apply_action_with_legality_check(action)
    return Setup(board, rules_of(board, game), state, SolverJudge(draws=board.draws), opponent)


async def _chess(task: Task, settings: GameSettings, opponent: Opponent) -> Setup:
    problem = await asyncio.to_thread(chess.find_problem, task.level, task.seed, settings.stockfish)
    judge = chess.EngineJudge(open_stockfish(settings.stockfish))
    return Setup(chess.BOARD, chess.BOARD.rules, open_state("chess", problem.fen), judge, opponent, most=problem.moves)
