"""A strict reader of what a text claims to be possible or impossible, with negation. Linear in the text.

A clause counts if it has a subject, a word for possibility, and only known words. Each negation inverts it. Anything
else about a subject – doubts, conditions, contradictions – makes it unclear.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loomrl.envs.language.wording import plain, words

_TOKEN = re.compile(r"[a-z]+|[^\s]")
_SENTENCE = re.compile(r"[^.!?;:\n]*[.!?;:\n]?")
_CLAUSE = re.compile(r",|\b(?:but|and|while|because|since|so|however|though|although)\b")
_SHORT = (
    ("cannot", "can not"), ("can't", "can not"), ("won't", "will not"), ("isn't", "is not"), ("aren't", "are not"),
    ("wasn't", "was not"), ("don't", "do not"), ("doesn't", "does not"), ("didn't", "did not"), ("hasn't", "has not"),
    ("haven't", "have not"), ("it's", "it is"), ("that's", "that is"), ("i'm", "i am"), ("we're", "we are"),
)  # fmt: skip
_NEGATIONS = frozenset(words("not no never neither impossible unavailable denied declined refused rejected excluded"))
_POSSIBLE = frozenset(
    words(
        "possible impossible available unavailable allowed approved granted denied declined refused rejected excluded"
    )
)
_KNOWN = _NEGATIONS | _POSSIBLE | frozenset(
    words(
        "a an the your our this that it is are be been will can was has have for in on of to with you we i am do does "
        "did case order item product nor unfortunately sadly gladly happily therefore here now longer any sorry glad "
        "afraid say tell must confirm please thank also still fully certainly definitely yes true"
    )
)  # fmt: skip
_DETERMINERS = frozenset(words("a an the your our this that"))
_DENIALS = frozenset(words("wrong false untrue joke joking kidding lie lied mistaken opposite ignore scratch"))
_PRONOUNS = frozenset(words("it this that"))


@dataclass(slots=True)
class Claims:
    """By subject: possible, not possible, or None if unclear. Subjects that were not named are missing."""

    found: dict[str, bool | None] = field(default_factory=dict)

    def add(self, subject: str, sense: bool | None) -> None:
        """One more claim; one that differs from an earlier one makes it unclear."""
        known = self.found.get(subject, sense)
        self.found[subject] = sense if known == sense else None


def read_claims(text: str, subjects: Sequence[str]) -> Mapping[str, bool | None]:
    """The claims of `text` about each of the subjects."""
    said = plain(text)
    for short, long in _SHORT:
        said = said.replace(short, long)
    claims = Claims()
    last: list[str] = []
    for sentence in _SENTENCE.findall(said):
        waiting: list[str] = []
        for clause in _CLAUSE.split(sentence):
            tokens = [token for token in _TOKEN.findall(clause) if token not in (".", "!", '"', "'")]
            named = [subject for subject in subjects if subject in tokens]
            if named and _POSSIBLE.isdisjoint(tokens):
                waiting += _joined(tokens, named, claims)
            elif named:
                _state(tokens, [*waiting, *named], claims, subjects)
                waiting = []
            else:
                _refer(tokens, last, claims)
            last = named or last
    return claims.found


def _joined(tokens: list[str], named: list[str], claims: Claims) -> list[str]:
    """Subjects of `the refund and …`, of which the next clause speaks; `no refund but …` is unclear."""
    if not _NEGATIONS.isdisjoint(tokens):
        for subject in named:
            claims.add(subject, None)
        return []
    return named if all(token in _DETERMINERS or token in named for token in tokens) else []


def _state(tokens: list[str], named: list[str], claims: Claims, subjects: Sequence[str]) -> None:
    """Read a clause that has a subject and a claim about it."""
    once = sum(token in _POSSIBLE for token in tokens) == 1 and all(tokens.count(subject) <= 1 for subject in named)
    clear = once and all(token in _KNOWN or token in subjects for token in tokens)
    for subject in named:
        claims.add(subject, _sense(tokens) if clear else None)


def _refer(tokens: list[str], last: list[str], claims: Claims) -> None:
    """`it is not possible`, `that is wrong`, `not`: a clause about the subjects named before."""
    stated = not _POSSIBLE.isdisjoint(tokens)
    denied = not _DENIALS.isdisjoint(tokens) or (
        not _sense(tokens) and (not _PRONOUNS.isdisjoint(tokens[:2]) or _NEGATIONS.issuperset(tokens))
    )
    for subject in last if stated or denied else []:
        clear = stated and all(token in _KNOWN for token in tokens)
        claims.add(subject, _sense(tokens) if clear else None)


def _sense(tokens: Sequence[str]) -> bool:
    """Positive where negations are even in number."""
    return sum(token in _NEGATIONS for token in tokens) % 2 == 0
