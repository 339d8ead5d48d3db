"""Rules opened from their settings, and the shipped rules about actions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.config.monitor import (
    ActionCheck,
    BlockedRule,
    BoundsRule,
    CallsRule,
    CustomActionRule,
    CustomRule,
    PromptRule,
    RateRule,
    RepetitionRule,
    SecretsRule,
    TextCheck,
    ToxicityRule,
)
from loomrl.errors import ConfigError
from loomrl.named import named
from loomrl.safety.phrase import INSULTS, PHRASES
from loomrl.safety.rule import ActionRule, Deed, Found, Saying, TextRule, Wrong
from loomrl.safety.text import Blocked, Calls, PromptLeak, Repetition, Secrets, Toxicity

SLACK = 1e-6
"""Rounding of float32, relative to the bound, so that an action clipped to a bound is within it."""


class ActionBounds:
    """Components between `low` and `high`; the nearest allowed action is clipped."""

    def __init__(self, low: float | Sequence[float], high: float | Sequence[float]) -> None:
        self._low, self._high = np.asarray(low, np.float64), np.asarray(high, np.float64)

    def judge(self, deed: Deed) -> Wrong | None:
        """Judge one action."""
        action = deed.action
        if not np.isfinite(action).all():
            return Wrong("no number")
        if _within(action, self._low, self._high):
            return None
        return Wrong("out of bounds", _clip(action, self._low, self._high))


class Rate:
    """Components within `most` of the action before; the nearest allowed action goes as far as that."""

    def __init__(self, most: float | Sequence[float]) -> None:
        self._most = np.asarray(most, np.float64)

    def judge(self, deed: Deed) -> Wrong | None:
        """Judge one action."""
        action = deed.action
        before = deed.before
        if before is None or before.shape != action.shape or not np.isfinite(action).all():
            return None
        low, high = before - self._most, before + self._most
        if _within(action, low, high):
            return None
        return Wrong("changes too fast", _clip(action, low, high))


class States:
    """Forbids acting while all of these components of the observation are within their bounds."""

    def __init__(self, within: Mapping[int, tuple[float | None, float | None]]) -> None:
        self._within = dict(within)

    def judge(self, deed: Deed) -> Wrong | None:
        """Judge one action."""
        if deed.observation is None:
            return None
        seen = deed.observation
        for at, (low, high) in self._within.items():
            if not -len(seen) <= at < len(seen) or (low is not None and seen[at] < low):
                return None
            if high is not None and seen[at] > high:
                return None
        return Wrong("forbidden state")


def _clip(action: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """The nearest action between the bounds; integers stay integers."""
    if action.dtype.kind in "biu":
        low, high = np.ceil(low), np.floor(high)
    return np.clip(action, low, high).astype(action.dtype)


def _within(action: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> bool:
    slack = SLACK * np.maximum(1.0, np.maximum(np.abs(low), np.abs(high)))
    return bool(np.all(action >= low - slack) and np.all(action <= high + slack))


def open_text_rules(choices: Iterable[TextCheck]) -> dict[str, TextRule]:
    """The rules about answers by name. A ConfigError for a repeated name or missing code."""
    opened: dict[str, TextRule] = {}
    for choice in choices:
        _refuse_second(choice.label, opened)
        opened[choice.label] = open_text_rule(choice)
    return opened


def open_text_rule(choice: TextCheck) -> TextRule:
    """One rule about answers."""
    match choice:
        case SecretsRule():
            return Secrets(choice.kinds)
        case BlockedRule():
            shipped = PHRASES if choice.shipped else ()
            insults = INSULTS if choice.insults else ()
            return Blocked((*shipped, *insults, *choice.words))
        case ToxicityRule():
            return Toxicity(choice.at_least)
        case PromptRule():
            return PromptLeak(choice.words)
        case RepetitionRule():
            return Repetition(choice.times, choice.characters)
        case CallsRule():
            return Calls()
        case CustomRule():
            return _Finds(choice.entry_point, _open_custom(choice))


def open_action_rule(choice: ActionCheck) -> ActionRule:
    """One rule about actions."""
    match choice:
        case BoundsRule():
            return ActionBounds(choice.low, choice.high)
        case RateRule():
            return Rate(choice.most)
        case CustomActionRule():
            return _Judges(choice.entry_point, _open_custom(choice))
        case _:
            return States(choice.within)


@dataclass(frozen=True, slots=True)
class _Finds:
    """A custom rule."""

    entry_point: str
    function: Any

    def find(self, saying: Saying) -> Found | None:
        """The function's answer; a TypeError unless it is `Found` or None."""
        found = self.function(saying)
        if found is None or isinstance(found, Found):
            return found
        raise TypeError(f"{self.entry_point} answered {type(found).__name__}: a Found or None is needed.")


@dataclass(frozen=True, slots=True)
class _Judges:
    """A custom rule."""

    entry_point: str
    function: Any

    def judge(self, deed: Deed) -> Wrong | None:
        """The function's answer; a TypeError unless it is `Wrong`, a word or None."""
        judged = self.function(deed)
        if judged is None or isinstance(judged, Wrong):
            return judged
        if isinstance(judged, str):
            return Wrong(judged)
        raise TypeError(f"{self.entry_point} answered {type(judged).__name__}: a Wrong, a word, or None is needed.")


def _open_custom(choice: CustomRule | CustomActionRule) -> Any:
    found = named(choice.entry_point, what="entry_point")
    if not isinstance(found, type):
        if choice.settings:
            raise ConfigError(
                f"{choice.entry_point} is no class: settings={choice.settings} have no effect. Leave them out."
            )
        if not callable(found):
            raise ConfigError(f"{choice.entry_point} is a {type(found).__name__}: name a function, or a class of such.")
        return found
    try:
        made = found(**choice.settings)
    except TypeError as error:
        raise ConfigError(f"{choice.entry_point}, settings={choice.settings}: {error}.") from error
    if not callable(made):
        raise ConfigError(f"{choice.entry_point}: what it makes cannot be called. Give it a __call__.")
    return made


def _refuse_second(name: str, opened: Mapping[str, object]) -> None:
    if name in opened:
        raise ConfigError(f"two rules are called {name!r}: give one another name.")
