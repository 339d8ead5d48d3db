"""Settings: the opponent, and the tolerance for illegal moves."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from loomrl.config import CustomPolicy, LanguagePolicy, OpenAIPolicy
from loomrl.envs.game import chess
from loomrl.gym.base import EnvironmentSettings
from loomrl.gym.opponent import LeagueSettings
from loomrl.schema import Config
from loomrl.types import Task


class LadderOpponent(Config):
    """Stronger with the level: random, tree search, minimax; in chess Stockfish with more and more nodes."""

    kind: Literal["ladder"] = "ladder"


class RandomOpponent(Config):
    """Any legal move."""

    kind: Literal["random"] = "random"


class SearchOpponent(Config):
    """Monte Carlo tree search with random rollouts."""

    kind: Literal["mcts"] = "mcts"
    simulations: int = Field(100, ge=2, le=10_000)


class MinimaxOpponent(Config):
    """Exact play within its search depth; in lost positions, the reply that is hardest to refute."""

    kind: Literal["minimax"] = "minimax"
    positions: int = Field(100, ge=1, le=5_000)
    """To judge one reply."""


class EngineOpponent(Config):
    """Stockfish, in chess only."""

    kind: Literal["stockfish"] = "stockfish"
    nodes: int = Field(1000, ge=1, le=1_000_000)


Player = Annotated[CustomPolicy | LanguagePolicy | OpenAIPolicy, Field(discriminator="kind")]


class PolicyOpponent(Config):
    """Another policy, such as one that a run has exported: opened once in a process."""

    kind: Literal["policy"] = "policy"
    policy: Player


ScriptedOpponent = RandomOpponent | SearchOpponent | MinimaxOpponent | EngineOpponent
RealOpponent = ScriptedOpponent | PolicyOpponent


class LeagueOpponent(LeagueSettings):
    """In training the run's own past versions, the present one, and a scripted opponent; elsewhere the scripted one."""

    scripted: Annotated[LadderOpponent | ScriptedOpponent, Field(discriminator="kind")] = LadderOpponent()

    def rating_name(self, task: Task) -> str:
        """Kind and strength, such as `mcts-100`."""
        opponent = real(self.scripted, task)
        return "-".join(str(value) for value in opponent.model_dump().values())


AnyOpponent = Annotated[LadderOpponent | RealOpponent | LeagueOpponent, Field(discriminator="kind")]


class GameSettings(EnvironmentSettings):
    """Settings of the games and puzzles."""

    max_steps: int = Field(60, ge=1)
    opponent: AnyOpponent = LadderOpponent()
    """The opponent in two-player games."""
    predictions: bool = True
    """Offer a small bonus for foretelling replies, where the opponent can be foretold."""
    patience: int = Field(3, ge=1)
    """Number of consecutive actions without a legal move that loses the game."""
    stockfish: str | None = None
    """Path of the program; None looks for `stockfish` on the PATH, then in /usr/games."""


BOARD_LADDER: Sequence[ScriptedOpponent] = (
    RandomOpponent(),
    *(SearchOpponent(simulations=count) for count in (10, 20, 50, 100, 200, 400)),
    *(MinimaxOpponent(positions=count) for count in (50, 100, 200)),
)
CHESS_LADDER: Sequence[ScriptedOpponent] = (
    RandomOpponent(),
    RandomOpponent(),
    *(EngineOpponent(nodes=count) for count in (10, 30, 100, 300, 1_000, 2_000, 5_000, 10_000)),
)
"""By level."""


def real(choice: AnyOpponent, task: Task) -> RealOpponent:
    """The opponent of this task; of a league, the scripted one."""
    if isinstance(choice, LeagueOpponent):
        choice = choice.scripted
    if not isinstance(choice, LadderOpponent):
        return choice
    return (CHESS_LADDER if task.family == chess.FAMILY else BOARD_LADDER)[task.level - 1]
