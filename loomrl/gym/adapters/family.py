"""Base classes for families that wrap other libraries' tasks: settings map each name to its origin."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from loomrl.gym.base import LEVELS, BaseEnvironment
from loomrl.schema import Config


class Family(Config):
    """Another library's task source as a family of tasks."""

    oracle: str = ""
    """`package.module:function` that gives the best action."""
    guess_floor: float = Field(0.0, ge=0, le=1)
    """Success rate of guessing; curricula subtract it."""


class LevelledFamily(Family):
    """A family whose levels differ by keyword arguments."""

    levels: dict[int, dict[str, Any]] = Field({})
    """Level → keyword arguments added from this level on."""

    @model_validator(mode="after")
    def _has_known_levels(self) -> Self:
        if not all(1 <= level <= LEVELS for level in self.levels):
            raise ValueError(f"levels go from 1 to {LEVELS}")
        return self

    def at(self, level: int, first: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments at a level, on top of those for every level."""
        merged = dict(first)
        for since in sorted(self.levels):
            merged |= self.levels[since] if since <= level else {}
        return merged


def declare(environment: BaseEnvironment, families: Mapping[str, Family]) -> None:
    """Make the environment offer these families in place of those its class declares."""
    environment.families = tuple(families)  # type: ignore[misc]
    environment.guess_floor = {name: family.guess_floor for name, family in families.items()}  # type: ignore[misc]
