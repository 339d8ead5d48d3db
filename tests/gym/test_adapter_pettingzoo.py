"""PettingZoo environments as text, against the real package: the policy has one seat."""

import sys

import pytest
from adapter_support import play

from loomrl.errors import ConfigError
from loomrl.gym.adapters.classic import LineGame, LineOpponent
from loomrl.gym.adapters.pettingzoo import PettingZooEnvironment
from loomrl.gym.adapters.world import VERB
from loomrl.gym.policy import OraclePolicy, RandomPolicy
from loomrl.types import End

pytest.importorskip("pettingzoo", reason="needs PettingZoo: pip install 'loomrl[multiagent]'")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pygame's own imports
PLANES = "pettingzoo.test.example_envs.generated_agents_env_action_mask_info_v0:env"
TEAM = "loomrl.envs.teamwork.parallel:TeamParallel"
TOGETHER = "pettingzoo.test.example_envs.generated_agents_parallel_v0:parallel_env"


def one_game(**game):
    return PettingZooEnvironment({"worlds": {"game": game}, "max_steps": 30})


@pytest.mark.parametrize("family", PettingZooEnvironment.families)
async def test_the_oracle_beats_its_opponent_from_either_seat_at_every_level(family):
    environment = PettingZooEnvironment()
    seats = set()
    for level in (1, 4, 7, 10):
        for seed in range(2, 6):
            trajectory = await play(environment, OraclePolicy, family, level, seed)
            assert (trajectory.end, trajectory.reward.success) == (End.TERMINATED, 1.0), (level, seed)
            await environment.reset(environment.task(family, level, seed))
            seats.add(environment._seat)
    assert seats == {*environment._env.agents}


async def test_an_episode_goes_the_same_way_again():
    environment = PettingZooEnvironment()
    for family in environment.families:
        first, again = [await play(environment, RandomPolicy, family, 3, 5) for _ in range(2)]
        assert [turn.observation for turn in first.turns] == [turn.observation for turn in again.turns]


async def test_a_taken_cell_is_refused_and_the_game_does_not_end():
    environment = one_game(id="classic/tictactoe-v3", seat=0, return_at_least=1)
    await environment.reset(environment.task("game", 1, 0))
    await environment.step(f"{VERB}: 4")
    step = await environment.step(f"{VERB}: 4")
    assert "not allowed now" in step.observation[0].content
    assert (step.terminated, step.truncated) == (False, False)
    assert sum(mark != 0 for mark in environment._env.unwrapped.board.squares) == 2


async def test_what_is_allowed_is_told_without_the_mask_itself():
    environment = one_game(id="classic/tictactoe-v3", seat=0, return_at_least=1)
    (message,) = await environment.reset(environment.task("game", 1, 0))
    assert "Allowed: 0, 1, 2, 3, 4, 5, 6, 7, 8" in message.content
    assert "action_mask" not in message.content
    assert message.content.count("[0, 0]") == 9


async def test_a_lost_game_is_over_and_no_success():
    environment = one_game(id="classic/tictactoe-v3", seat=0, return_at_least=1, opponent=f"{__name__}:left_column")
    await environment.reset(environment.task("game", 1, 0))
    for cell in (3, 4):
        await environment.step(f"{VERB}: {cell}")
    step = await environment.step(f"{VERB}: 8")
    assert (step.terminated, step.reward.success, step.info["return"]) == (True, 0.0, -1.0)


def left_column(level, seed):
    return lambda env, agent: env.unwrapped.board.squares[:3].index(0)


async def test_rounds_are_played_at_once_without_seeing_the_others_choice():
    environment = PettingZooEnvironment()
    for seed in range(6):
        (message,) = await environment.reset(environment.task("rock_paper_scissors", 1, seed))
        assert "played" not in message.content
        step = await environment.step(f"{VERB}: rock")
        assert "Round 2 of 15. The other one played" in step.observation[0].content


async def test_masks_are_read_from_info_as_well():
    environment = one_game(id=PLANES, seat=0, return_at_least=-99)
    trajectory = await play(environment, RandomPolicy, "game")
    assert trajectory.end is not End.FAILED, trajectory.failure
    assert "Allowed: " in trajectory.turns[0].observation[0].content


@pytest.mark.parametrize(("together", "kwargs"), [(TOGETHER, {}), (TEAM, {"agents": 2, "steps": 4})])
async def test_parallel_environments_are_played_in_turns(together, kwargs):
    environment = one_game(id=together, api="parallel", kwargs=kwargs, return_at_least=-99)
    trajectory = await play(environment, RandomPolicy, "game")
    assert trajectory.end is not End.FAILED, trajectory.failure
    assert len(trajectory.turns) >= 1


@pytest.mark.parametrize(
    ("game", "said"),
    [
        ({"id": "classic/tictactoe"}, "Did you mean 'classic/tictactoe-v3'"),
        ({"id": "classic/tictactoe-v3", "seat": 2}, "there are 2 seats"),
        ({"id": "classic/chess-v6"}, "chess"),
    ],
)
async def test_what_cannot_be_opened_is_refused_with_the_reason(game, said):
    environment = one_game(return_at_least=1, **game)
    with pytest.raises(ConfigError, match=said):
        await environment.reset(environment.task("game", 1, 0))


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(ConfigError, match=r"pip install 'loomrl\[multiagent\]'"):
        PettingZooEnvironment()


def test_lines_are_found_in_all_four_directions():
    game = LineGame(rows=3, columns=3, needed=3, falls=False)
    lines = {tuple(sorted(line)) for cell in game.lines for line in cell}
    assert lines == {
        (0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6),
    }  # fmt: skip


def test_an_opponent_of_full_skill_wins_and_blocks():
    game = LineGame(rows=3, columns=3, needed=3, falls=False)
    opponent = LineOpponent(game, 1.0, "x")
    assert opponent.move((1, 1, 0, 0, 0, 0, 0, 0, 2), 2) == 2
    assert opponent.move((1, 1, 0, 2, 2, 0, 0, 0, 0), 2) == 5
