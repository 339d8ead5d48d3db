"""A closed piece of English: clauses with regular nouns and verbs, and when two of them are the same."""

from dataclasses import dataclass
from functools import lru_cache

from loomrl.envs.language.wording import LONGEST, plain, words

NOUNS = words("dog cat bird king boy girl horse goat sailor farmer queen doctor robot singer")
VERBS = words("help follow visit call greet trust warn thank remember answer")
ADJECTIVES = words("small old young brave quick tall kind happy quiet clever")
_ARTICLES = ("the", "a", "an")
_SHORT = {"doesn't": "does not", "don't": "do not", "didn't": "did not"}


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun with what describes it. The subject of its clause is the phrase itself."""

    noun: str
    adjectives: tuple[str, ...] = ()
    plural: bool = False
    clause: "Clause | None" = None


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause: subject, verb, object."""

    subject: Phrase
    verb: str
    object: Phrase
    past: bool
    negated: bool


def english(clause: Clause) -> str:
    """`the small dogs do not follow the cat`"""
    return f"{_phrase(clause.subject)} {_predicate(clause, plural=clause.subject.plural)}"


def _predicate(clause: Clause, *, plural: bool) -> str:
    if clause.negated:
        verb = f"{'did' if clause.past else 'do' if plural else 'does'} not {clause.verb}"
    else:
        verb = past_of(clause.verb) if clause.past else clause.verb + "s" * (not plural)
    return f"{verb} {_phrase(clause.object)}"


def past_of(verb: str) -> str:
    """Regular."""
    return verb + "ed"


def _phrase(phrase: Phrase) -> str:
    said = " ".join(["the", *phrase.adjectives, phrase.noun + "s" * phrase.plural])
    return said if phrase.clause is None else f"{said} that {_predicate(phrase.clause, plural=phrase.plural)}"


def same_english(given: str, truth: str) -> bool:
    """True if both mean the same: articles, and redundant verb numbers, are ignored."""
    return len(given) <= LONGEST and _essence(given) == _essence(truth)


def _essence(text: str) -> list[str]:
    said = plain(text).strip(".,;:!?\"'")
    for short, long in _SHORT.items():
        said = said.replace(short, long)
    stripped = [word.strip(",") for word in said.split()]
    return [_stems().get(word, word) for word in stripped if word not in (*_ARTICLES, "do", "does")]


@lru_cache(maxsize=1)
def _stems() -> dict[str, str]:
    return {verb + "s": verb for verb in VERBS} | {"who": "that", "which": "that"}
