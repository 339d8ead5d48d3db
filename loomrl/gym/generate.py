"""What generators of tasks share: randomness that is the same in every process, and sizes that grow with the level."""

from random import Random

from loomrl.gym.base import LEVELS
from loomrl.types import Task


def rng_of(task: Task) -> Random:
    """Randomness that follows from family, level and seed alone."""
    return Random(f"{task.family}:{task.level}:{task.seed}")


def between(level: int, first: int, last: int) -> int:
    """A size that grows from `first` at level 1 to `last` at level 10."""
    return first + (last - first) * (level - 1) // (LEVELS - 1)
