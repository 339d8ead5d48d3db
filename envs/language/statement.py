"""A strict reader of simple sentences: who, what, whether it is denied, and since when. Linear in the text."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from loomrl.envs.language.wording import LONGEST, plain
from loomrl.envs.language.world import RELATIONS, FactRelation

MOST_STATEMENTS = 400
_WORD = re.compile(r"[a-z]+|[0-9]+|[^\s]")
_END = re.compile(r"[.;!?\n]+")
_BULLET = re.compile(r"\s*[-*•]\s+")
_ARTICLES = ("a", "an", "the")
_PRONOUNS = ("he", "she", "they")
_SHORT = {"doesn't": "does not", "don't": "do not", "isn't": "is not"}


@dataclass(frozen=True, slots=True)
class FactStatement:
    """One claim of a text about a person. `positive` is false if it is denied."""

    who: str
    relation: str
    value: str
    positive: bool = True
    since: int | None = None


class TextReading(NamedTuple):
    """A text's claims in order, its number of unreadable sentences, and its number of words."""

    statements: tuple[FactStatement, ...]
    unread: int
    words: int


class _ClaimForm(NamedTuple):
    """One way to make a claim: the words before the value, and their meaning."""

    words: tuple[str, ...]
    relation: str
    positive: bool
    dated: bool
    """True if a year must follow."""


class _Unread(Exception):
    """A sentence that is none of the known forms."""


def read(text: str, people: Sequence[str]) -> TextReading:
    """All statements of a text about these people. A sentence that is not understood as a whole says nothing."""
    names = {name.casefold(): name for name in people}
    found: list[FactStatement] = []
    unread = words = 0
    subjects: tuple[str, ...] = ()
    for sentence in sentences(text):
        words += _count(sentence)
        reader = _SentenceReader(sentence, names, subjects)
        try:
            said = list(reader.statements())
        except _Unread:
            unread += 1
            continue
        found += said
        subjects = reader.subjects
    too_many = len(found) > MOST_STATEMENTS
    return TextReading(tuple(found[:MOST_STATEMENTS]), unread + too_many, words)


def sentences(text: str) -> list[tuple[str, ...]]:
    """The words of each sentence, or line; marks other than the end of a sentence count as words."""
    found = []
    for sentence in _END.split(text[: LONGEST + 1]):
        said = plain(_BULLET.sub("", sentence, count=1))
        for short, long in _SHORT.items():
            said = said.replace(short, long)
        words = tuple(_WORD.findall(said))
        if words:
            found.append(words)
    return found


def count_words(text: str) -> int:
    """The number of words in a text, with any separators."""
    return sum(map(_count, sentences(text)))


def _count(sentence: Sequence[str]) -> int:
    return sum(word.isalnum() for word in sentence)


class _SentenceReader:
    """One sentence, read from left to right."""

    def __init__(self, words: tuple[str, ...], names: dict[str, str], subjects: tuple[str, ...]) -> None:
        self._words = [word for word in words if word not in _ARTICLES]
        self._names = names
        self._place = 0
        self.subjects = subjects
        """The people a pronoun means; in the end, those of whom the sentence spoke last."""

    def statements(self) -> Iterator[FactStatement]:
        """`Ada and Ben live in Oslo and work as a baker, and she keeps a cat`."""
        self._subject()
        yield from self._predicate()
        while self._place < len(self._words):
            self._joint()
            if self._word() in self._names or self._word() in _PRONOUNS:
                self._subject()
            yield from self._predicate()

    def _word(self) -> str:
        return self._words[self._place] if self._place < len(self._words) else ""

    def _joint(self) -> None:
        """`and`, a comma, or both."""
        before = self._place
        self._place += self._word() == ","
        self._place += self._word() == "and"
        if self._place == before:
            raise _Unread

    def _subject(self) -> None:
        if self._word() in _PRONOUNS:
            self._place += 1
            if not self.subjects:
                raise _Unread
            return
        named = [self._name()]
        while self._word() in (",", "and"):
            self._joint()
            named.append(self._name())
        self.subjects = tuple(named)

    def _name(self) -> str:
        if self._word() not in self._names:
            raise _Unread
        self._place += 1
        return self._names[self._words[self._place - 1]]

    def _predicate(self) -> Iterator[FactStatement]:
        for form in _forms().get(self._word(), ()):
            end = self._place + len(form.words)
            if tuple(self._words[self._place : end]) == form.words and end < len(self._words):
                values = _values(form.relation)
                if self._words[end] in values:
                    self._place = end + 1
                    since = self._since(form)
                    for who in self.subjects:
                        yield FactStatement(who, form.relation, values[self._words[end]], form.positive, since)
                    return
        raise _Unread

    def _since(self, form: _ClaimForm) -> int | None:
        if self._word() != "since":
            if form.dated:
                raise _Unread
            return None
        year = self._words[self._place + 1] if self._place + 1 < len(self._words) else ""
        if not (len(year) == 4 and year.isascii() and year.isdecimal()):
            raise _Unread
        self._place += 2
        return int(year)


@lru_cache(maxsize=1)
def _forms() -> dict[str, list[_ClaimForm]]:
    """All forms by their first word, read off the relations' own words."""
    found: dict[str, list[_ClaimForm]] = {}
    for relation in RELATIONS:
        for form in _forms_of(relation):
            found.setdefault(form.words[0], []).append(form)
    return found


def _forms_of(relation: FactRelation) -> Iterator[_ClaimForm]:
    stem = relation.stem
    lasting = relation.since.removeprefix("has ").removesuffix(" since")
    for positive, dated, words in (
        (True, False, relation.verb),
        (True, False, stem),
        (False, False, f"does not {stem}"),
        (False, False, f"do not {stem}"),
        (True, True, f"has {lasting}"),
        (True, True, f"have {lasting}"),
        *((positive, False, f"{verb} {no}{{}}") for verb in ("is", "are") for positive, no in _IS[relation.name]),
    ):
        said = words.replace("{}", "").split()
        yield _ClaimForm(tuple(word for word in said if word not in _ARTICLES), relation.name, positive, dated)


_IS: dict[str, tuple[tuple[bool, str], ...]] = {"home": (), "job": ((True, ""), (False, "not ")), "team": (), "pet": ()}
"""`Ada is a baker` says a job, too."""


@lru_cache(maxsize=8)
def _values(name: str) -> dict[str, str]:
    """A relation's values by how they are written without capitals."""
    return {value.casefold(): value for relation in RELATIONS if relation.name == name for value in relation.values}
