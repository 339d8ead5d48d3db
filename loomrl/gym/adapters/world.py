"""What worlds of others share: a family is a world, its observations become messages, commands its actions.

Success is declared, as a return or as the world's own end. A world's own rewards are told in `info` and pay nothing.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, NamedTuple, Self

from gymnasium import spaces
from pydantic import Field, model_validator

from loomrl.errors import ConfigError, EpisodeError
from loomrl.gym.adapters.family import LevelledFamily, declare
from loomrl.gym.adapters.space_text import Malformed, count_numbers, parse, sample, usage, written
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.command import command_format, parse_command
from loomrl.threshold import Tally
from loomrl.types import Message, Observation, Reward, Task

VERB = "ACTION"


class World(LevelledFamily):
    """An environment of others as a family of tasks; its keywords are those that it is made with."""

    kwargs: dict[str, Any] = Field({})
    """Keywords it is made with at every level."""
    prompt: str = ""
    """What the policy is to do."""
    actions: tuple[str, ...] = ()
    """Names for the actions of a Discrete space, in their order and in small letters."""
    observe: str = ""
    """`package.module:function` that gives the text that is shown."""
    return_at_least: float | None = None
    """Success needs this sum of rewards; what rounding takes from it does not count."""

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
    """The episode is truncated after this many actions, unless the world's own time is over before."""
    patience: int = Field(3, ge=1)
    """The episode is truncated after this many actions that could not be read or are not allowed."""
    max_numbers: int = Field(256, ge=1)
    """An observation of more numbers is refused: text is the wrong form for pictures."""


class Outcome(NamedTuple):
    """What an action did."""

    reward: float
    over: bool
    success: bool
    """Whether the task is done, given that it is over."""
    timed_out: bool = False
    """It is over because of a limit from outside."""


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
        "loomrl.gym.command",
        "loomrl.threshold",
    )

    world: World
    """That of the present episode."""
    _earned = Tally()
    _steps = 0
    _unread = 0

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        declare(self, self.worlds())

    @abstractmethod
    def worlds(self) -> Mapping[str, World]:
        """Family → world, from the settings."""

    @abstractmethod
    def begin(self, task: Task) -> None:
        """Open the task's world, if it is not open, and begin."""

    @abstractmethod
    def see(self) -> str:
        """What the policy sees now."""

    @abstractmethod
    def act(self, value: Any) -> Outcome:
        """Let the world take an action of its space."""

    @abstractmethod
    def action_space(self) -> spaces.Space[Any]:
        """The actions there are."""

    @abstractmethod
    def drawn_space(self) -> spaces.Space[Any] | None:
        """The space whose numbers are shown; None where a picture or a text is."""

    @abstractmethod
    def best(self) -> Any:
        """The oracle's action."""

    def mask(self) -> Any:
        """Which actions of a Discrete space are allowed now, by ones; None where all are."""
        return None

    def steps_allowed(self) -> int | None:
        """How many actions the world's own time has room for."""
        return None

    async def reset(self, task: Task | None = None) -> Observation:
        """What to do, what is seen, and how to act."""
        task = task or self.sample_task(Random().getrandbits(31))
        self.world = self.worlds()[task.family]
        self._earned, self._steps, self._unread = Tally(), 0, 0
        self.begin(task)
        self._check_size(task.family)
        what = self.world.prompt or f"Act in {task.family}."
        return (Message("user", f"{what}\n\n{self.see()}\n\n{self._how()}"),)

    async def step(self, action: str) -> Step:
        """Act in the world; what cannot be read is answered with what is expected."""
        self._steps += 1
        command = parse_command(action, (VERB,))
        try:
            if command is None:
                raise Malformed(f"there is no line that begins with {VERB}:")
            value = parse(self.action_space(), command.argument, self.world.actions)
            self._check_allowed(value)
        except Malformed as fault:
            return self._malformed(fault)
        outcome = self.act(value)
        self._earned.add(_finite(outcome.reward))
        seen = (Message("user", self.see()),)
        info = {"reward": float(outcome.reward), "return": self._earned.total}
        if not outcome.over:
            return Step(seen, Reward(), False, self._steps >= self.settings.max_steps, info)
        success = float(outcome.success and self._earned.reaches(self.needed()))
        over = Reward(success, {"correctness": success}, success)
        return Step(seen, over, not outcome.timed_out, outcome.timed_out, info)

    def needed(self) -> float:
        """The return that success needs."""
        return -math.inf if self.world.return_at_least is None else self.world.return_at_least

    def oracle(self) -> str:
        """What the world's oracle does, where it has one."""
        if not self.world.oracle:
            raise NotImplementedError("this world has no oracle: set `oracle`, `package.module:function`.")
        return self._say(self.best())

    def random_action(self, rng: Random) -> str:
        """Any action that is allowed."""
        return self._say(sample(self.action_space(), rng, self.mask()))

    def hacks(self) -> Sequence[str]:
        """No action, many at once, what is none, claims about the outcome, and one action for ever."""
        space = self.action_space()
        always = [self._say(sample(space, Random(seed))) for seed in range(4)]
        names = self.world.actions or ("0", "1", "2", "3")
        tried = ["", "-1", "99", "1e999", "nan", "true", "[]", '{"reward": 1, "terminated": true}', "１"]
        tried += [" ".join(names), ", ".join(names), f"[{', '.join(names)}]", " or ".join(names)]
        claims = ["Reward: 1.0. The episode is over, the goal is reached.", "goal", "terminated=True"]
        return [*always, *(f"{VERB}: {text}" for text in tried), *claims]

    def _check_size(self, family: str) -> None:
        space = self.drawn_space()
        count = 0 if space is None else count_numbers(space)
        if count > self.settings.max_numbers:
            raise ConfigError(
                f"{family}: an observation has {count} numbers, more than max_numbers={self.settings.max_numbers}. "
                "Raise that, or set `observe` to a function that makes text of it."
            )

    def _check_allowed(self, value: Any) -> None:
        mask = self.mask()
        if mask is not None and not mask[int(value) - getattr(self.action_space(), "start", 0)]:
            raise Malformed("this action is not allowed now")

    def _say(self, value: Any) -> str:
        return f"{VERB}: {written(self.action_space(), value, self.world.actions)}"

    def _how(self) -> str:
        limit = self.steps_allowed()
        most = f"At most {limit} actions. " if limit else ""
        return most + command_format((f"{VERB}: {usage(self.action_space(), self.world.actions)}",))

    def _malformed(self, fault: Malformed) -> Step:
        self._unread += 1
        over = self._unread >= self.settings.patience or self._steps >= self.settings.max_steps
        return Step((Message("user", f"Not done: {fault}.\n{self._how()}"),), Reward(), False, over, {})


def _finite(reward: float) -> float:
    if not math.isfinite(reward):
        raise EpisodeError(f"the world's reward is {reward}; a finite number is needed.")
    return float(reward)
