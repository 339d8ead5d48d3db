"""Tasks drawn from a distribution: settings of an environment, some of which are held out of training."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, get_args

from numpy.random import Generator
from pydantic import model_validator

from loomrl.canonical import content_hash
from loomrl.config.basic import PositiveInt
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


class Tasks:
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
            task = {name: _drawn(source, generator) for name, source in self._vary.items()}
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


def _drawn(source: Sequence[Any] | Range, generator: Generator) -> Any:
    return source.draw(generator) if isinstance(source, Range) else source[int(generator.integers(len(source)))]
