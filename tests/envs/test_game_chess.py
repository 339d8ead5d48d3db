"""Chess with the real Stockfish: problems that are won, an engine that repeats itself, and one that dies."""

import asyncio
import shutil
from random import Random

import pytest

from loomrl.config import EnvironmentConfig
from loomrl.envs.game import GameEnvironment, chess
from loomrl.envs.game.chess import KINDS, diagram, draw_position, find_problem
from loomrl.envs.game.match import GameMatch, Setup
from loomrl.envs.game.opponent import RandomMover
from loomrl.envs.game.spiel import line, open_state
from loomrl.envs.game.stockfish import FALLBACK, Stockfish, open_stockfish
from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.task_mixture import gather
from tests.envs.play_support import to_the_end
from tests.needs import needs

pytest.importorskip("pyspiel", reason="needs OpenSpiel: pip install 'loomrl[games]'")
PROGRAM = shutil.which("stockfish") or shutil.which(FALLBACK)
pytestmark = [
    pytest.mark.system,
    needs("Stockfish"),
]
MATE = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"


def script(path, body):
    """A program that pretends to be an engine."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_a_search_repeats_itself_whatever_was_searched_before():
    engine = open_stockfish(PROGRAM)
    first = engine.search(MATE, 2000)
    engine.search("r1bq1rk1/pp2bppp/2n1pn2/3p4/3P4/2NBPN2/PP3PPP/R1BQ1RK1 w - - 0 9", 5000)
    assert engine.search(MATE, 2000) == first
    assert (first.move, first.mate) == ("a1a8", 1)
    fresh = Stockfish(str(PROGRAM))
    assert fresh.search(MATE, 2000) == first


def test_many_threads_share_one_engine():
    engine = open_stockfish(PROGRAM)

    async def ask():
        return await asyncio.gather(*(asyncio.to_thread(engine.search, MATE, 200 + nodes % 3) for nodes in range(30)))

    assert {finding.move for finding in asyncio.run(ask())} == {"a1a8"}


def test_an_engine_that_was_killed_is_started_again():
    engine = Stockfish(str(PROGRAM))
    engine.search(MATE, 100)
    engine._process.kill()
    engine._process.wait()
    assert engine.search(MATE, 100).move == "a1a8"


@pytest.mark.parametrize("body", ["while read -r line; do test $line = isready && echo readyok; done", "exit 1"])
def test_an_engine_that_hangs_or_dies_is_a_failure_in_time(tmp_path, body):
    engine = Stockfish(script(tmp_path / "engine", body), deadline_s=0.3)
    with pytest.raises(EpisodeError, match="engine"):
        engine.search(MATE, 100)
    assert engine._process is None


async def test_without_the_program_chess_says_what_to_install():
    environment = GameEnvironment({"stockfish": "no-such-program"})  # named, so it has to be there
    with pytest.raises(ConfigError, match="apt-get install stockfish"):
        await environment.reset(environment.task("chess", 1, 0))


def test_without_the_program_chess_is_left_out_unless_it_is_named(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("loomrl.envs.game.stockfish.FALLBACK", "/no/stockfish")
    environment = GameEnvironment()
    assert "chess" in GameEnvironment.families
    assert "chess" not in {environment.sample_task(seed).family for seed in range(200)}
    with pytest.raises(ConfigError, match=r"'chess': it needs Stockfish: apt-get install stockfish"):
        environment.task("chess", 1, 0)
    for patterns in ((), ("*",), ("board.*", "chess*")):
        mixture = gather([EnvironmentConfig(id="Game", families=patterns)], None, lambda id: (id, ""))
        assert "chess" not in {family.name for family in mixture.families}
        assert "Game/chess is left out: it needs Stockfish" in caplog.text
        caplog.clear()
    with pytest.raises(ConfigError, match=r"Game families='chess': it needs Stockfish"):
        _ = gather([EnvironmentConfig(id="Game", families=["chess"])], None, lambda id: (id, "")).families


async def test_a_broken_engine_is_a_failure_and_no_loss(tmp_path):
    environment = GameEnvironment({"stockfish": script(tmp_path / "engine", "exit 1")})
    with pytest.raises(EpisodeError):
        await environment.reset(environment.task("chess", 1, 0))


@pytest.mark.parametrize("level", [1, 2, 4, 6, 8, 10])
async def test_the_oracle_wins_every_problem_in_time(level):
    environment = GameEnvironment()
    await environment.reset(environment.task("chess", level, 0))
    step = await to_the_end(environment)
    assert (step.terminated, step.reward.success) == (True, 1.0)


async def test_a_game_that_takes_too_many_moves_is_lost():
    environment = GameEnvironment()
    await environment.reset(environment.task("chess", 3, 0))
    steps = 0
    while True:
        best = environment.oracle()
        other = next(f"MOVE: {move}" for move in environment._play.moves() if f"MOVE: {move}" != best)
        step = await environment.step(other)
        steps += 1
        if step.terminated:
            break
    assert step.reward.success < 1
    assert steps <= find_problem(3, 0, None).moves


def test_problems_have_both_colours_and_are_mates_where_they_say_so():
    problems = [find_problem(2, seed, None) for seed in range(8)]
    assert len(set(problems)) == 8
    assert {problem.fen.split()[1] for problem in problems} == {"w", "b"}
    assert all(open_stockfish(None).search(problem.fen, 500).mate == KINDS[1].mate for problem in problems)


def test_random_positions_are_such_that_an_engine_survives_them():
    engine = Stockfish(str(PROGRAM))
    for seed in range(60):
        position = draw_position(Random(seed), "KQRBNP", "KRP")
        board = position.split()[0]
        assert sorted(sign for sign in board.lower() if sign.isalpha()) == sorted("kqrbnpkrp")
        assert not any(sign in "pP" for rank in (board.split("/")[0], board.split("/")[-1]) for sign in rank)
        if not open_state("chess", position).is_terminal():
            engine.search(position, 10)
    assert engine.search(MATE, 100).mate == 1


def test_the_diagram_shows_what_the_fen_says():
    assert diagram(MATE).splitlines()[1] == "7 . . . . . p p p"
    assert diagram(MATE).splitlines()[-2] == "1 R . . . . . K ."


async def test_going_back_and_forth_is_no_draw():
    """A rook that goes to and fro before a king that is content to wait: the third time is a loss."""
    state = open_state("chess", "7k/8/8/8/8/8/R7/K7 w - - 0 1")
    moves = iter(["h8g8", "g8h8"] * 3)

    class Waiting:
        slips = 0

        async def reply(self, turn):
            return turn.moves[next(moves)]

    match = GameMatch(Setup(chess.BOARD, "", state, chess.EngineJudge(open_stockfish(None)), Waiting(), most=30), "")
    for move in ["a2b2", "b2a2"] * 2:
        await match.move(move)
    assert match.outcome == 0.0


async def test_stalemate_is_a_draw():
    state = open_state("chess", "7k/8/6K1/5Q2/8/8/8/8 w - - 0 1")
    opponent = RandomMover()
    match = GameMatch(Setup(chess.BOARD, "", state, chess.EngineJudge(open_stockfish(None)), opponent, most=5), "")
    await match.move("f5f7")
    assert match.outcome == 0.5


def test_the_engine_is_told_all_moves_so_that_it_knows_of_repetitions():
    state = open_state("chess", "7k/8/8/8/8/8/R7/K7 w - - 0 1")
    played = ["a2b2", "h8g8", "b2a2", "g8h8"] * 2
    for move in played[:-1]:
        state.apply_action_with_legality_check(chess.action_of(state, move))
    assert line(state) == f"7k/8/8/8/8/8/R7/K7 w - - 0 1 moves {' '.join(played[:-1])}"
    found = open_stockfish(None).search(line(state), 20_000)
    assert (found.move, found.centipawns) == ("g8h8", 0)
