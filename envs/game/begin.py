"""From a task to a game in progress."""

import asyncio
from functools import lru_cache
from importlib.util import find_spec
from itertools import count
from random import Random

from loomrl.envs.game import chess
from loomrl.envs.game.board import BOARDS, rules_of
from loomrl.envs.game.match import GameMatch, Setup
from loomrl.envs.game.opponent import Opponent, PolicyPlayer, open_opponent
from loomrl.envs.game.play import GamePlay
from loomrl.envs.game.puzzles import PUZZLES, Riddle
from loomrl.envs.game.setting import GameSettings, RandomOpponent, real
from loomrl.envs.game.solver import POSITIONS, WIN, Search, SolverJudge, order_actions, outcome
from loomrl.envs.game.spiel import BoardState, open_state
from loomrl.envs.game.stockfish import find_stockfish, open_stockfish
from loomrl.errors import EpisodeError
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.generate import rng_of
from loomrl.gym.opponent import SCRIPTED, Rival, opponent_of
from loomrl.types import Task

DEEP = (1, 1, 2, 3, 5, 8, 12, 16, 24, 32)
"""Minimum positions of the proof, by level: 1 if a single move wins."""
SHARE = 0.4
"""Maximum share of legal moves that keep the win."""
HASTY = 2
"""Highest level whose openings may contain moves that let the other player win at once."""
PATIENCE = 8
"""After this many candidates the requirements are lowered."""
MOST = 2000


@lru_cache(maxsize=4096)
def find_opening(family: str, level: int, seed: int) -> tuple[int, ...]:
    """The actions that lead to the position in which the policy is to move. It may be either player."""
    # only proven wins: from most positions a perfect player draws, and success would measure the opponent
    rng = Random(f"opening {family} {level} {seed}")
    deep = DEEP[level - 1]
    share = SHARE
    for tried in count(1):
        state = _play_randomly(family, level, rng)
        if state is not None and _fits(state, deep, share):
            return tuple(state.history())
        if tried % PATIENCE == 0:
            deep = max(deep // 2, 1)
            share = min(share + 0.1, 1.0)
        if tried == MOST:
            raise EpisodeError(f"{family}, level {level}, seed {seed}: no won opening among {MOST}.")
    raise AssertionError


def _play_randomly(family: str, level: int, rng: Random) -> BoardState | None:
    """A position after random moves; None where the game is over by then, or it is the other player's turn."""
    size = BOARDS[family].sizes[level - 1]
    careful = BOARDS[family].sudden and level > HASTY
    state = open_state(size.game)
    seat = rng.randrange(2)
    for _ in range(rng.randint(size.first, size.last)):
        actions = rng.sample(state.legal_actions(), len(state.legal_actions()))
        sound = (action for action in actions if not careful or _is_sound(state.child(action)))
        state.apply_action_with_legality_check(next(sound, actions[0]))
        if state.is_terminal():
            return None
    return state if state.current_player() == seat else None


def _is_sound(state: BoardState) -> bool:
    """True if the game is not over, and the player to move cannot win at once."""
    if state.is_terminal():
        return False
    player = state.current_player()
    children = map(state.child, state.legal_actions())
    return not any(child.is_terminal() and outcome(child, player) == WIN for child in children)


def _fits(state: BoardState, deep: int, share: float) -> bool:
    player = state.current_player()
    actions = order_actions(state)
    proof = Search(str, player, WIN, POSITIONS).prove(state)
    if not proof.holds or proof.positions < deep or len(actions) < 2:
        return False
    search = Search(str, player, WIN, POSITIONS)
    return sum(search.prove(state.child(action)).holds is True for action in actions) <= max(1, share * len(actions))


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


async def begin(
    task: Task, environment: BaseEnvironment, settings: GameSettings, rival: Rival | None = None
) -> GamePlay:
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
    return GameMatch(
        await _chess(task, settings, opponent) if game == "chess" else _board(task, game, opponent), chance
    )


def _refuse_absent(task: Task, rival: Rival | None) -> None:
    """Another opponent than the one that the task names would make it another task."""
    opponent = opponent_of(task)
    if rival is None and opponent is not None and opponent["kind"] != SCRIPTED:
        raise EpisodeError(
            f"the task is against {opponent}, which has not been seated: only the run's own runners have its weights. "
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
