"""The redactor: layers that find, and placeholders in the place of what they found."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from loomrl.safety.pattern import PATTERNS, Pattern
from loomrl.safety.placeholder import MARK, Counting, Names, mark
from loomrl.safety.redaction.address import has_ips, has_macs, has_odd_emails, ips, macs, odd_emails
from loomrl.safety.redaction.credential import credentials, has_credentials
from loomrl.safety.redaction.echo import Echoes, values_in
from loomrl.safety.redaction.entropy import drawn, has_drawn
from loomrl.safety.redaction.finding import Finding, Page, merged
from loomrl.safety.redaction.number import cards, ibans, identities
from loomrl.safety.redaction.phone import phones
from loomrl.safety.redaction.plain import Plain, may_be_disguised
from loomrl.safety.redaction.spoken import spoken

ROUNDS = 8
"""A replacement may bring a further finding to light, hardly ever more than one."""
_PLAIN = re.compile(
    r"[A-Za-z0-9_]{0,12}|[A-Za-z]{1,8}-[0-9]{1,6}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
"""Names of tools and roles, too short for anything; what is numbered; random ids."""
NEAR = 400
"""Characters before and behind a place that can decide what is there."""
NEAR_ESCAPE = 120
"""Those around an escape that are looked at again: source code is full of them."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text with a placeholder in the place of each finding, and the kinds that were found."""

    text: str
    kinds: tuple[str, ...] = ()


class Redactor(Protocol):
    """Removes what must not be stored. Redacting twice changes nothing more."""

    def find(self, text: str) -> Sequence[Finding]:
        """What must go, by place, without overlaps."""

    def redact(self, text: str, names: Names | None = None) -> Redacted:
        """The text without it; `names` gives the placeholders, otherwise they are counted in this text alone."""


class PatternRedactor:
    """Keys, passwords, e-mail addresses, numbers of phones, cards, accounts and people, IP addresses."""

    def find(self, text: str) -> Sequence[Finding]:
        """As of `Redactor`."""
        if _PLAIN.fullmatch(text) or not (found := _once(text)):
            return []
        for _ in range(ROUNDS - 1):
            tried = _Tried(text, found)
            new = tried.found()
            if not new:
                break
            found = merged([*found, *map(tried.back, new)])
        return Echoes(values_in(text, found)).beside(text, found)

    def redact(self, text: str, names: Names | None = None) -> Redacted:
        """As of `Redactor`."""
        return replaced(text, self.find(text), names)


class NoRedactor:
    """Leaves everything as it is."""

    def find(self, text: str) -> Sequence[Finding]:
        """Nothing."""
        return ()

    def redact(self, text: str, names: Names | None = None) -> Redacted:
        """The same text."""
        return Redacted(text)


def replaced(text: str, findings: Sequence[Finding], names: Names | None = None) -> Redacted:
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


class _Tried:
    """A text with some placeholders in the places of findings, and the way back."""

    def __init__(self, text: str, findings: Sequence[Finding]) -> None:
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

    def found(self) -> list[Finding]:
        """What is in it near a placeholder; everything else was looked at before."""
        found: list[Finding] = []
        for start, end in _around(self.text, self._spans):
            found += (replace(one, start=one.start + start, end=one.end + start) for one in _once(self.text[start:end]))
        return found

    def back(self, found: Finding) -> Finding:
        """A finding in it as one in the text; a part of a placeholder stands for the whole."""
        (first, is_before), (last, is_behind) = self._at(found.start), self._at(found.end)
        start = first if is_before else self._findings[first].start
        end = last if is_behind else self._findings[last].end
        return Finding(start, end, found.kind)

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


@dataclass(frozen=True, slots=True)
class Layer:
    """Finds what has no form of its own. Asking if there can be anything at all is much faster."""

    find: Callable[[Page], Iterable[Finding]]
    is_possible: Callable[[Page], bool]


LAYERS = (
    Layer(credentials, has_credentials),
    Layer(spoken, lambda page: bool(page.words)),
    Layer(odd_emails, has_odd_emails),
    Layer(ips, has_ips),
    Layer(macs, has_macs),
    Layer(ibans, lambda page: page.digits >= 2),
    Layer(cards, lambda page: page.digits >= 13),
    Layer(identities, lambda page: page.digits >= 4),
    Layer(phones, lambda page: page.digits >= 7),
    Layer(drawn, has_drawn),
)
"""After the known forms. In this order: of two findings in one place the first names the kind."""


def _once(text: str) -> list[Finding]:
    """What all layers find in a text as it is written, and as it reads."""
    found = _written(text)
    if not may_be_disguised(text):
        return found
    plain = Plain(text)
    read: list[Finding] = []
    for start, end in _around(plain.text, list(plain.changes()), NEAR_ESCAPE):
        inside = _written(plain.text[start:end])
        read += (Finding(*plain.back(one.start + start, one.end + start), one.kind) for one in inside)
    return merged([*found, *read]) if read else found


def _written(text: str) -> list[Finding]:
    """What all layers find in a text as it is written."""
    page = Page(text)
    found = [one for pattern in PATTERNS if pattern.is_possible(page.folded) for one in _of(pattern, page)]
    found += [one for layer in LAYERS if layer.is_possible(page) for one in layer.find(page)]
    if not found:
        return found
    if "<" in text:
        marks = [match.span() for match in MARK.finditer(text)]
        found = [one for one in found if (one.start, one.end) not in marks]
    return merged(found)


def _of(pattern: Pattern, page: Page) -> Iterable[Finding]:
    end = 0
    for match in pattern.matches(page.text):
        span = pattern.secret(match) if match.start() >= end else None
        if span is not None:
            end = span[1]
            yield Finding(*span, pattern.kind_of(match))
