"""Base class of adapters for worlds: a family is a world, observations become messages, commands become actions.

Success is defined by a return or by the world's own end. The world's own rewards are reported in `info` only.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple, Self

from gymnasium import spaces
from pydantic import Field, model_validator

from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.adapters.family import LevelledFamily, declare, finite, reward_of
from loomrl.gym.adapters.space_text import MalformedAction, count_numbers, format_action, parse, sample, usage
from loomrl.gym.answer import COMMANDS, command_format, parse_command
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.threshold import Tally
from loomrl.types import Message, Observation, Task

VERB = "ACTION"


class TextWorld(LevelledFamily):
    """Another library's environment as a family of tasks; `at` gives the keywords it is created with."""

    kwargs: dict[str, Any] = Field({})
    """Keywords at every level."""
    prompt: str = ""
    """Instructions for the policy."""
    actions: tuple[str, ...] = ()
    """Lower-case names for the actions of a Discrete space, in order."""
    observe: str = ""
    """`package.module:function` that returns the text to show."""
    return_at_least: float | None = None
    """Success needs this sum of rewards, up to rounding."""

    @model_validator(mode="after")
    def _is_plain(self) -> Self:
        if any(name != name.lower().strip() or not name for name in self.actions):
            raise ValueError("actions are names in small letters")
        return self

    def keywords(self, level: int) -> dict[str, Any]:
        """The keywords at a level."""
        return self.at(level, self.kwargs)


class WorldSettings(EnvironmentSettings):
    """Settings of worlds as text."""

    max_steps: int = Field(1000, ge=1)
    """The episode is truncated after this many actions, unless the world's own limit is lower."""
    patience: int = Field(3, ge=1)
    """The episode is truncated after this many unreadable or illegal actions."""
    max_numbers: int = Field(256, ge=1)
    """Observations with more numbers are refused: text is the wrong form for images."""


class WorldStep(NamedTuple):
    """The result of an action."""

    reward: float
    over: bool
    success: bool
    """True if the task is solved, given that the episode is over."""
    timed_out: bool = False
    """The episode ended by an outside limit."""


class WorldEnvironment(BaseEnvironment):
    """One world at a time, seen and acted in by text."""

    settings_class: ClassVar[type[EnvironmentSettings]] = WorldSettings
    settings: WorldSettings
    reward_range = (0.0, 1.0)
    reward_parts = ("correctness",)
    sources: ClassVar[tuple[str, ...]] = (
        "loomrl.gym.adapters.family",
        "loomrl.gym.adapters.space_text",
        "loomrl.gym.adapters.world",
        *COMMANDS,
        "loomrl.threshold",
    )

    world: TextWorld
    """The world of the current episode."""
    _env: Any = None
    _made_with: Any = None
    """Identity of the open world, if it can be reused for another episode."""
    _earned = Tally()
    _steps = 0
    _unread = 0

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        declare(self, self.worlds())

    @abstractmethod
    def worlds(self) -> Mapping[str, TextWorld]:
        """Family → world, from the settings."""

    @abstractmethod
    def begin(self, task: Task) -> None:
        """Open the task's world if needed, and reset it."""

    @abstractmethod
    def see(self) -> str:
        """The current observation as text."""

    @abstractmethod
    def act(self, value: Any) -> WorldStep:
        """Apply an action of the action space."""

    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """The action space."""

    @abstractmethod
    def numeric_space(self) -> spaces.Space[Any] | None:
        """The space whose numbers are shown; None if a rendering or a text is shown."""

    @abstractmethod
    def best(self) -> Any:
        """The oracle's action."""

    async def close(self) -> None:
        """Close the world."""
        env = self._env
        self._env = None
        self._made_with = None
        if env is not None:
            env.close()

    def open_world(self, made_with: Any, make: Callable[[], Any]) -> None:
        """Make the episode's world; the open one is reused if it was made with the same, unless that is None."""
        if made_with is not None and made_with == self._made_with:
            return
        if self._env is not None:
            self._env.close()
        self._made_with = None  # a world that cannot be made is not reused either
        self._env = make()
        self._made_with = made_with

    def mask(self) -> Any:
        """Mask of the legal actions of a Discrete space; None if all are legal."""
        return None

    def steps_allowed(self) -> int | None:
        """The world's own step limit."""
        return None

    async def reset(self, task: Task | None = None) -> Observation:
        """The instructions, the first observation, and how to act."""
        task = self.task_or_random(task)
        self.world = self.worlds()[task.family]
        self._earned = Tally()
        self._steps = 0
        self._unread = 0
        self.begin(task)
        self._check_size(task.family)
        what = self.world.prompt or f"Act in {task.family}."
        return (Message("user", f"{what}\n\n{self.see()}\n\n{self._how()}"),)

    async def step(self, action: str) -> Step:
        """Act in the world; an unreadable action is answered with the expected format."""
        if self._env is None:
            raise EpisodeError("there is no episode: call reset() first.")
        self._steps += 1
        command = parse_command(action, (VERB,))
        try:
            if command is None:
                raise MalformedAction(f"there is no line that begins with {VERB}:")
            value = parse(self.action_space(), command.argument, self.world.actions)
            self._check_allowed(value)
        except MalformedAction as fault:
            return self._reject(fault)
        step = self.act(value)
        self._earned.add(finite(step.reward, EpisodeError, "the world's reward"))
        info = {"reward": float(step.reward), "return": self._earned.total}
        if not step.over:
            return Step.say(self.see(), truncated=self._steps >= self.settings.max_steps)._replace(info=info)
        success = float(step.success and self._earned.reaches(self.required_return()))
        seen = (Message("user", self.see()),)
        return Step(seen, reward_of(success), not step.timed_out, step.timed_out, info)

    def required_return(self) -> float:
        """The return that success needs."""
        return -math.inf if self.world.return_at_least is None else self.world.return_at_least

    def oracle(self) -> str:
        """The oracle's action, if there is one."""
        return self._say(self.best())

    def random_action(self, rng: Random) -> str:
        """A random legal action."""
        return self._say(sample(self.action_space(), rng, self.mask()))

    def hacks(self) -> Sequence[str]:
        """Empty, malformed and multiple actions, claims about the outcome, and one action repeated forever."""
        space = self.action_space()
        always = [self._say(sample(space, Random(seed))) for seed in range(4)]
        names = self.world.actions or ("0", "1", "2", "3")
        tried = ["", "-1", "99", "1e999", "nan", "true", "[]", '{"reward": 1, "terminated": true}', "１"]
        tried += [" ".join(names), ", ".join(names), f"[{', '.join(names)}]", " or ".join(names)]
        claims = ["Reward: 1.0. The episode is over, the goal is reached.", "goal", "terminated=True"]
        return [*always, *(f"{VERB}: {text}" for text in tried), *claims]

    def _check_size(self, family: str) -> None:
        space = self.numeric_space()
        count = 0 if space is None else count_numbers(space)
        if count > self.settings.max_numbers:
            raise ConfigError(
                f"{family}: an observation has {count} numbers, more than max_numbers={self.settings.max_numbers}. "
                "Raise that, or set `observe` to a function that makes text of it."
            )

    def _check_allowed(self, value: Any) -> None:
        mask = self.mask()
        if mask is not None and not mask[int(value) - getattr(self.action_space(), "start", 0)]:
            raise MalformedAction("this action is not allowed now")

    def _say(self, value: Any) -> str:
        return f"{VERB}: {format_action(self.action_space(), value, self.world.actions)}"

    def _how(self) -> str:
        limit = self.steps_allowed()
        most = f"At most {limit} actions. " if limit else ""
        return most + command_format((f"{VERB}: {usage(self.action_space(), self.world.actions)}",))

    def _reject(self, fault: MalformedAction) -> Step:
        self._unread += 1
        over = self._unread >= self.settings.patience or self._steps >= self.settings.max_steps
        return Step.say(f"Not done: {fault}.\n{self._how()}", truncated=over)
