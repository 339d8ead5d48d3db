"""Any Gymnasium environment as text. The setting `worlds` maps a family to an id with keywords, or to a factory."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import gymnasium
from gymnasium import spaces
from pydantic import Field, model_validator

from loomrl.errors import ConfigError
from loomrl.gym.adapters import toy_text
from loomrl.gym.adapters.space_text import plain, show
from loomrl.gym.adapters.world import TextWorld, WorldEnvironment, WorldSettings, WorldStep
from loomrl.gym.base import EnvironmentSettings
from loomrl.named import named
from loomrl.threshold import as_written
from loomrl.types import Task

_TOYS = "loomrl.gym.adapters.toy_text"


class GymnasiumWorld(TextWorld):
    """A Gymnasium environment as a family of tasks.

    `observe` is called with environment and observation, `oracle` with the environment.
    """

    id: str = ""
    """Gymnasium's id, such as `CartPole-v1`; one with a colon, `module:Name-v0`, imports the module first."""
    open: str = ""
    """Instead of an id: `package.module:function`, called with level and seed, gives the environment."""
    must_terminate: bool = False
    """Success needs the world's own end. Without it a time limit counts as a normal end, as in CartPole."""

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if bool(self.id) == bool(self.open):
            raise ValueError("either id or open is needed, not both")
        return self


WORLDS = {
    "frozen_lake": GymnasiumWorld(
        open=f"{_TOYS}:frozen_lake",
        oracle=f"{_TOYS}:oracle",
        prompt=toy_text.FROZEN,
        actions=("left", "down", "right", "up"),
        return_at_least=1,
        must_terminate=True,
    ),
    "cliff_walking": GymnasiumWorld(
        open=f"{_TOYS}:cliff_walking",
        oracle=f"{_TOYS}:oracle",
        prompt=toy_text.CLIFF,
        actions=("up", "right", "down", "left"),
        return_at_least=-99,
        must_terminate=True,
    ),
    "taxi": GymnasiumWorld(
        open=f"{_TOYS}:taxi",
        oracle=f"{_TOYS}:oracle",
        observe=f"{_TOYS}:show_taxi",
        prompt=toy_text.TAXI,
        actions=("south", "north", "east", "west", "pickup", "dropoff"),
        must_terminate=True,
    ),
}


class GymnasiumSettings(WorldSettings):
    """Settings of Gymnasium environments as text."""

    worlds: dict[str, GymnasiumWorld] = Field(WORLDS, min_length=1)
    """Family → world."""


class GymnasiumEnvironment(WorldEnvironment):
    """Worlds of Gymnasium, seen and acted in by text."""

    name = "Gymnasium"
    version = "1.1.0"
    families = tuple(WORLDS)
    settings_class: ClassVar[type[EnvironmentSettings]] = GymnasiumSettings
    settings: GymnasiumSettings
    world: GymnasiumWorld
    dependencies = ("gymnasium",)
    sources = (*WorldEnvironment.sources, "loomrl.gym.adapters.gymnasium", _TOYS)

    _env: gymnasium.Env[Any, Any]
    _observation: Any = None

    def worlds(self) -> Mapping[str, GymnasiumWorld]:
        """The worlds from the settings."""
        return self.settings.worlds

    def begin(self, task: Task) -> None:
        """Reset the world with the task's seed."""
        world = self.world
        made_with = (world.id, world.keywords(task.level)) if world.id else None
        self.open_world(made_with, lambda: self._make(world, task))
        self.required_return()
        self._observation, _ = self._env.reset(seed=task.seed)

    def see(self) -> str:
        """The text from `observe`, else the world's own rendering, else the observation's numbers."""
        if self.world.observe:
            return str(named(self.world.observe, what="observe")(self._env, self._observation))
        if self._env.render_mode == "ansi":
            return plain(str(self._env.render()))
        return show(self._env.observation_space, self._observation)

    def act(self, value: Any) -> WorldStep:
        """One step."""
        self._observation, reward, terminated, truncated, _ = self._env.step(value)
        timed_out = not terminated and self.world.must_terminate
        return WorldStep(as_written(reward), terminated or truncated, not timed_out, timed_out)

    def required_return(self) -> float:
        """The configured return, else the id's `reward_threshold` if success has no other condition."""
        spec = self._env.spec
        if self.world.return_at_least is not None or self.world.must_terminate:
            return super().required_return()
        if spec is None or spec.reward_threshold is None:
            raise ConfigError(
                f"{self.world.id or self.world.open} has no reward_threshold. "
                "Say what success is: return_at_least, must_terminate, or both."
            )
        return float(spec.reward_threshold)

    def action_space(self) -> spaces.Space[Any]:
        """The world's action space."""
        return self._env.action_space

    def numeric_space(self) -> spaces.Space[Any] | None:
        """The observation space if its numbers are shown."""
        shown = self.world.observe or self._env.render_mode == "ansi"
        return None if shown else self._env.observation_space

    def steps_allowed(self) -> int | None:
        """The world's own step limit."""
        return self._env.spec.max_episode_steps if self._env.spec else None

    def best(self) -> Any:
        """The oracle's action."""
        return self.world.ask_oracle(self._env)

    def _make(self, world: GymnasiumWorld, task: Task) -> gymnasium.Env[Any, Any]:
        if world.open:
            env: gymnasium.Env[Any, Any] = named(world.open, what=f"worlds.{task.family}.open")(task.level, task.seed)
            return env
        drawn = {"render_mode": "ansi"} if "ansi" in _render_modes(world.id) else {}
        return gymnasium.make(world.id, disable_env_checker=True, **{**drawn, **world.keywords(task.level)})


def _render_modes(id: str) -> Sequence[str]:
    """The render modes of a registered environment."""
    module, _, name = id.rpartition(":")
    spec = None if module else gymnasium.spec(name)
    if spec is None or spec.entry_point is None:
        return ()
    entry = spec.entry_point
    made_by = entry if callable(entry) else gymnasium.envs.registration.load_env_creator(entry)
    modes: Sequence[str] = getattr(made_by, "metadata", {}).get("render_modes", ())
    return modes
