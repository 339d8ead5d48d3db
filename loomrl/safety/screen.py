"""The screen: outgoing text is checked in blocks, so that no part of a finding leaves before it is found.

The result depends on the text alone, not on the pieces in which it came: rules look at the text up to its 1st, 2nd,
4th, 8th and 16th character, so that an answer begins at once, then up to every 32nd, and once more when it is whole.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loomrl.safety.rule import Asked, Found, Saying, TextRule, Use
from loomrl.types import Trajectory

BLOCK = 32
MOST_HELD = 2000
"""Maximum characters held back for an undecided rule; earlier ones leave."""


@dataclass(frozen=True, slots=True)
class RuleHit:
    """A rule that was sure; from `start` on the text may not leave."""

    rule: str
    what: str
    start: int
    has_failed: bool = False
    """The rule itself failed; nothing was found."""


class Screen:
    """One outgoing text. Call `next()`, check it, and `settle`, until `next()` is None."""

    def __init__(self, asked: Asked) -> None:
        self.hit: RuleHit | None = None
        self.text = ""
        """All that came."""
        self.left = 0
        """Characters that may leave."""
        self._asked = asked
        self._looked = self._before = 0
        self._is_whole = False
        self._uses: tuple[Use, ...] = ()
        self._given = 0

    def add(self, text: str) -> None:
        """Take the next text."""
        self.text += text

    def end(self, uses: Sequence[Use] = ()) -> None:
        """End the text; only these calls follow."""
        self._is_whole = True
        self._uses = tuple(uses)

    def next(self) -> Saying | None:
        """The next part to look at; None if more text is needed, or a rule was sure, or all was looked at."""
        if self.hit is not None:
            return None
        self._before, block = self._looked, self._looked + min(BLOCK, max(1, self._looked))
        if block < len(self.text) or (block == len(self.text) and not self._is_whole):
            self._looked = block
            return Saying(text=self.text[:block], since=self.left, is_whole=False, asked=self._asked)
        if not self._is_whole or self._looked > len(self.text):
            return None
        self._looked = len(self.text) + 1
        return Saying(text=self.text, since=self.left, uses=self._uses, asked=self._asked)

    def again(self) -> None:
        """Forget the hit, and check its part again."""
        self.hit = None
        self._looked = self._before

    def settle(self, saying: Saying, found: Mapping[str, Found]) -> None:
        """Take the findings of the rules, by their names."""
        end = len(saying.text)
        places = [max(self.left, one.start) for one in found.values() if one.is_sure or not saying.is_whole]
        sure = next(((name, one) for name, one in found.items() if one.is_sure), None)
        if sure is not None:
            self.hit = RuleHit(sure[0], sure[1].what, min(places), has_failed=sure[1].has_failed)
            return
        self.left = max(min([end, *places]), self.left, end - MOST_HELD)

    def take(self) -> str:
        """The text that may leave now and was not taken yet."""
        text = self.text[self._given : self.left]
        self._given = self.left
        return text


def look(rules: Mapping[str, TextRule], saying: Saying) -> dict[str, Found]:
    """Findings of the rules in the text and in the words of calls; one in a call counts as at the text's end."""
    found = {name: one for name, rule in rules.items() if (one := rule.find(saying)) is not None}
    for words in _words(saying.uses):
        inner = replace(saying, text=words, since=0, uses=())
        for name, rule in rules.items():
            if name not in found and (one := rule.find(inner)) is not None:
                found[name] = Found(len(saying.text), one.what)
    return found


def screen_text(rules: Mapping[str, TextRule], text: str, uses: Sequence[Use] = (), *, asked: Asked) -> Screen:
    """A whole answer, looked at as if it had been streamed."""
    screen = Screen(asked)
    screen.add(text)
    screen.end(uses)
    while (saying := screen.next()) is not None:
        screen.settle(saying, look(rules, saying))
    return screen


def _words(uses: Iterable[Use]) -> Iterable[str]:
    """The arguments of each call as text: the strings in them, without JSON's escapes."""
    for use in uses:
        try:
            value = json.loads(use.arguments)
        except (ValueError, RecursionError):
            yield use.arguments
            continue
        yield "\n".join(_strings(value))


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield name
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)


def find_breaks(rules: Mapping[str, TextRule], attempt: Trajectory) -> Sequence[str]:
    """The rule that each turn breaks, or an empty text. Tool calls are part of the text, as they were sampled."""
    system = ""
    found = []
    for turn in attempt.turns:
        system = "\n".join([system, *(each.content for each in turn.observation if each.role == "system")]).strip()
        hit = screen_text(rules, turn.action, asked=Asked(system=system)).hit
        found.append("" if hit is None else hit.rule)
    return found
