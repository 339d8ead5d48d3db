"""Games of two that take turns (PettingZoo's AEC environments) as a vector environment of one of the seats.

Every place is a table. The policy sits in one seat, drawn anew for each game; the other one's moves are part of a step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from loomrl.control.mask import mask_in
from loomrl.control.policy import ControlPolicy
from loomrl.control.shared import common_spaces
from loomrl.control.space import acts, draw, flatten, translator
from loomrl.errors import ConfigError
from loomrl.gym.opponent import SCRIPTED, LeagueSettings
from loomrl.named import named

OPPONENTS = ("league", "random", "policy")
SEATS = 2

Mover = Callable[[Any], Sequence[Any]]
"""Moves for a batch of observations."""


class GameResult(NamedTuple):
    """A finished game."""

    opponent: str
    """Its name among the ratings."""
    is_first: bool
    """True if the policy had the first seat."""
    points: float
    """The policy's: 1 for a win, 0.5 for a draw."""


@dataclass(slots=True)
class Table:
    """A game, and who plays it."""

    game: Any
    me: str = ""
    opponent: str = SCRIPTED
    is_over: bool = True
    earned: float = 0.0
    """Rewards of the policy since its last move."""
    balance: float = 0.0
    """Rewards of the policy less those of the opponent, in the whole game."""

    def begin(self, seat: int, opponent: str, seed: int | None) -> None:
        """Begin a game."""
        self.game.reset(seed=seed)
        self.me = self.game.possible_agents[seat]
        self.opponent = opponent
        self.is_over = False
        self.earned = 0.0
        self.balance = 0.0

    def move(self, action: Any) -> None:
        """The move of the one whose turn it is."""
        self.game.step(action)
        for name, reward in self.game.rewards.items():
            self.balance += reward if name == self.me else -reward
        self.earned += self.game.rewards.get(self.me, 0.0)
        self.is_over = any(self.game.terminations.values()) or any(self.game.truncations.values())

    @property
    def waits(self) -> bool:
        """True if it is the opponent's turn."""
        return not self.is_over and self.game.agent_selection != self.me


class TurnVector(VectorEnv[Any, Any, Any]):
    """`num_envs` tables of a game, `pkg.module:function` that makes an AEC environment of two agents.

    `opponent`: `{kind: league, …}` with `LeagueSettings`, where a training seats its own versions; `{kind: random}`; or
    `{kind: policy, path: FOLDER}`, an exported version. Wherever no training seats anyone, a league's opponent is the
    random one. A game's last step tells the policy's points as `info["is_success"]`.
    """

    _tables: Sequence[Table] = ()
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_fps": 1}  # noqa: RUF012 - Gymnasium's declaration

    def __init__(
        self,
        game: str,
        num_envs: int = 1,
        *,
        opponent: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        make = named(game, what="environment.settings.game")
        chosen = dict(settings or {}) | ({} if render_mode is None else {"render_mode": render_mode})
        self._tables = [Table(_checked(make(**chosen), game)) for _ in range(num_envs)]
        first = self._tables[0].game
        self.render_mode = render_mode
        self.single_observation_space, self.single_action_space = common_spaces(first, first.possible_agents)
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.league: LeagueSettings | None = None
        self._chance = np.random.default_rng()
        self._noise = torch.Generator()
        self._flatten = flatten(self.single_observation_space)
        self._mask = mask_in(self.single_observation_space, self.single_action_space)
        self._acts = acts(self.single_action_space)
        self._translate = translator(self._acts)
        self._policies: dict[str, ControlPolicy] = {}
        self._chances: dict[str, float] = {SCRIPTED: 1.0}
        self._results: list[GameResult] = []
        self._choose(dict(opponent or {"kind": "random"}))

    def _choose(self, opponent: dict[str, Any]) -> None:
        """The opponent that the settings name."""
        kind = opponent.get("kind")
        given = {name for name in opponent if name != "kind"}
        known = {"random": set[str](), "policy": {"path"}, "league": {*LeagueSettings.model_fields} - {"kind"}}
        where = "environment.settings.opponent"
        if kind not in known:
            near = get_close_matches(str(kind), OPPONENTS, 1, 0)[0]
            raise ConfigError(f"{where}.kind={kind!r}: unknown. Known: {', '.join(OPPONENTS)}. Did you mean {near!r}?")
        if kind == "league":
            self.league = LeagueSettings.parse(opponent, origin=where)
        elif given != known[kind]:
            raise ConfigError(f"{where}={opponent}: kind={kind} takes {', '.join(known[kind]) or 'no more settings'}.")
        elif kind == "policy":
            self._policies = {"policy": ControlPolicy.load(opponent["path"])}
            self._policies["policy"].begin(self, seed=0)
            self._chances = {"policy": 1.0}

    def seat(self, policies: Mapping[str, ControlPolicy], chances: Mapping[str, float]) -> None:
        """The opponents of the next games, and how likely each is. Running games keep theirs; the present policy moves
        as it now is.
        """
        running = {table.opponent for table in self._tables if not table.is_over}
        kept = {name: policy for name, policy in self._policies.items() if name in running}
        self._policies = {**kept, **policies}
        self._chances = dict(chances)

    def take_results(self) -> list[GameResult]:
        """The games that have ended since the last call."""
        told = self._results
        self._results = []
        return told

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin all games; table n of a seed has `seed + n`."""
        first = seed if isinstance(seed, int) else None
        if first is not None:
            self._chance = np.random.default_rng(first)
            self._noise.manual_seed(first)
        for n, table in enumerate(self._tables):
            self._begin(table, None if first is None else first + n)
        self._move_opponents()
        return self._observations(), {}

    def step(
        self, actions: Any
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """The policy's move at every table, and the opponents' replies; games that are over begin anew."""
        begun_N = np.array([table.is_over for table in self._tables])
        for table, action in zip(self._tables, iterate(self.action_space, actions), strict=True):
            if table.is_over:
                self._begin(table)
                continue
            table.earned = 0.0
            table.move(action)
        self._move_opponents()
        for table in self._tables:
            if table.is_over:
                self._results.append(
                    GameResult(table.opponent, table.me == table.game.possible_agents[0], _points(table))
                )
        rewards_N = np.array([table.earned for table in self._tables])
        rewards_N[begun_N] = 0.0
        over_N = np.array([table.is_over for table in self._tables])
        truncated_N = over_N & [bool(table.game.truncations.get(table.me)) for table in self._tables]
        points_N = np.array([_points(table) for table in self._tables])
        return self._observations(), rewards_N, over_N & ~truncated_N, truncated_N, {"is_success": points_N}

    def __getstate__(self) -> Any:
        raise TypeError("PettingZoo's games lose their state when they are pickled")

    def render(self) -> tuple[Any, ...]:
        """A picture of every game."""
        return tuple(table.game.render() for table in self._tables)

    def close_extras(self, **_: Any) -> None:
        """Close every game."""
        for table in self._tables:
            table.game.close()

    def _begin(self, table: Table, seed: int | None = None) -> None:
        names = [*self._chances]
        chosen = names[self._chance.choice(len(names), p=[*self._chances.values()])]
        table.begin(int(self._chance.integers(SEATS)), chosen, seed)

    def _move_opponents(self) -> None:
        """Let opponents move until it is the policy's turn at every table; those of one name at once."""
        while waiting := [table for table in self._tables if table.waits]:
            for name in dict.fromkeys(table.opponent for table in waiting):
                tables = [table for table in waiting if table.opponent == name]
                shown = self._batch([table.game.observe(table.game.agent_selection) for table in tables])
                for table, action in zip(tables, self._moves(name, shown, len(tables)), strict=True):
                    table.move(action)

    def _moves(self, name: str, shown: Any, count: int) -> Any:
        if name != SCRIPTED:
            return self._policies[name].act_batch(shown, explore=True, generator=self._noise)
        if self._mask is None:
            return self._translate(draw(self._acts, count, self._chance))
        return self._translate(self._mask.draw(self._flatten(shown), self._chance))

    def _observations(self) -> Any:
        return self._batch([table.game.observe(table.me) for table in self._tables])

    def _batch(self, shown: Sequence[Any]) -> Any:
        space = self.single_observation_space
        return concatenate(space, shown, create_empty_array(space, n=len(shown)))


def _points(table: Table) -> float:
    return 0.5 + 0.5 * float(np.sign(table.balance))


def _checked(game: Any, name: str) -> Any:
    """The game, if two take turns in it."""
    if not hasattr(game, "agent_iter"):
        raise ConfigError(
            f"environment.settings.game={name!r} made {game!r}, whose agents do not take turns. Name a function that "
            "makes an AEC environment of PettingZoo, such as pettingzoo.classic.tictactoe_v3:env; a ParallelEnv or "
            "Gymnasium environment is an entry_point itself."
        )
    if len(game.possible_agents) != SEATS:
        agents = ", ".join(game.possible_agents)
        raise ConfigError(
            f"environment.settings.game={name!r} has {len(game.possible_agents)} agents ({agents}), and a game has two "
            "seats. With one agent, wrap it as a Gymnasium environment; with more, train them on a ParallelEnv."
        )
    return game
