"""Opponents: deterministic by seed and moves, each as strong as it claims, and policies among them."""

from random import Random
from typing import ClassVar

import pytest

from loomrl.config import LanguagePolicy, RolloutConfig
from loomrl.envs.game import GameEnvironment
from loomrl.envs.game.opponent import Minimaxer, OpponentTurn, RandomMover, TreeSearcher
from loomrl.envs.game.spiel import open_state
from loomrl.errors import ArtifactError, EpisodeError
from loomrl.gym.catalogue import make
from loomrl.gym.episode import Attempt, LocalHost, Plan
from loomrl.gym.opponent import with_opponent
from loomrl.gym.policy import Action
from loomrl.types import Message

pytest.importorskip("pyspiel", reason="needs OpenSpiel: pip install 'loomrl[games]'")
GAME = "connect_four(rows=4,columns=4,x_in_row=3)"


def turn(state, seed=0):
    return OpponentTurn(state, {}, "", Random(seed))


def after(game, *actions):
    state = open_state(game)
    for action in actions:
        state.apply_action_with_legality_check(action)
    return state


@pytest.mark.parametrize("opponent", [RandomMover(), TreeSearcher(GAME, 20), Minimaxer(20)])
async def test_the_same_position_and_chance_get_the_same_reply(opponent):
    state = after(GAME, 0, 1)
    replies = {seed: [await opponent.reply(turn(state, seed)) for _ in range(3)] for seed in range(5)}
    assert all(len(set(found)) == 1 for found in replies.values())


@pytest.mark.parametrize("opponent", [TreeSearcher("tic_tac_toe", 1000), Minimaxer(20)])
async def test_a_thinking_opponent_takes_a_win_and_parries_a_threat(opponent):
    for seed in range(5):
        assert await opponent.reply(turn(after("tic_tac_toe", 0, 3, 1, 4), seed)) == 2
        assert await opponent.reply(turn(after("tic_tac_toe", 0, 3, 1), seed)) == 2


async def test_minimax_wins_at_once_where_it_can():
    state = after("tic_tac_toe", 0, 3, 1, 6)  # 2 wins at once, others force a win later
    assert {await Minimaxer(100).reply(turn(state, seed)) for seed in range(10)} == {2}


async def test_minimax_prefers_a_forced_win_to_a_draw():
    state = after("tic_tac_toe", 0, 1)  # a corner, answered at the side: 3, 4 and 6 win by force
    assert {await Minimaxer(1000).reply(turn(state, seed)) for seed in range(20)} <= {3, 4, 6}


async def test_where_all_is_lost_minimax_chooses_what_is_hardest_to_refute():
    state = after("nim(pile_sizes=1;2;3,is_misere=False)")
    replies = {await Minimaxer(1000).reply(turn(state, seed)) for seed in range(10)}
    shortest = {"pile:3, take:3;", "pile:2, take:2;"}
    assert not {state.action_to_string(action) for action in replies} & shortest


class Player:
    """Says what it was told to say, and keeps what it heard."""

    heard: ClassVar[list[tuple[Message, ...]]] = []

    def __init__(self, says=""):
        self._says = says

    async def act(self, conversation):
        self.heard.append(conversation)
        legal = conversation[-1].content.split("Legal moves: ")[1].split("\n")[0].split(", ")
        return Action(self._says or f"Hm.\nMOVE: {legal[0].upper()}")


class Broken:
    """A policy whose engine is gone."""

    async def act(self, conversation):
        from loomrl.errors import PolicyError

        raise PolicyError("the engine is gone")


def against(player, **settings):
    policy = {"kind": "custom", "entry_point": f"{__name__}:{player}", "settings": settings}
    return {"opponent": {"kind": "policy", "policy": policy}}


async def test_a_policy_as_opponent_reads_the_game_from_its_side_and_is_obeyed():
    Player.heard.clear()
    environment = GameEnvironment(against("Player"))
    (own,) = await environment.reset(environment.task("board.connect_four", 3, 2))
    side, other = ("x", "o") if "You are x" in own.content else ("o", "x")
    move = environment.oracle()
    step = await environment.step(move)
    (heard,) = Player.heard[0]
    assert f"You are {other}." in heard.content
    assert "MOVE: move" in heard.content
    assert f"{other} plays" in step.observation[0].content
    await environment.step(environment.oracle())
    assert [message.role for message in Player.heard[1]] == ["user", "assistant", "user"]
    assert Player.heard[1][-1].content.startswith(f"{side} plays")


async def test_a_move_that_an_opponent_cannot_make_is_made_by_chance_and_counted():
    environment = GameEnvironment(against("Player", says="I resign"))
    results = []
    for _ in range(2):
        await environment.reset(environment.task("board.connect_four", 3, 2))
        lines = []
        while True:
            step = await environment.step(environment.oracle())
            lines += [message.content for message in step.observation]
            if step.terminated:
                break
        results.append(lines)
        assert step.info["opponent_slips"] == len(lines) > 0
    assert results[0] == results[1]


LEAGUE = {"opponent": {"kind": "league", "scripted": {"kind": "mcts", "simulations": 10}}}
PAST = {"kind": "past", "version": 10, "url": "runs/r/000010"}


async def test_who_was_seated_plays_in_a_league_and_its_illegal_moves_are_counted():
    Player.heard.clear()
    environment = GameEnvironment(LEAGUE)
    environment.seat(Player(says="I resign"))
    await environment.reset(with_opponent(environment.task("board.connect_four", 3, 2), PAST))
    replies = 0
    while True:
        step = await environment.step(environment.oracle())
        replies += len(step.observation)
        if step.terminated:
            break
    assert step.info["opponent_slips"] == replies > 0
    assert len(Player.heard) == replies


async def test_without_anybody_seated_a_league_plays_its_scripted_opponent_and_no_other_than_the_task_names():
    environment = GameEnvironment(LEAGUE)
    plain = GameEnvironment({"opponent": LEAGUE["opponent"]["scripted"]})
    task = environment.task("board.connect_four", 3, 2)
    games = []
    for place, asked in (
        (environment, task),
        (environment, with_opponent(task, {"kind": "scripted"})),
        (plain, task),
    ):
        await place.reset(asked)
        games.append((await place.step(place.oracle())).observation)
    assert games[0] == games[1] == games[2]
    with pytest.raises(EpisodeError, match="has not been seated"):
        await environment.reset(with_opponent(task, PAST))


def test_scripted_opponents_of_a_league_have_the_names_of_their_strength():
    environment = GameEnvironment({"opponent": {"kind": "league"}})
    names = [environment.league.rating_name(environment.task("board.hex", level, 0)) for level in (1, 2, 8)]
    assert names == ["random", "mcts-10", "minimax-50"]
    assert environment.league.rating_name(environment.task("chess", 3, 0)) == "stockfish-10"


async def test_the_host_seats_the_policy_itself_or_the_version_that_the_task_names_with_chances_of_their_own():
    opened = []

    def opening(choice):
        opened.append(choice.path)

        def open_player(environment, rng):
            seeds.append(rng.random())
            return Player()

        return open_player

    environment = GameEnvironment(LEAGUE)
    host = LocalHost(make, RolloutConfig(turn_timeout_s=10), open_policy=opening)
    present = LanguagePolicy(path="")
    seeds = []
    for opponent in ({"kind": "scripted"}, {"kind": "present"}, PAST, PAST, {**PAST, "url": "gone"}):
        task = with_opponent(environment.task("board.tictactoe", 1, 2), opponent)
        attempt = Attempt(id="a", task=task, group="g")
        found = await host.play(Plan(attempt=attempt, policy=present, settings=LEAGUE, seed="s"))
        assert found.failure is None
        assert found.extra["opponent_slips"] == 0
    assert opened == ["", "runs/r/000010", "gone"]
    assert len(seeds) == 9
    assert len(set(seeds)) == 2


async def test_the_host_keeps_as_many_versions_open_as_the_pool_has_members():
    opened = []

    def opening(choice):
        opened.append(choice.version)
        return lambda environment, rng: Player()

    settings = {"opponent": {"kind": "league", "members": 2}}
    environment = GameEnvironment(settings)
    host = LocalHost(make, RolloutConfig(turn_timeout_s=10), open_policy=opening)
    for version in (1, 2, 1, 3, 1, 2):
        task = with_opponent(environment.task("board.tictactoe", 1, 2), {**PAST, "version": version})
        plan = Plan(attempt=Attempt(id="a", task=task, group="g"), policy=LanguagePolicy(path=""), settings=settings)
        await host.play(plan)
    assert opened == [-1, 1, 2, 3, 2]


async def test_an_opponent_that_cannot_be_opened_or_whose_engine_fails_is_a_failed_attempt_without_a_reward():
    def opening(choice):
        if choice.path == "damaged":
            raise ArtifactError("its marker is damaged")
        return lambda environment, rng: Broken() if choice.path else Player()

    environment = GameEnvironment(LEAGUE)
    host = LocalHost(make, RolloutConfig(turn_timeout_s=10), open_policy=opening)
    for url, said in (("damaged", "opponent: its marker is damaged"), ("runs/r/1", "the engine is gone")):
        task = with_opponent(environment.task("board.connect_four", 3, 2), {**PAST, "url": url})
        plan = Plan(attempt=Attempt(id="a", task=task, group="g"), policy=LanguagePolicy(path=""), settings=LEAGUE)
        found = await host.play(plan)
        assert found.failure.boundary == EpisodeError.boundary
        assert said in found.failure.message
        assert found.reward.total == 0


async def test_an_environment_without_a_second_seat_seats_nobody():
    with pytest.raises(EpisodeError, match="has no second seat"):
        make("Math", {}).seat(Player())
