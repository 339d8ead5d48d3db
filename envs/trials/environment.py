"""Several trials at one task in one episode (RL²; Duan et al., 2016; Wang et al., 2016)."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import model_validator

from loomrl.canonical import content_hash
from loomrl.config.basic import PositiveInt
from loomrl.control.environment import TRIAL_RETURNS
from loomrl.errors import ConfigError, unknown
from loomrl.schema import Config

Part = Literal["all", "train", "held_out"]
HELD_OUT_IN = 4
"""One in so many tasks is held out."""
TRIES = 1000
"""Tasks drawn until one is of the part that is wanted."""


class Range(Config):
    """A number between two bounds, each as likely as any other."""

    low: float
    """The least."""
    high: float
    """The greatest."""
    count: PositiveInt | None = None
    """A list of so many such numbers; null is a single number."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low={self.low:g} is above high={self.high:g}: exchange them")
        return self

    def draw(self, generator: Generator) -> float | list[float]:
        """A number, or a list of them."""
        drawn = generator.uniform(self.low, self.high, self.count)
        return float(drawn) if self.count is None else [float(each) for each in drawn]


class TaskDistribution:
    """A distribution of tasks. `vary` says of each setting what it is drawn from: a list of choices, or a range."""

    def __init__(self, vary: Mapping[str, Any], part: Part = "all") -> None:
        if part not in get_args(Part):
            raise ConfigError("part: " + unknown("part", part, get_args(Part)))
        if not vary:
            raise ConfigError("vary={}: nothing tells one task from another. Name settings with choices or a range.")
        self._vary = {name: _source(name, source) for name, source in vary.items()}
        self._part = part

    def draw(self, generator: Generator) -> dict[str, Any]:
        """The settings of a task of this part."""
        for _ in range(TRIES):
            task = {name: _draw_value(source, generator) for name, source in self._vary.items()}
            if self._part in ("all", part_of(task)):
                return task
        raise ConfigError(
            f"part={self._part}: none of {TRIES} tasks that were drawn is of this part. Vary more settings, give more "
            "choices, or take part=all."
        )


def part_of(task: Mapping[str, Any]) -> Part:
    """The part that a task belongs to, by its hash: always the same, wherever it is drawn."""
    return "train" if int(content_hash(task)[:8], 16) % HELD_OUT_IN else "held_out"


def _source(name: str, source: Any) -> Sequence[Any] | Range:
    if isinstance(source, Mapping):
        return Range.parse(source, origin=f"vary.{name}")
    if not isinstance(source, list | tuple) or not source:
        raise ConfigError(f"vary.{name}={source!r}: give a list of choices, or a range {{low: 0, high: 1}}.")
    return source


def _draw_value(source: Sequence[Any] | Range, generator: Generator) -> Any:
    return source.draw(generator) if isinstance(source, Range) else source[int(generator.integers(len(source)))]


Seen = NDArray[np.float32]
Redraw = Literal["episode", "trial"]


class Trials(gymnasium.Env[Seen, Any]):
    """`trials` episodes of `environment`, a Gymnasium id, one after the other, as one episode. Its task, which is the
    settings that `vary`, is drawn at the beginning and stays, so that a policy with a memory can use in later trials
    what it found out in earlier ones.

    An observation is the environment's, flattened, then the action before (one of several, or numbers from -1 to 1),
    the reward before, and 1 where a trial begins. Both are zero at the episode's beginning. With `recall=False` they
    are left out.

    `redraw="trial"` is a control: another task in every trial, so that nothing can be learnt about it.
    """

    def __init__(  # noqa: PLR0913 - settings of an experiment
        self,
        environment: str,
        vary: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
        trials: int = 5,
        part: Part = "all",
        redraw: Redraw = "episode",
        recall: bool = True,
    ) -> None:
        if trials < 1:
            raise ConfigError(f"trials={trials}: an episode has at least one.")
        if redraw not in get_args(Redraw):
            raise ConfigError("redraw: " + unknown("time", redraw, get_args(Redraw)))
        self._id = environment
        self._settings = dict(settings or {})
        self._redraw = redraw
        self._count = trials
        self._recall = recall
        self._tasks = TaskDistribution(vary, part)
        if both := sorted({*vary} & {*self._settings}):
            raise ConfigError(f"vary and settings both name {', '.join(both)}: leave it out of one of them.")
        self._inner = self._make(self._tasks.draw(np.random.default_rng(0)))
        self._shown = self._inner.observation_space
        self.action_space = self._inner.action_space
        flat = [_flat(self._shown, "observations")]
        if recall:
            flat += [_scale(self.action_space), spaces.Box(-np.inf, np.inf, (1,)), spaces.Box(0.0, 1.0, (1,))]
        low, high = (np.concatenate([getattr(box, end) for box in flat], dtype=np.float32) for end in ("low", "high"))
        self.observation_space = spaces.Box(low, high)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin the first trial at a new task, which `info` tells."""
        super().reset(seed=seed)
        self._returns = np.zeros(self._count)
        self._trial = 0
        self._before = np.zeros(self._size_before, np.float32)
        task = self._draw()
        seen, _ = self._inner.reset(seed=self._next_seed())
        return self._observe(seen, begins=True), {"task": task}

    def step(self, action: Any) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Act in the present trial. Where it ends the next one begins at once; where the last one ends `info` has the
        returns of all.
        """
        seen, reward, terminated, truncated, _ = self._inner.step(action)
        self._returns[self._trial] += reward
        self._before = np.append(_number(self.action_space, action), np.float32(reward))
        ends = bool(terminated or truncated)
        self._trial += ends
        if self._trial == self._count:
            return self._observe(seen, begins=False), float(reward), True, False, {TRIAL_RETURNS: self._returns.copy()}
        if ends:
            seed = None
            if self._redraw == "trial":
                self._draw()
                seed = self._next_seed()
            seen, _ = self._inner.reset(seed=seed)
        return self._observe(seen, begins=ends), float(reward), False, False, {}

    def close(self) -> None:
        """Close the environment of the trials."""
        self._inner.close()

    @property
    def _size_before(self) -> int:
        return spaces.flatdim(self.action_space) + 1

    def _next_seed(self) -> int:
        return int(self.np_random.integers(2**31))

    def _draw(self) -> dict[str, Any]:
        """Another task, and an environment that has it."""
        task = self._tasks.draw(self.np_random)
        self._inner.close()
        self._inner = self._make(task)
        spaces_now = self._inner.observation_space, self._inner.action_space
        if spaces_now != (self._shown, self.action_space):
            raise ConfigError(
                f"vary: with {task} environment {self._id!r} has the spaces {spaces_now}, with other tasks "
                f"{(self._shown, self.action_space)}. Leave out what changes its spaces."
            )
        return task

    def _make(self, task: Mapping[str, Any]) -> Any:
        return gymnasium.make(self._id, disable_env_checker=True, **self._settings, **task)

    def _observe(self, seen: Any, *, begins: bool) -> Seen:
        shown = np.asarray(spaces.flatten(self._shown, seen), np.float32)
        return np.concatenate([shown, self._before, [np.float32(begins)]], dtype=np.float32) if self._recall else shown


def _flat(space: spaces.Space[Any], what: str) -> spaces.Box:
    flat = spaces.flatten_space(space)
    if not isinstance(flat, spaces.Box):
        raise ConfigError(f"{what} of {space} are not a fixed number of numbers, which trials need.")
    return flat


def _scale(space: spaces.Space[Any]) -> spaces.Box:
    """The flattened actions; bounded real-valued ones are scaled."""
    flat = _flat(space, "actions")
    if isinstance(space, spaces.Box):
        end = np.where(np.isfinite(flat.low) & np.isfinite(flat.high), 1.0, np.inf).astype(np.float32)
        return spaces.Box(-end, end)
    return flat


def _number(space: spaces.Space[Any], action: Any) -> Seen:
    flat = np.asarray(spaces.flatten(space, action), np.float32)
    if not isinstance(space, spaces.Box):
        return flat
    low, high = space.low.ravel(), space.high.ravel()
    is_bounded = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        return np.where(is_bounded, 2 * (np.clip(flat, low, high) - low) / (high - low) - 1, flat).astype(np.float32)
