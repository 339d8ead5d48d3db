"""Opponents. Their moves follow from the position and the given randomness."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Protocol

from pydantic import TypeAdapter

from loomrl.config import LanguagePolicy, OpenAIPolicy
from loomrl.envs.game.chess import action_of
from loomrl.envs.game.notation import plain
from loomrl.envs.game.play import COMMAND
from loomrl.envs.game.setting import (
    EngineOpponent,
    Player,
    PolicyOpponent,
    RandomOpponent,
    RealOpponent,
    SearchOpponent,
)
from loomrl.envs.game.solver import WIN, Search, outcome
from loomrl.envs.game.spiel import BoardState, line, search
from loomrl.envs.game.stockfish import Stockfish, open_stockfish
from loomrl.errors import ConfigError, EpisodeError, LoomError
from loomrl.gym.answer import command_format, parse_command
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.opponent import Rival
from loomrl.gym.policy import PolicyFactory, open_policy
from loomrl.types import Message

REFUTED, UNCLEAR, HOLDS, WON = range(4)


@dataclass(frozen=True, slots=True)
class OpponentTurn:
    """An opponent's view of a turn."""

    state: BoardState
    moves: Mapping[str, int]
    """Its legal moves in notation."""
    told: str
    """The previous events, in words."""
    rng: Random


class Opponent(Protocol):
    """Plays one game."""

    slips: int
    """The number of illegal replies that were replaced by random moves."""

    async def reply(self, turn: OpponentTurn) -> int:
        """Its action."""


class RandomMover:
    """Any legal move."""

    slips = 0

    async def reply(self, turn: OpponentTurn) -> int:
        """Uniformly random."""
        return turn.rng.choice(turn.state.legal_actions())


class TreeSearcher:
    """Monte Carlo tree search."""

    slips = 0

    def __init__(self, game: str, simulations: int) -> None:
        self._game = game
        self._simulations = simulations

    async def reply(self, turn: OpponentTurn) -> int:
        """The move preferred by the search."""
        return search(self._game, turn.state, self._simulations, turn.rng.getrandbits(30))


class Minimaxer:
    """Exact play within its search depth: winning moves, then unrefuted ones, then those hardest to refute."""

    slips = 0

    def __init__(self, positions: int) -> None:
        self._positions = positions

    async def reply(self, turn: OpponentTurn) -> int:
        """The best reply; among equals, any."""
        ranks = {action: self._rank(turn.state, action) for action in turn.state.legal_actions()}
        best = max(ranks.values())
        return turn.rng.choice([action for action, rank in ranks.items() if rank == best])

    def _rank(self, state: BoardState, action: int) -> tuple[int, int]:
        player = state.current_player()
        child = state.child(action)
        if child.is_terminal():
            return (REFUTED, HOLDS, WON)[outcome(child, player) + 1], 1
        proof = Search(str, 1 - player, WIN, self._positions).prove(child)
        if proof.holds is None:
            return UNCLEAR, 0
        if proof.holds:
            return REFUTED, proof.positions
        wins = Search(str, player, WIN, self._positions).prove(child).holds
        return (WON if wins else HOLDS), 0


class EngineMover:
    """Stockfish with few or many nodes."""

    slips = 0

    def __init__(self, engine: Stockfish, nodes: int) -> None:
        self._engine = engine
        self._nodes = nodes

    async def reply(self, turn: OpponentTurn) -> int:
        """Its best move."""
        found = await asyncio.to_thread(self._engine.search, line(turn.state), self._nodes)
        return action_of(turn.state, found.move)


class PolicyPlayer:
    """A policy that reads and answers as the trained one does. An illegal answer is replaced by a random move."""

    def __init__(self, policy: Rival) -> None:
        self.slips = 0
        self._policy = policy
        self._conversation: tuple[Message, ...] = ()

    async def reply(self, turn: OpponentTurn) -> int:
        """The move it names, or a random one. Its errors are no fault of the trained policy."""
        usage = "" if self._conversation else "\n" + command_format((f"{COMMAND}: move",))
        self._conversation += (Message("user", turn.told + usage),)
        try:
            said = (await self._policy.act(self._conversation)).text
        # an opponent that fails is no loss of the policy: the attempt fails and is masked
        except LoomError as error:
            raise EpisodeError(f"opponent.policy: {error}") from error
        self._conversation += (Message("assistant", said),)
        command = parse_command(said, (COMMAND,))
        action = turn.moves.get(plain(command.line)) if command else None
        if action is None:
            self.slips += 1
            action = turn.rng.choice(turn.state.legal_actions())
        return action


def open_opponent(
    choice: RealOpponent, *, game: str, program: str | None, environment: BaseEnvironment, rng: Random
) -> Opponent:
    """The opponent of one game; a ConfigError if this kind cannot play it."""
    if isinstance(choice, RandomOpponent):
        return RandomMover()
    if isinstance(choice, PolicyOpponent):
        return PolicyPlayer(_open_factory(choice.policy.model_dump_json())(environment, rng))
    if isinstance(choice, EngineOpponent) != (game == "chess"):
        raise ConfigError(
            f"opponent.kind={choice.kind!r} does not play {game}. Stockfish plays chess and nothing else, mcts and "
            "minimax all but chess; random, policy and ladder play everything. Name the families it is for."
        )
    if isinstance(choice, EngineOpponent):
        return EngineMover(open_stockfish(program), choice.nodes)
    if isinstance(choice, SearchOpponent):
        return TreeSearcher(game, choice.simulations)
    return Minimaxer(choice.positions)


@lru_cache(maxsize=8)
def _open_factory(choice: str) -> PolicyFactory:
    """The factory of the policy in this JSON: opened once per process, and shared."""
    policy: Player = TypeAdapter(Player).validate_json(choice)
    if isinstance(policy, LanguagePolicy):
        from loomrl.inference.policy import open_policy as open_language

        return open_language(policy)
    if isinstance(policy, OpenAIPolicy):
        from loomrl.inference.remote.server import speakers_on_server

        return speakers_on_server(policy)
    return open_policy(policy)
