"""The common base of all adapters: families whose settings name their origin, libraries behind extras, and rewards."""

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Self

from pydantic import Field, model_validator

from loomrl.errors import ConfigError, LoomError, ScorerError
from loomrl.gym.base import LEVELS, BaseEnvironment
from loomrl.named import named
from loomrl.schema import Config
from loomrl.types import Reward


class SourceFamily(Config):
    """Another library's task source as a family of tasks."""

    oracle: str = ""
    """`package.module:function` that gives the best action."""
    guess_floor: float = Field(0.0, ge=0, le=1)
    """Success rate of guessing; curricula subtract it."""

    def ask_oracle(self, *arguments: Any) -> Any:
        """The oracle's answer to these arguments, if one is configured."""
        if not self.oracle:
            raise NotImplementedError("this family has no oracle: set `oracle`, `package.module:function`.")
        return named(self.oracle, what="oracle")(*arguments)


class LevelledFamily(SourceFamily):
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


def declare(environment: BaseEnvironment, families: Mapping[str, SourceFamily], *, needed: str = "") -> None:
    """Make the environment offer these families in place of those its class declares.

    `needed` is an example of the settings, for the error if there is no family.
    """
    if not families:
        raise ConfigError(f"{environment.name}: it has no families. Set {needed}.")
    environment.families = tuple(families)  # type: ignore[misc]
    environment.guess_floor = {name: family.guess_floor for name, family in families.items()}  # type: ignore[misc]


def import_extra(environment: str, module: str, extra: str) -> Any:
    """A library that an extra brings; a ConfigError says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{environment}: {module} cannot be imported ({error}). Install it with: pip install 'loomrl[{extra}]'."
        ) from None


def reward_of(success: float) -> Reward:
    """A reward that is success alone."""
    return Reward(success, {"correctness": success}, success)


def finite(value: float, error: type[LoomError], origin: str) -> float:
    """A number from another library as a float; an error of this type unless it is finite."""
    if not math.isfinite(value):
        raise error(f"{origin} is {value}; a finite number is needed.")
    return float(value)


async def ask_scorer(
    function: Callable[..., Any], *arguments: Any, what: str, timeout_s: float, **keywords: Any
) -> Any:
    """The answer of a user's function, off the event loop; a ScorerError if it raises or takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            if inspect.iscoroutinefunction(function):
                return await function(*arguments, **keywords)
            return await asyncio.to_thread(function, *arguments, **keywords)
    except TimeoutError:
        raise ScorerError(f"{what} took longer than {timeout_s:g} s.") from None
    except Exception as error:  # the boundary: a stranger's function
        raise ScorerError(f"{what}: {type(error).__name__}: {error}") from error
