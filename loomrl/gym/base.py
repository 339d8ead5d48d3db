"""The contract of an environment: a task in, messages out, actions in, reward parts out.

An author writes `reset`, `step` and `oracle`, declares the class attributes, and runs `loomrl envs check`.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import BeforeValidator, Field

from loomrl.errors import ConfigError, EpisodeError, did_you_mean, unknown
from loomrl.gym.opponent import LeagueSettings, Rival
from loomrl.schema import Config
from loomrl.types import Form, Message, Observation, Reward, Task, Trajectory

LEVELS = 10
NO_LEVELS = (0,)
"""The levels of a family whose tasks have none."""
LEVELS_OF: Mapping[str, range] = {
    "beginner": range(1, 4),
    "intermediate": range(4, 7),
    "advanced": range(7, 9),
    "expert": range(9, 11),
}


def levels_of(difficulty: str | float) -> range:
    """The levels of a difficulty: a word, a level from 1 to 10, or a number with a point from 0.0 to 1.0."""
    if isinstance(difficulty, str) and difficulty in LEVELS_OF:
        return LEVELS_OF[difficulty]
    level = 0
    if isinstance(difficulty, int) and not isinstance(difficulty, bool):
        level = difficulty
    elif isinstance(difficulty, float) and 0 <= difficulty <= 1:
        level = 1 + round(difficulty * (LEVELS - 1))
    if not 1 <= level <= LEVELS:
        hint = did_you_mean(difficulty, LEVELS_OF) if isinstance(difficulty, str) else ""
        raise ValueError(
            f"a word ({', '.join(LEVELS_OF)}), a level from 1 to {LEVELS}, or a number with a point from 0.0 to 1.0 is "
            f"needed.{hint}"
        )
    return range(level, level + 1)


def _check_difficulty(difficulty: Any) -> Any:
    levels_of(difficulty)
    return difficulty


Difficulty = Annotated[str | int | float, BeforeValidator(_check_difficulty)]


class EnvironmentSettings(Config):
    """Settings that every environment has. Subclass it for more; unknown keys are refused."""

    difficulty: Difficulty = "beginner"
    """Levels that `reset()` draws from when it is given no task."""
    max_steps: int = Field(50, ge=1)
    """The episode is truncated after this many actions."""


Player = Callable[..., Awaitable[Trajectory]]
"""Plays an attempt: called with a policy, the attempt, and `limits` (`loomrl.gym.episode.Attempt` and `Limits`)."""
INFO = "info"
"""Key of the last step's `info` in a trajectory's `extra`."""
CORRECT = "correct"
"""Key of the second check's success in a trajectory's `extra`."""


NOTHING = Reward()


class Step(NamedTuple):
    """Gymnasium's five-tuple. `terminated` is the task's own end, `truncated` a limit from outside; never both.

    The `info` of the last step says why the episode earned what it did, for people: the right answer, a verdict, a
    reason. It is stored with the attempt, as far as it is JSON and short.
    """

    observation: Observation
    reward: Reward
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @classmethod
    def say(cls, *said: Message | str, reward: Reward = NOTHING, truncated: bool = False) -> Self:
        """The episode goes on with these messages; a text is one from the user."""
        messages = tuple(Message("user", each) if isinstance(each, str) else each for each in said)
        return cls(messages, reward, False, truncated, {})

    @classmethod
    def end(cls, reward: Reward, **info: Any) -> Self:
        """The task's own end."""
        return cls((), reward, True, False, info)


class BaseEnvironment(ABC):
    """One episode at a time; any number of episodes one after the other.

    An exception out of `reset` or `step` ends the episode as FAILED, a masked sample: raise freely on trouble of your
    own, but answer a policy's malformed action with a message and a reward, never with an exception.
    """

    name: ClassVar[str] = ""
    """Filled by registration where it is left empty."""
    version: ClassVar[str] = "0.1.0"
    families: ClassVar[tuple[str, ...]] = ("default",)
    missing: Mapping[str, str] = {}
    """Families that cannot be played on this machine, with the reason: an object has them here, not in `families`."""
    template_families: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Further families, whose tasks need parameters from a task template: the names of these."""
    settings_class: ClassVar[type[EnvironmentSettings]] = EnvironmentSettings
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.2)
    """No episode's total may leave it."""
    reward_parts: ClassVar[tuple[str, ...]] = ()
    """The names that the parts of its rewards have, for WEAVE and the dashboards; empty leaves them open."""
    ceilings: ClassVar[Mapping[str, float]] = {"random": 0.1, "constant": 0.1, "hacking": 0.1}
    """Mean success that policies without skill may reach at most; the checker enforces it."""
    guess_floor: ClassVar[Mapping[str, float]] = {}
    """Per family, the success of guessing; curricula subtract it."""
    sandboxed: ClassVar[bool] = False
    """True if it runs the policy's text in a sandbox (`loomrl.gym.sandbox`), which the checker then attacks."""
    starts_process: ClassVar[bool] = False
    """True if every episode starts a process of its own other than a sandbox, so that it takes about a second."""
    dependencies: ClassVar[tuple[str, ...]] = ()
    """Distributions whose installed versions are part of the snapshot."""
    sources: ClassVar[tuple[str, ...]] = ()
    """Further modules or packages whose source is part of the snapshot; the class's own module always is."""

    player: Player | None = None
    """Plays whole attempts, where a program of the environment asks the policy when it likes: `reset` and `step` are
    then never called. None for environments that are played turn by turn.
    """

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        name = type(self).__name__
        given = settings or {}
        own = (
            given.keys() - EnvironmentSettings.model_fields.keys() if self.settings_class is EnvironmentSettings else ()
        )
        if own:
            first = min(own)
            value = given[first]
            raise ConfigError(
                f"{name} settings: {first}={value!r:.80}: {name} declares no settings of its own. Declare them as in "
                f"docs/environments.md: `class {name}Settings(EnvironmentSettings): {first}: {type(value).__name__}`, "
                f"and `settings_class = {name}Settings` in {name}."
            )
        self.settings = self.settings_class.parse(given, origin=f"{name} settings")

    def task(self, family: str, level: int, seed: int) -> Task:
        """The task of these three; equal arguments give equal tasks in every process."""
        if family in self.missing:
            raise ConfigError(f"family {type(self).__name__}={family!r}: {self.missing[family]}")
        known = (*self.families, *self.template_families)
        if family not in known:
            raise ConfigError("family " + unknown(type(self).__name__, family, known))
        if tuple(self.levels(family)) == NO_LEVELS:
            level = 0
        elif not 1 <= level <= LEVELS:
            raise ConfigError(f"level={level}: levels go from 1 to {LEVELS}.")
        return Task(self.name or type(self).__name__, self.version, family, level, seed)

    def levels(self, family: str) -> Sequence[int]:
        """The levels that the family's tasks have; `(0,)` if they have none, whichever is asked for."""
        return range(1, LEVELS + 1)

    def count(self, family: str, level: int, *, held_out: bool) -> int | None:
        """The number of tasks where they are rows of a list, of which seed n is row n modulo this; None where tasks are
        generated from their seeds.
        """
        return None

    def task_or_random(self, task: Task | None) -> Task:
        """The task, or a random one where none is given."""
        return task or self.sample_task(random.getrandbits(31))

    def pay(self, success: float, **parts: float) -> Reward:
        """A reward with all of `reward_parts`, those that are not named 0; the total is their sum."""
        paid = dict.fromkeys(self.reward_parts, 0.0) | parts
        return Reward(sum(paid.values()), paid, success)

    def sample_task(self, seed: int) -> Task:
        """A task at the difficulty of the settings, any family."""
        rng = random.Random(seed)
        return self.task(rng.choice(self.families), rng.choice(levels_of(self.settings.difficulty)), seed)

    @property
    def league(self) -> LeagueSettings | None:
        """The league that draws opponents, if the settings have one; None without a second seat."""
        return None

    def has_opponent(self, family: str) -> bool:
        """True if tasks of this family have a second seat."""
        return False

    def seat(self, opponent: Rival) -> None:
        """Give the second seat to this policy, before `reset`."""
        raise EpisodeError(f"{type(self).__name__} has no second seat: no opponent can play against the policy.")

    async def enter(self, task: Task) -> None:
        """Wait until an attempt at this task can begin, where not all can at once. Most wait for nothing.

        Called before `reset` by a pool of many attempts. No clock of the episode runs meanwhile: bound the waiting.
        """
        return

    @abstractmethod
    async def reset(self, task: Task | None = None) -> Observation:
        """Begin an attempt; None samples a task. The same task begins the same way, always."""

    @abstractmethod
    async def step(self, action: str) -> Step:
        """Act once. Arbitrary text must get an answer in bounded time."""

    def form(self) -> Form | None:
        """The form that the next action must have: a policy that samples tokens then writes no other. None for most."""
        return None

    def oracle(self) -> str:
        """The next action of a perfect solver, from the present state."""
        raise NotImplementedError(f"{type(self).__name__} has no oracle: `loomrl envs check` needs one.")

    def random_action(self, rng: random.Random) -> str:
        """A well-formed action without skill."""
        return str(rng.randint(-100, 100))

    def hacks(self) -> Sequence[str]:
        """For the present state, one action per known way to try for reward without solving the task."""
        return ()

    def correct(self) -> float | None:
        """The success that an independent exact check gives for the episode that has just ended."""
        return None

    def memory(self) -> Mapping[str, Any] | None:
        """The memory that this attempt leaves to later ones, as JSON: asked for once, at its end. None for most.

        A later task of the same family may then carry it as `parameters["memory"]`; one without must do as well. A
        family leaves one at every end, or never.
        """
        return None

    async def close(self) -> None:
        """Release all resources, also after a failure; a later `reset` opens them again."""
        return
