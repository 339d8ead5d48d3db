"""Findings: where in a text something is, and what it is."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from loomrl.safety.redaction.blob import SHORTEST, without_blobs


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A part of a text that must not be stored."""

    start: int
    end: int
    kind: str


class Page:
    """A text as the layers see it."""

    _WORD = re.compile(r"[^\W\d_]+")
    _DIGIT = re.compile(r"\d")
    _ASCII_WORD = re.compile("[a-z]+")
    _ASCII_DIGIT = re.compile("[0-9]")
    """The same where a text has no other characters; they are found faster."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = text.casefold()
        """Places in it are others."""
        word, digit = (self._ASCII_WORD, self._ASCII_DIGIT) if text.isascii() else (self._WORD, self._DIGIT)
        self.words = frozenset(word.findall(self.folded))
        self.digits = len(digit.findall(text))
        """Their number."""
        self.longest = max(map(len, text.split()), default=0)
        """Characters of the longest part without space."""
        self._places: dict[str, list[int]] | None = None

    @cached_property
    def bare(self) -> str:
        """Of equal length, without what only looks like secrets: images, hashes, certificates."""
        return without_blobs(self.text) if self.longest >= SHORTEST or "-----BEGIN" in self.text else self.text

    def has(self, *signs: str) -> bool:
        """True if one of these, in folded case, is in the text."""
        return any(map(self.folded.__contains__, signs))

    def places(self, words: Collection[str]) -> list[int]:
        """Where these words, in folded case, begin; in any order."""
        if self.words.isdisjoint(words):
            return []
        if self._places is None:
            self._places = {}
            for match in self._WORD.finditer(self.text):
                self._places.setdefault(match[0].casefold(), []).append(match.start())
        return [place for word in words for place in self._places.get(word, ())]

    def says(self, words: Collection[str], start: int = 0, end: int | None = None) -> bool:
        """True if one of these, in folded case, is a word of the text, or of a part of it."""
        if self.words.isdisjoint(words):
            return False
        return end is None or not frozenset(words).isdisjoint(self._WORD.findall(self.text[start:end].casefold()))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that do not overlap, by place. Of those that did, the first given names the kind."""
    ranked = sorted(enumerate(findings), key=lambda one: one[1].start)
    whole: list[tuple[int, Finding]] = []
    for rank, one in ranked:
        if whole and one.start < whole[-1][1].end:
            before, last = whole.pop()
            kind = last.kind if before < rank else one.kind
            whole.append((min(before, rank), Finding(last.start, max(last.end, one.end), kind)))
        else:
            whole.append((rank, one))
    return [one for _, one in whole]
