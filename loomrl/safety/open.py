"""Rules as settings name them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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
from loomrl.safety.action import Bounds, Rate, States
from loomrl.safety.phrase import INSULTS, PHRASES
from loomrl.safety.rule import ActionRule, Deed, Found, Saying, TextRule, Wrong
from loomrl.safety.text import Blocked, Calls, Prompt, Repetition, Secrets
from loomrl.safety.toxicity import Toxicity


def open_text_rules(choices: Iterable[TextCheck]) -> dict[str, TextRule]:
    """The rules about answers, by name. A ConfigError for two of one name, and for code that is not there."""
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
            return Prompt(choice.words)
        case RepetitionRule():
            return Repetition(choice.times, choice.characters)
        case CallsRule():
            return Calls()
        case CustomRule():
            return _Finds(choice.entry_point, _made(choice))


def open_action_rule(choice: ActionCheck) -> ActionRule:
    """One rule about actions."""
    match choice:
        case BoundsRule():
            return Bounds(choice.low, choice.high)
        case RateRule():
            return Rate(choice.most)
        case CustomActionRule():
            return _Judges(choice.entry_point, _made(choice))
        case _:
            return States(choice.within)


@dataclass(frozen=True, slots=True)
class _Finds:
    """A rule of somebody's own."""

    entry_point: str
    function: Any

    def find(self, saying: Saying) -> Found | None:
        """Its answer; a TypeError if that is no finding."""
        found = self.function(saying)
        if found is None or isinstance(found, Found):
            return found
        raise TypeError(f"{self.entry_point} answered {type(found).__name__}: a Found or None is needed.")


@dataclass(frozen=True, slots=True)
class _Judges:
    """A rule of somebody's own."""

    entry_point: str
    function: Any

    def judge(self, deed: Deed) -> Wrong | None:
        """Its answer; a TypeError if that is no judgement."""
        judged = self.function(deed)
        if judged is None or isinstance(judged, Wrong):
            return judged
        if isinstance(judged, str):
            return Wrong(judged)
        raise TypeError(f"{self.entry_point} answered {type(judged).__name__}: a Wrong, a word, or None is needed.")


def _made(choice: CustomRule | CustomActionRule) -> Any:
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
