"""Proofs: they say what exhaustive search says, and whoever follows one needs no longer one later."""

import random
from functools import cache

import pytest

from loomrl.envs.game.board import BOARDS
from loomrl.envs.game.solver import DRAW, WIN, Search, order_actions, outcome
from loomrl.envs.game.spiel import BoardState, open_state

pytest.importorskip("pyspiel", reason="needs OpenSpiel: pip install 'loomrl[games]'")
GAMES = (
    "tic_tac_toe",
    "connect_four(rows=3,columns=3,x_in_row=3)",
    "nim(pile_sizes=2;3;2,is_misere=True)",
    "dots_and_boxes(num_rows=1,num_cols=2)",
    "clobber(rows=2,columns=4)",
    "hex(board_size=3)",
    "breakthrough(rows=4,columns=2)",
    "y(board_size=3)",
)


def wandered(game: str, seed: int) -> BoardState:
    """A position after some random moves, in which the game goes on."""
    rng = random.Random(seed)
    state = open_state(game)
    for _ in range(rng.randrange(5)):
        child = state.child(rng.choice(state.legal_actions()))
        if child.is_terminal():
            break
        state = child
    return state


@pytest.mark.parametrize("game", GAMES)
def test_a_proof_agrees_with_exhaustive_search(game):
    @cache
    def exhaustive(history: tuple[int, ...], player: int) -> int:
        state = open_state(game)
        for action in history:
            state.apply_action_with_legality_check(action)
        if state.is_terminal():
            return outcome(state, player)
        results = [exhaustive((*history, action), player) for action in state.legal_actions()]
        return max(results) if state.current_player() == player else min(results)

    compared = 0
    for seed in range(40):
        state = wandered(game, seed)
        if len(state.legal_actions()) > 6:
            continue
        value = exhaustive(tuple(state.history()), state.current_player())
        for least in (WIN, DRAW):
            proof = Search(str, state.current_player(), least, 10_000).prove(state)
            assert proof.holds == (value >= least)
            compared += 1
    assert compared


@pytest.mark.parametrize("family", BOARDS)
def test_following_a_proof_never_needs_a_longer_one(family):
    rng = random.Random(family)
    size = BOARDS[family].sizes[3]
    followed = 0
    for _ in range(30):
        state = open_state(size.game)
        for _ in range(size.last):
            if not state.is_terminal():
                state.apply_action_with_legality_check(rng.choice(state.legal_actions()))
        if state.is_terminal():
            continue
        player = state.current_player()
        proof = Search(str, player, WIN, 300).prove(state)
        if not proof.holds:
            continue
        followed += 1
        while not state.is_terminal():
            if state.current_player() == player:
                again = Search(str, player, WIN, proof.positions).prove(state)
                assert again.holds
                search = Search(str, player, WIN, proof.positions)
                action = next(action for action in order_actions(state) if search.prove(state.child(action)).holds)
            else:
                action = rng.choice(state.legal_actions())
            state.apply_action_with_legality_check(action)
        assert outcome(state, player) == 1
    assert followed


def test_a_proof_that_would_need_more_positions_is_no_verdict():
    proof = Search(str, 0, WIN, 50).prove(open_state("tic_tac_toe"))
    assert proof == (None, 50)


def test_a_verdict_does_not_depend_on_what_was_asked_before():
    for seed in range(5):
        state = wandered("hex(board_size=4)", seed)
        fresh = Search(str, state.current_player(), WIN, 200).prove(state)
        Search(str, state.current_player(), WIN, 1000).prove(open_state("hex(board_size=4)"))
        assert Search(str, state.current_player(), WIN, 200).prove(state) == fresh
