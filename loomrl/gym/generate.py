"""Shared by task generators: randomness equal in every process, sizes that grow with the level, lists as text."""

from collections.abc import Sequence
from random import Random
from typing import Self, TypeVar

from loomrl.gym.base import LEVELS
from loomrl.schema import Config
from loomrl.types import Task

T = TypeVar("T")


def rng_of(task: Task) -> Random:
    """Randomness that follows from family, level and seed alone."""
    # a text seeds alike in every process; hash() of one would not
    return Random(f"{task.family}:{task.level}:{task.seed}")


def between(level: int, first: int, last: int) -> int:
    """A size that grows from `first` at level 1 to `last` at level 10."""
    return first + (last - first) * (level - 1) // (LEVELS - 1)


def tier(level: int, tiers: Sequence[T]) -> T:
    """The tier of a level, where the ten levels are spread over some tiers."""
    return tiers[(level - 1) * len(tiers) // LEVELS]


def words(text: str) -> tuple[str, ...]:
    """The words of a list that is written as a text."""
    return tuple(text.split())


def listed(items: Sequence[str], last: str = "and") -> str:
    """`red, blue and green`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}"


class TemplateParameters(Config):
    """The parameters that a family takes from a user's task template."""

    template: str = ""
    """The template's own name, which every task carries."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The parameters that a template may set."""
        return tuple(name for name in cls.model_fields if name != "template")

    @classmethod
    def of(cls, task: Task) -> Self:
        """The parameters of this task; unfit ones are a ConfigError."""
        return cls.parse(dict(task.parameters), origin=f"parameters of a task template of {task.environment}")
