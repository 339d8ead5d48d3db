"""The Game environment: what ends a game, what is paid, and what is not."""

import subprocess
import sys
from random import Random

import pytest

from loomrl.envs.game import GameEnvironment
from loomrl.envs.game.board import BOARDS
from loomrl.envs.game.chess import FAMILY as CHESS
from loomrl.envs.game.notation import plain
from loomrl.envs.game.puzzles import PUZZLES
from loomrl.envs.game.spiel import open_state
from loomrl.errors import ConfigError
from tests.envs.play_support import opener

pytest.importorskip("pyspiel", reason="needs OpenSpiel: pip install 'loomrl[games]'")
WITHOUT_ENGINE = (*BOARDS, *PUZZLES)


open_task = opener(GameEnvironment, "board.tictactoe", 1)


async def play(environment, choose):
    """An episode of what `choose` does, to its end."""
    steps = [await environment.step(choose())]
    while not (steps[-1].terminated or steps[-1].truncated):
        steps.append(await environment.step(choose()))
    return steps


def sum_of(steps, part):
    return sum(step.reward.parts[part] for step in steps)


@pytest.mark.parametrize("level", [1, 5, 10])
@pytest.mark.parametrize("family", WITHOUT_ENGINE)
async def test_the_oracle_wins_against_the_opponent_of_every_level(family, level):
    for seed in range(2):
        environment = await open_task(family, level, seed)
        steps = await play(environment, environment.oracle)
        assert steps[-1].terminated
        assert steps[-1].reward.success == 1.0
        assert sum_of(steps, "correctness") == 1.0


@pytest.mark.parametrize("family", WITHOUT_ENGINE)
async def test_what_is_paid_for_strategy_adds_up_to_end_less_beginning(family):
    begun = 0.5 if family in PUZZLES else 1.0
    for seed in range(4):
        environment = await open_task(family, 1 + seed, seed)
        rng = Random(seed)
        steps = await play(environment, lambda: environment.random_action(rng))  # noqa: B023
        outcome = steps[-1].reward.success
        assert sum_of(steps, "strategic_depth") == pytest.approx(0.1 * (outcome - begun))
        assert sum(step.reward.total for step in steps) == pytest.approx(outcome + 0.1 * (outcome - begun))


async def test_a_move_that_gives_the_win_away_costs_when_it_is_made():
    environment = await open_task("board.nim", 9, 0)
    best = environment.oracle()
    worse = next(move for move in environment._play.moves() if f"MOVE: {move}" != best)
    assert (await environment.step(f"MOVE: {worse}")).reward.parts["strategic_depth"] == pytest.approx(-0.1)
    await environment.reset(environment.task("board.nim", 9, 0))
    assert (await environment.step(best)).reward.total == 0.0


async def test_a_draw_is_half_a_success():
    draws = 0
    for seed in range(40):
        environment = await open_task("board.tictactoe", 4, seed)
        rng = Random(seed)
        steps = await play(environment, lambda: environment.random_action(rng))  # noqa: B023
        if steps[-1].reward.success == 0.5:
            draws += 1
            assert sum_of(steps, "correctness") == 0.5
            assert sum_of(steps, "strategic_depth") == pytest.approx(-0.05)
    assert draws


async def test_an_illegal_move_is_answered_with_the_legal_ones():
    environment = await open_task("board.hex", 5)
    for action in ("MOVE: z9", "I think a1 is best.", "MOVE: a1 or b1"):
        await environment.reset(environment.task("board.hex", 5, 0))
        step = await environment.step(action)
        (message,) = step.observation
        assert "no legal move" in message.content
        assert ", ".join(environment._play.moves()) in message.content
        assert (step.terminated, step.reward.total) == (False, 0.0)


async def test_too_many_illegal_moves_in_a_row_lose_the_game():
    environment = await open_task(patience=2)
    assert not (await environment.step("MOVE: z9")).terminated
    assert not (await environment.step(environment.oracle())).truncated
    environment = await open_task("board.connect_four", 9, patience=2)
    await environment.step("MOVE: z9")
    await environment.step(environment.oracle())
    assert not (await environment.step("MOVE: z9")).terminated
    last = await environment.step("MOVE: z9")
    assert (last.terminated, last.reward.success, last.reward.total) == (True, 0.0, pytest.approx(-0.1))


async def test_who_dawdles_until_the_last_step_keeps_nothing():
    environment = await open_task("board.hex", 9, max_steps=2, patience=5)
    await environment.step("MOVE: z9")
    last = await environment.step(environment.oracle())
    assert (last.truncated, last.terminated, last.reward.total) == (True, False, pytest.approx(-0.1))


@pytest.mark.parametrize("form", ["MOVE:  {} ", "Because it forks.\nMOVE: {}", "MOVE: z9\nNo.\nMOVE: {}\n"])
async def test_capitals_spaces_and_reasoning_do_not_matter(form):
    environment = await open_task("board.hex", 9)
    move = environment._play.moves()[0].upper()
    assert "no legal" not in (await environment.step(form.format(move))).observation[0].content


@pytest.mark.parametrize("family", BOARDS)
def test_every_legal_move_has_a_name_of_its_own_that_is_understood(family):
    board = BOARDS[family]
    for size in dict.fromkeys(board.sizes):
        state = open_state(size.game)
        rng = Random(0)
        while not state.is_terminal():
            names = [board.spell(state, action) for action in state.legal_actions()]
            assert len(set(names)) == len(names)
            assert [plain(f" {name.upper()}") for name in names] == names
            state.apply_action_with_legality_check(rng.choice(state.legal_actions()))


@pytest.mark.parametrize("family", ["board.tictactoe", "board.nim", "board.hex", "puzzle.lights"])
async def test_known_ways_to_cheat_are_many_and_pay_no_more_than_chance(family):
    environment = await open_task(family, 5)
    hacks = environment.hacks()
    assert len(set(hacks)) >= 12
    won = []
    for number, hack in enumerate(hacks):
        await environment.reset(environment.task(family, 1 + number % 10, number))
        won.append((await play(environment, lambda: hack))[-1].reward.success)  # noqa: B023
    assert sum(won) / len(won) <= environment.guess_floor.get(family, environment.ceilings["hacking"]), won


async def test_the_order_in_which_moves_are_listed_says_nothing():
    won = 0
    for seed in range(20):
        environment = await open_task("board.breakthrough", 3 + seed % 8, seed)
        steps = await play(environment, lambda: f"MOVE: {environment._play.moves()[0]}")  # noqa: B023
        won += steps[-1].reward.success
    assert won / 20 <= 0.35


async def test_lookalikes_and_lists_are_no_moves():
    environment = await open_task("board.tictactoe", 1, 1, patience=50)
    move = environment._play.moves()[0]
    wide = "".join(chr(ord(sign) + 0xFEE0) for sign in move)
    for text in (f"MOVE: {wide}", f"MOVE: {move}, c3", f"MOVE: {move} thanks", f"MOVЕ: {move}"):
        assert "no legal move" in (await environment.step(text)).observation[0].content, text


async def test_only_a_prediction_before_the_move_is_scored_and_only_with_a_win():
    environment = await open_task("board.nim", 3, 1)
    first = "1 take 1"
    steps = await play(environment, lambda: f"PREDICT: {first} 0.7\n{environment.oracle()}")
    assert steps[-1].reward.success == 1.0
    assert sum_of(steps, "opponent_prediction") != 0.0
    await environment.reset(environment.task("board.nim", 3, 1))
    assert sum_of(await play(environment, environment.oracle), "opponent_prediction") == 0.0
    await environment.reset(environment.task("board.nim", 3, 1))
    assert sum_of(await play(environment, lambda: f"PREDICT: {first} 1.0\nMOVE: nothing"), "opponent_prediction") == 0.0


async def test_knowing_the_reply_earns_the_whole_bonus():
    environment = await open_task("board.hex", 8, 3)
    moves = []
    replies = []
    while True:
        moves.append(environment.oracle())
        step = await environment.step(moves[-1])
        answer = environment._play.answer
        replies.append(answer.move if answer else "")
        if step.terminated:
            break
    assert len(moves) > 1
    await environment.reset(environment.task("board.hex", 8, 3))
    script = iter([f"PREDICT: {reply} 1\n{move}" for move, reply in zip(moves, replies, strict=True)])
    assert sum_of(await play(environment, lambda: next(script)), "opponent_prediction") == pytest.approx(0.1)


async def test_predictions_are_offered_only_where_the_opponent_can_be_foretold():
    async def prompt(level, **settings):
        environment = GameEnvironment(settings)
        return (await environment.reset(environment.task("board.hex", level, 0)))[0].content

    assert "PREDICT" in await prompt(5)
    assert "PREDICT" not in await prompt(1)
    assert "PREDICT" not in await prompt(5, opponent={"kind": "random"})
    assert "PREDICT" not in await prompt(5, predictions=False)


def test_a_wrong_setting_names_the_choices():
    with pytest.raises(ConfigError, match="minimax"):
        GameEnvironment({"opponent": {"kind": "minmax"}})
    with pytest.raises(ConfigError, match="simulation"):
        GameEnvironment({"opponent": {"kind": "mcts", "simulation": 3}})


async def test_an_opponent_for_other_games_is_refused():
    with pytest.raises(ConfigError, match="chess and nothing else"):
        await open_task("board.hex", opponent={"kind": "stockfish"})
    with pytest.raises(ConfigError, match="all but chess"):
        await open_task(CHESS, opponent={"kind": "mcts"})


async def test_without_openspiel_the_install_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    await open_task("puzzle.hanoi")
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[games\]'"):
        await open_task("board.hex", 1, 999)


SMALL_THEN_LARGE = """
import asyncio, random
from loomrl.envs.game import GameEnvironment

async def main():
    opened = []
    for index in range(60):
        environment = GameEnvironment()
        await environment.reset(environment.task("board.y", index // 6 + 1, index))
        opened.append(environment)
    for environment in opened:
        step = None
        while step is None or not (step.terminated or step.truncated):
            step = await environment.step(environment.random_action(random.Random(0)))

asyncio.run(main())
"""


def test_boards_of_y_stay_whole_when_larger_ones_are_opened():
    """OpenSpiel's own do not. In a process of its own: here a larger one may have been opened before."""
    done = subprocess.run([sys.executable, "-c", SMALL_THEN_LARGE], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
