"""PettingZoo environments as text: the policy has one seat, scripted players have the others.

Environments with simultaneous moves are played in turns, without showing the others' choices. The setting `worlds` maps
a family to PettingZoo's id, the opponents and the return needed for success. Needs the extra `multiagent`.
"""

from collections.abc import Mapping
from importlib import import_module
from random import Random
from typing import Any, ClassVar, Literal

from gymnasium import spaces
from pydantic import Field

from loomrl.errors import ConfigError, EpisodeError, unknown
from loomrl.gym.adapters.classic import Opponent
from loomrl.gym.adapters.family import import_extra
from loomrl.gym.adapters.space_text import format_action, sample, show
from loomrl.gym.adapters.world import TextWorld, WorldEnvironment, WorldSettings, WorldStep
from loomrl.gym.base import EnvironmentSettings
from loomrl.named import named
from loomrl.threshold import as_written
from loomrl.types import Task

_CLASSIC = "loomrl.gym.adapters.classic"
_MOST_TURNS = 10_000
"""Consecutive turns of other players; more of them count as an endless loop."""


class PettingZooGame(TextWorld):
    """A PettingZoo environment as a family of tasks.

    `observe` is called with environment, agent and observation, `oracle` with environment, agent and opponent.
    """

    id: str
    """PettingZoo's id, such as `classic/tictactoe-v3`, or `package.module:function` that makes an environment."""
    api: Literal["aec", "parallel"] = "aec"
    """`aec`: players take turns; `parallel`: all act at once."""
    seat: int | None = Field(None, ge=0)
    """Index of the policy's seat. By default the task's seed decides."""
    opponent: str = "random"
    """`random`, or `package.module:function`, called with level and seed, that gives a function of environment and
    agent. It plays all other seats."""


WORLDS = {
    "tictactoe": PettingZooGame(
        id="classic/tictactoe-v3",
        opponent=f"{_CLASSIC}:tictactoe",
        observe=f"{_CLASSIC}:show_line",
        oracle=f"{_CLASSIC}:line_oracle",
        prompt="Tic-tac-toe: win with three marks in a row. A draw is not enough.",
        guess_floor=0.3,
        return_at_least=1,
    ),
    "connect_four": PettingZooGame(
        id="classic/connect_four-v3",
        opponent=f"{_CLASSIC}:connect_four",
        observe=f"{_CLASSIC}:show_line",
        oracle=f"{_CLASSIC}:line_oracle",
        prompt="Connect four: marks fall to the bottom of a column. Win with four in a row.",
        guess_floor=0.25,
        return_at_least=1,
    ),
    "rock_paper_scissors": PettingZooGame(
        id="classic/rps-v2",
        opponent=f"{_CLASSIC}:pattern",
        observe=f"{_CLASSIC}:show_rps",
        oracle=f"{_CLASSIC}:rps_oracle",
        prompt="Rock, paper, scissors: the other one repeats a pattern. Win at least 6 rounds more than you lose.",
        actions=("rock", "paper", "scissors"),
        guess_floor=0.2,
        return_at_least=6,
    ),
}


class PettingZooSettings(WorldSettings):
    """Settings of PettingZoo environments as text."""

    worlds: dict[str, PettingZooGame] = Field(WORLDS, min_length=1)
    """Family → game."""


class PettingZooEnvironment(WorldEnvironment):
    """Games of PettingZoo; the policy has one seat."""

    name = "PettingZoo"
    version = "1.1.0"
    families = tuple(WORLDS)
    guess_floor: ClassVar[Mapping[str, float]] = {name: game.guess_floor for name, game in WORLDS.items()}
    settings_class: ClassVar[type[EnvironmentSettings]] = PettingZooSettings
    settings: PettingZooSettings
    world: PettingZooGame
    dependencies = ("pettingzoo",)
    sources = (
        *WorldEnvironment.sources,
        "loomrl.gym.adapters.pettingzoo",
        "loomrl.gym.adapters.classic",
        _CLASSIC,
    )

    _seat = ""
    _opponent: Opponent
    _observation: Any = None

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        _library()

    def worlds(self) -> Mapping[str, PettingZooGame]:
        """The worlds from the settings."""
        return self.settings.worlds

    def begin(self, task: Task) -> None:
        """Reset the game with the task's seed, and play the turns before the policy's first."""
        game = self.world
        made_with = (game.id, game.api, game.keywords(task.level))
        self.open_world(made_with, lambda: _make(*made_with))
        self._env.reset(seed=task.seed)
        agents = self._env.agents
        seat = Random(f"seat:{task.seed}").randrange(len(agents)) if self.world.seat is None else self.world.seat
        if seat >= len(agents):
            raise ConfigError(f"worlds.{task.family}.seat={seat}: there are {len(agents)} seats, counted from 0.")
        self._seat = agents[seat]
        self._opponent = self._open_opponent(task)
        if self._play_on().over:
            raise EpisodeError("the game was over before the policy had a turn.")

    def see(self) -> str:
        """The text from `observe`, else the observation's numbers; with the legal actions if known."""
        seen = self._observation
        mask = self.mask()
        if self.world.observe:
            text = str(named(self.world.observe, what="observe")(self._env, self._seat, seen))
        else:
            text = show(self._observation_space(), _without_mask(seen))
        if mask is None or not any(mask):
            return text
        space = self.action_space()
        start = getattr(space, "start", 0)
        allowed = (format_action(space, start + i, self.world.actions) for i, ok in enumerate(mask) if ok)
        return f"{text}\nAllowed: {', '.join(allowed)}"

    def act(self, value: Any) -> WorldStep:
        """Play the policy's turn, and all others' turns until it is the policy's turn again."""
        self._env.step(value.item() if hasattr(value, "item") and value.ndim == 0 else value)
        return self._play_on()

    def action_space(self) -> spaces.Space[Any]:
        """The action space of the policy's seat."""
        space: spaces.Space[Any] = self._env.action_space(self._seat)
        return space

    def numeric_space(self) -> spaces.Space[Any] | None:
        """The observation space if its numbers are shown."""
        return None if self.world.observe else self._observation_space()

    def mask(self) -> Any:
        """The action mask from the observation or from `info`."""
        return _mask(self._observation, self._env.infos.get(self._seat, {}))

    def best(self) -> Any:
        """The oracle's action."""
        return self.world.ask_oracle(self._env, self._seat, self._opponent)

    def _play_on(self) -> WorldStep:
        """Play the others' turns until the policy's turn or the end; returns the reward earned meanwhile."""
        env = self._env
        for _ in range(_MOST_TURNS):
            if self._seat not in env.agents:
                return WorldStep(0.0, True, True)
            agent = env.agent_selection
            observation, reward, terminated, truncated, _ = env.last()
            over = terminated or truncated
            if agent == self._seat:
                self._observation = observation
                return WorldStep(as_written(reward), over, True)
            env.step(None if over else self._opponent(env, agent))
        raise EpisodeError(f"the policy had no turn in {_MOST_TURNS} turns of others.")

    def _open_opponent(self, task: Task) -> Opponent:
        if self.world.opponent == "random":
            rng = Random(f"opponent:{task.seed}")

            def play(env: Any, agent: str) -> Any:
                observation, _, _, _, info = env.last()
                return sample(env.action_space(agent), rng, _mask(observation, info))

            return play
        opponent: Opponent = named(self.world.opponent, what=f"worlds.{task.family}.opponent")(task.level, task.seed)
        return opponent

    def _observation_space(self) -> spaces.Space[Any]:
        space: spaces.Space[Any] = self._env.observation_space(self._seat)
        return space["observation"] if isinstance(space, spaces.Dict) and "action_mask" in space.spaces else space


def _make(id: str, api: str, keywords: dict[str, Any]) -> Any:
    library = _library()
    if ":" in id:
        made = named(id, what="worlds.id")(**keywords)
    else:
        registry = library.aec_registry if api == "aec" else library.parallel_registry
        if id not in registry:
            raise ConfigError(unknown(f"PettingZoo {api} environment", id, registry))
        try:
            made = library.make(api, id, **keywords)
        except import_module("pettingzoo.env_registry.exceptions").FailedToImport as error:
            raise ConfigError(f"{error} ({error.__cause__})") from error
    if api == "parallel":
        made = import_module("pettingzoo.utils.conversions").parallel_to_aec(made)
    return made


def _library() -> Any:
    return import_extra("PettingZoo", "pettingzoo", "multiagent")


def _mask(observation: Any, info: Mapping[str, Any]) -> Any:
    told = observation if isinstance(observation, Mapping) else info
    return told.get("action_mask", info.get("action_mask"))


def _without_mask(observation: Any) -> Any:
    return (
        observation["observation"] if isinstance(observation, Mapping) and "action_mask" in observation else observation
    )
