"""Findings: where in a text something is, and what it is."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from loomrl.safety.assignment import is_stub
from loomrl.safety.placeholder import is_placeholder

_FILL = "\0"
SHORTEST = 14
"""Characters of a run of such data."""
_RUN = re.compile(rf"[A-Za-z0-9+/_=.:~%-]{{{SHORTEST},}}+")
_PUBLIC = re.compile(
    r"-----BEGIN (?![A-Z0-9 ]{0,40}PRIVATE)[A-Z0-9 ]{1,40}-----(?:[^-]|-(?!----(?:BEGIN|END)))*+-----END|"
    r"-----BEGIN (?![A-Z0-9 ]{0,40}PRIVATE)[A-Z0-9 ]{1,40}-----(?:[\s\\nr]{1,4}[A-Za-z0-9+/=]{1,80}+)*+"
)
_DATA = re.compile(
    r"""AAAA[A-Z][0-9]N[A-Za-z0-9+/=]{40,}+|[Ss][Hh][Aa][0-9]{1,3}[-:=][A-Za-z0-9+/=_-]{20,}+|h1:[A-Za-z0-9+/]{43}=
    |(?:iVBORw0KGgo|/9j/4|R0lGOD|UklGR|JVBERi0|UEsDB|H4sIA|LS0tLS1CRUdJTiBD)[A-Za-z0-9+/=]{20,}+
    |[A-Za-z0-9+/]{400,}+={0,2}""",
    re.VERBOSE,
)
"""Public keys, checksums, images and archives, certificates in base64, and long data."""
_ID = re.compile(
    r"""[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}
    |\b0[0-7][0-9A-HJKMNP-TV-Z]{24}\b
    |\b(?:call|chatcmpl|cmpl|msg|toolu|req|run|thread|asst|resp|fc|rs|evt|item|batch|file|cus|pi|price|prod|sub|ch|in
        |acct|txn|tx|si|pm|cs|step|trace|span|job|task|user|org|proj|conv|gen|node|i|ami|vpc|subnet|vol|sg|eni
        |snap)[_-][A-Za-z0-9]{6,}+
    |\b[a-z]{2,10}_01[A-Za-z0-9]{20,24}\b
    |\b_Z[A-Z][A-Za-z0-9_]+
    |/nix/store/[a-z0-9]{32}""",
    re.VERBOSE,
)
"""Ids by their form or their prefix."""
_NAMED = re.compile(
    r"(?:list|v|id|ids|gid|pid|rev|ref|sha|hash|commit|etag|playlist|video|doc|docid|item|page|cursor|digest|checksum)="
)
"""Parameters of addresses that hold ids."""
_LINE = 60
"""Characters of a line of base64, and of a second one beside it."""
_BETWEEN = re.compile(r"[\"',\\nr]{0,4}\r?\n[ \t\"']{0,8}")


def blank_blobs(text: str) -> str:
    """A text of equal length in which such data is blank."""
    parts = []
    at = 0
    for start, end in sorted(_spans(text)):
        if end > at:
            start = max(start, at)
            parts += [text[at:start], _FILL * (end - start)]
            at = end
    return "".join([*parts, text[at:]]) if at else text


def _spans(text: str) -> Iterator[tuple[int, int]]:
    if "-----BEGIN" in text:
        yield from (match.span() for match in _PUBLIC.finditer(text))
    before: re.Match[str] | None = None
    for run in _RUN.finditer(text):
        if (
            (text[run.start() - 1 : run.start()] in ("?", "&") and _NAMED.match(run[0]))
            or _DATA.match(run[0])
            or text.endswith("base64,", 0, run.start())
        ):
            yield run.span()
        elif before is not None and _are_lines(before, run):
            yield before.start(), run.end()
        else:
            yield from ((run.start() + one.start(), run.start() + one.end()) for one in _ID.finditer(run[0]))
        before = run


def _are_lines(one: re.Match[str], other: re.Match[str]) -> bool:
    """True for two long lines, one below the other."""
    if min(len(one[0]), len(other[0])) < _LINE or other.start() - one.end() > 14:
        return False
    return _BETWEEN.fullmatch(one.string, one.end(), other.start()) is not None


@dataclass(frozen=True, slots=True, order=True)
class Detection:
    """A part of a text that must not be stored."""

    start: int
    end: int
    kind: str


class ScannedText:
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
        """The text with equal length in which data that only looks like secrets is blank: images, hashes,
        certificates."""
        return blank_blobs(self.text) if self.longest >= SHORTEST or "-----BEGIN" in self.text else self.text

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


def merge_findings(findings: Iterable[Detection]) -> list[Detection]:
    """Findings that do not overlap, by place. Of those that did, the first given names the kind."""
    ranked = sorted(enumerate(findings), key=lambda one: one[1].start)
    whole: list[tuple[int, Detection]] = []
    for rank, one in ranked:
        if whole and one.start < whole[-1][1].end:
            before, last = whole.pop()
            kind = last.kind if before < rank else one.kind
            whole.append((min(before, rank), Detection(last.start, max(last.end, one.end), kind)))
        else:
            whole.append((rank, one))
    return [one for _, one in whole]


VALUE = r"(?P<secret>(?:[^\s'\"`|;<>$-]|(?<=')[$-])[^\s'\"`|;<>]{0,200})"
WORD = rf"['\"]?{VALUE}"
ARGUMENTS = r"[^\n|;&]{0,200}?"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRule:
    """A form whose group `secret` goes, unless it is a stub.

    It begins with one of the words, and is tried where those are; or it is looked for if one of the signs is in a text.
    """

    form: re.Pattern[str]
    words: Collection[str] = ()
    signs: Collection[str] = ()
    kind: str = "password"
    check: Callable[[str], bool] = lambda value: True

    def secrets(self, matches: Iterable[re.Match[str]]) -> Iterator[Detection]:
        """The secrets in matches of the form."""
        for match in matches:
            value = match["secret"]
            if not is_placeholder(value) and not is_stub(value) and self.check(value):
                yield Detection(*match.span("secret"), self.kind)


SHORTEST_ECHO = 6
LONGEST_ECHO = 200
"""Maximum characters of a value to look for."""


class Echoes:
    """Looks for known values. Words and short numbers are ignored, as they are everywhere."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self._kinds = {value: kind for value, kind in kinds.items() if _is_telling(value)}
        lengths: dict[str, set[int]] = {}
        for value in self._kinds:
            lengths.setdefault(value[:SHORTEST_ECHO], set()).add(len(value))
        self._lengths = {begin: sorted(found, reverse=True) for begin, found in lengths.items()}
        """Begin of a value → lengths of the values with it: many values cost no more than one."""

    def beside(self, text: str, found: Sequence[Detection]) -> Sequence[Detection]:
        """The findings of a text, with the known values in it."""
        return merge_findings([*found, *self._in(text)]) if self._kinds else found

    def _in(self, text: str) -> Iterator[Detection]:
        end = 0
        lengths = self._lengths
        for start in range(len(text) - SHORTEST_ECHO + 1):
            begin = text[start : start + SHORTEST_ECHO]
            if begin not in lengths or start < end:
                continue
            for length in lengths[begin]:
                if (kind := self._kinds.get(text[start : start + length])) is not None:
                    end = start + length
                    yield Detection(start, end, kind)
                    break


def values_in(text: str, found: Sequence[Detection]) -> dict[str, str]:
    """The values of findings, and their kinds."""
    return {text[one.start : one.end]: one.kind for one in found}


def _is_telling(value: str) -> bool:
    is_word_or_number = value.isalpha() or (value.isdigit() and len(value) < 9)
    return SHORTEST_ECHO <= len(value) <= LONGEST_ECHO and not is_word_or_number
