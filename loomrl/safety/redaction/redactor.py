"""The redactor: layers that find, and placeholders in the place of what they found."""

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from typing_extensions import override

from loomrl.safety.pattern import PATTERNS, SecretPattern, any_of
from loomrl.safety.placeholder import MARK, Counting, Names, mark
from loomrl.safety.redaction.address import find_ips, find_macs, find_odd_emails, has_ips, has_macs, has_odd_emails
from loomrl.safety.redaction.code import CALLS, COMMANDS, SETTINGS
from loomrl.safety.redaction.entropy import find_keys, may_have_keys
from loomrl.safety.redaction.finding import ContextRule, Detection, Echoes, ScannedText, merge_findings, values_in
from loomrl.safety.redaction.number import find_cards, find_ibans, find_identities
from loomrl.safety.redaction.phone import find_phones
from loomrl.safety.redaction.plain import PlainText, may_be_disguised
from loomrl.safety.redaction.prose import LOGINS, MENTIONS, find_said
from loomrl.safety.redaction.spoken import find_spoken

ROUNDS = 8
"""A replacement may reveal a further finding, hardly ever more than one."""
_PLAIN = re.compile(
    r"[A-Za-z0-9_]{0,12}|[A-Za-z]{1,8}-[0-9]{1,6}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
"""Names of tools and roles, too short for anything; what is numbered; random ids."""
NEAR = 400
"""Characters before and behind a place that can decide about it."""
NEAR_ESCAPE = 120
"""Characters around an escape that are searched again; source code is full of escapes."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text with a placeholder in the place of each finding, and the kinds that were found."""

    text: str
    kinds: tuple[str, ...] = ()


class Redactor(ABC):
    """Removes what must not be stored. Redacting twice changes nothing more."""

    @abstractmethod
    def find(self, text: str) -> Sequence[Detection]:
        """The parts that must go, by place, without overlaps."""

    def redact(self, text: str, names: Names | None = None) -> Redacted:
        """The text without them; `names` gives the placeholders, otherwise they are counted in this text alone."""
        return replace_findings(text, self.find(text), names)


class PatternRedactor(Redactor):
    """Keys, passwords, e-mail addresses, numbers of phones, cards, accounts and people, IP addresses."""

    @override
    def find(self, text: str) -> Sequence[Detection]:
        if _PLAIN.fullmatch(text) or not (found := _find_once(text)):
            return []
        for _ in range(ROUNDS - 1):
            tried = _Trial(text, found)
            new = tried.found()
            if not new:
                break
            found = merge_findings([*found, *map(tried.back, new)])
        return Echoes(values_in(text, found)).beside(text, found)


class NoRedactor(Redactor):
    """Leaves everything as it is."""

    @override
    def find(self, text: str) -> Sequence[Detection]:
        return ()


def replace_findings(text: str, findings: Sequence[Detection], names: Names | None = None) -> Redacted:
    """The text with placeholders in the places of findings."""
    if not findings:
        return Redacted(text)
    if names is None:
        names = Counting()
        names.see(text)
    parts = []
    at = 0
    for one in findings:
        parts += [text[at : one.start], names.name(one.kind, text[one.start : one.end])]
        at = one.end
    return Redacted("".join([*parts, text[at:]]), tuple(dict.fromkeys(one.kind for one in findings)))


class _Trial:
    """A text with placeholders for its findings, and the way back to the original."""

    def __init__(self, text: str, findings: Sequence[Detection]) -> None:
        self._findings = findings
        self._spans: list[tuple[int, int]] = []
        parts = []
        at = 0
        size = 0
        for one in findings:
            some = mark(one.kind, 1)
            parts += [text[at : one.start], some]
            size += one.start - at + len(some)
            at = one.end
            self._spans.append((size - len(some), size))
        self.text = "".join([*parts, text[at:]])

    def found(self) -> list[Detection]:
        """The findings near a placeholder; everything else was searched before."""
        found: list[Detection] = []
        for start, end in _around(self.text, self._spans):
            found += (
                replace(one, start=one.start + start, end=one.end + start) for one in _find_once(self.text[start:end])
            )
        return found

    def back(self, found: Detection) -> Detection:
        """A finding as one in the original text; a part of a placeholder stands for the whole."""
        (first, is_before), (last, is_behind) = self._at(found.start), self._at(found.end)
        start = first if is_before else self._findings[first].start
        end = last if is_behind else self._findings[last].end
        return Detection(start, end, found.kind)

    def _at(self, place: int) -> tuple[int, bool]:
        """The place in the text and True; or the finding in whose placeholder it is, and False."""
        number = bisect_right(self._spans, (place, -1)) - 1
        if number < 0:
            return place, True
        start, end = self._spans[number]
        return (number, False) if start < place < end else (self._findings[number].end + place - end, True)


def _around(text: str, spans: Sequence[tuple[int, int]], near: int = NEAR) -> list[tuple[int, int]]:
    """The lines around spans, with as much before and behind them as decides what something is."""
    parts: list[tuple[int, int]] = []
    for start, end in spans:
        first = text.rfind("\n", max(0, start - 2 * near), max(0, start - near)) + 1 or max(0, start - 2 * near)
        last = text.find("\n", end + near, end + 2 * near)
        last = min(len(text), end + 2 * near) if last < 0 else last + 1
        if parts and first <= parts[-1][1]:
            parts[-1] = (parts[-1][0], last)
        else:
            parts.append((first, last))
    return parts


_RULES = (*LOGINS, *SETTINGS, *COMMANDS, *CALLS)
_SIGNED = [rule for rule in _RULES if rule.signs]
_SIGN = any_of(sign for rule in _SIGNED for sign in rule.signs)
_BY_WORD: dict[str, list[ContextRule]] = {}
for _rule in _RULES:
    for _word in _rule.words:
        _BY_WORD.setdefault(_word, []).append(_rule)
_WORDS = frozenset(_BY_WORD)
_TELLING = _WORDS | MENTIONS


def has_credentials(page: ScannedText) -> bool:
    """False for a text without any of the words or signs that tell credentials."""
    return not page.words.isdisjoint(_TELLING) or _SIGN.search(page.folded) is not None


def find_credentials(page: ScannedText) -> Iterator[Detection]:
    """Passwords and keys that words or the form of a text around them tell."""
    yield from find_said(page)
    for word in page.words & _WORDS:
        places = page.places((word,))
        for rule in _BY_WORD[word]:
            yield from rule.secrets(filter(None, (rule.form.match(page.text, place) for place in places)))
    for rule in _SIGNED if _SIGN.search(page.folded) is not None else ():
        if page.has(*rule.signs):
            yield from rule.secrets(rule.form.finditer(page.text))


@dataclass(frozen=True, slots=True)
class RedactionLayer:
    """Finds secrets without a form of their own. `is_possible` is a fast check that excludes most texts."""

    find: Callable[[ScannedText], Iterable[Detection]]
    is_possible: Callable[[ScannedText], bool]


LAYERS = (
    RedactionLayer(find_credentials, has_credentials),
    RedactionLayer(find_spoken, lambda page: bool(page.words)),
    RedactionLayer(find_odd_emails, has_odd_emails),
    RedactionLayer(find_ips, has_ips),
    RedactionLayer(find_macs, has_macs),
    RedactionLayer(find_ibans, lambda page: page.digits >= 2),
    RedactionLayer(find_cards, lambda page: page.digits >= 13),
    RedactionLayer(find_identities, lambda page: page.digits >= 4),
    RedactionLayer(find_phones, lambda page: page.digits >= 7),
    RedactionLayer(find_keys, may_have_keys),
)
"""After the known forms. In this order: of two findings in one place the first names the kind."""


def _find_once(text: str) -> list[Detection]:
    """The findings of all layers in a text as written and as read."""
    found = _find_written(text)
    if not may_be_disguised(text):
        return found
    plain = PlainText(text)
    read: list[Detection] = []
    for start, end in _around(plain.text, list(plain.changes()), NEAR_ESCAPE):
        inside = _find_written(plain.text[start:end])
        read += (Detection(*plain.back(one.start + start, one.end + start), one.kind) for one in inside)
    return merge_findings([*found, *read]) if read else found


def _find_written(text: str) -> list[Detection]:
    """The findings of all layers in a text as written."""
    page = ScannedText(text)
    found = [one for pattern in PATTERNS if pattern.is_possible(page.folded) for one in _matches_of(pattern, page)]
    found += [one for layer in LAYERS if layer.is_possible(page) for one in layer.find(page)]
    if not found:
        return found
    if "<" in text:
        marks = [match.span() for match in MARK.finditer(text)]
        found = [one for one in found if (one.start, one.end) not in marks]
    return merge_findings(found)


def _matches_of(pattern: SecretPattern, page: ScannedText) -> Iterable[Detection]:
    end = 0
    for match in pattern.matches(page.text):
        span = pattern.secret(match) if match.start() >= end else None
        if span is not None:
            end = span[1]
            yield Detection(*span, pattern.kind_of(match))


LONGEST = 16_384
"""Maximum characters of a cached text."""
REMEMBERED = 2048
"""Number of cached texts."""


class Remembering(Redactor):
    """A cache of another redactor's findings."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._known = lru_cache(REMEMBERED)(redactor.find)

    @override
    def find(self, text: str) -> Sequence[Detection]:
        return self._known(text) if len(text) <= LONGEST else self._redactor.find(text)
