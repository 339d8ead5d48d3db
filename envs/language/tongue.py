"""Translation from and into a language that is made up for each task: a dictionary, rules, and later examples."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from loomrl.envs.language.problem import LanguageProblem, exact
from loomrl.envs.language.wording import LONGEST, bare, plain
from loomrl.gym.generate import between, words

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


ORDERS = ("SOV", "VSO", "VOS", "OSV", "OVS")
"""Not English's own, so that a translation word by word is wrong."""
PLURAL_FROM = 2
PAST_FROM = 4
NEGATION_FROM = 5
OBJECT_FROM = 6
EXAMPLES_FROM = 7
AGREEMENT_FROM = 8
RELATIVE_FROM = 9
_ROLES = {"S": "subject", "V": "verb", "O": "object"}


@dataclass(frozen=True, slots=True)
class Tongue:
    """A language. An empty affix means that the feature is not marked."""

    words: Mapping[str, str]
    order: str
    adjective_first: bool
    negation_first: bool
    plural: str
    past: str
    object: str
    negation: str
    relative: str
    agreement: bool

    def say(self, clause: Clause) -> str:
        """The clause in this language."""
        said = {"S": self._phrase(clause.subject, ""), "V": self._verb(clause)}
        said["O"] = self._phrase(clause.object, self.object)
        return " ".join(said[role] for role in self.order)

    def _verb(self, clause: Clause) -> str:
        verb = self.words[clause.verb] + (self.past if clause.past else "")
        if not clause.negated:
            return verb
        return f"{self.negation} {verb}" if self.negation_first else f"{verb} {self.negation}"

    def _phrase(self, phrase: Phrase, ending: str) -> str:
        plural = self.plural if phrase.plural else ""
        noun = self.words[phrase.noun] + plural + ending
        adjectives = [self.words[word] + (plural if self.agreement else "") for word in phrase.adjectives]
        said = [*adjectives, noun] if self.adjective_first else [noun, *adjectives]
        if phrase.clause is not None:
            inner = {"V": self._verb(phrase.clause), "O": self._phrase(phrase.clause.object, self.object)}
            said += [self.relative, *(inner[role] for role in self.order if role in inner)]
        return " ".join(said)


def translation(level: int, rng: Random) -> LanguageProblem:
    """One sentence, into the language or out of it."""
    words = _vocabulary(level, rng)
    tongue = _make(level, rng, words)
    clause = _clause(level, rng, words)
    foreign = tongue.say(clause)
    native = english(clause)
    outward = rng.random() < 0.5
    lines = [_dictionary(tongue, words), _rules(level, tongue)]
    if level >= EXAMPLES_FROM:
        lines += [f"Example: {english(shown)} = {tongue.say(shown)}" for shown in _examples(level, rng, words)]
    asked = native if outward else foreign
    lines.append(f"Translate {'into the language' if outward else 'into English'}: {asked}")
    guesses = [_clause(level, rng, words) for _ in range(8)]
    same = same_foreign if outward else same_english
    return LanguageProblem(
        "\n".join(lines),
        foreign if outward else native,
        exact(same, foreign if outward else native),
        tuple(tongue.say(guess) if outward else english(guess) for guess in guesses if guess != clause) or ("-",),
        "Word by word, then in order.",
    )


def same_foreign(given: str, truth: str) -> bool:
    """True if both have the same words in the same order; case and punctuation are ignored."""
    return len(given) <= LONGEST and _foreign_words(given) == _foreign_words(truth)


def _foreign_words(text: str) -> list[str]:
    return [word.strip(".,;:!?\"'") for word in bare(text).split()]


def _vocabulary(level: int, rng: Random) -> tuple[str, ...]:
    return (
        *rng.sample(NOUNS, between(level, 4, 10)),
        *rng.sample(VERBS, between(level, 2, 7)),
        *rng.sample(ADJECTIVES, between(level, 0, 6)),
    )


def _make(level: int, rng: Random, words: tuple[str, ...]) -> Tongue:
    made = _coin_words(rng, len(words) + 5)
    plural, past, ending, negation, relative = made[len(words) :]
    return Tongue(
        words=dict(zip(words, made, strict=False)),
        order=rng.choice(ORDERS),
        adjective_first=rng.random() < 0.5,
        negation_first=rng.random() < 0.5,
        plural=plural[:2] if level >= PLURAL_FROM else "",
        past=past[:2] if level >= PAST_FROM else "",
        object=ending[:2] + "n" if level >= OBJECT_FROM else "",
        negation=negation,
        relative=relative,
        agreement=level >= AGREEMENT_FROM,
    )


def _coin_words(rng: Random, count: int) -> list[str]:
    """Different words of two syllables; the affixes cut from the last ones differ, too."""
    consonants = "bdfgklmnprstvz"
    found: list[str] = []
    while len(found) < count:
        word = "".join(rng.choice(consonants) + rng.choice("aeiou") for _ in range(2))
        if all(word[:2] != other[:2] for other in found):
            found.append(word)
    return found


def _clause(level: int, rng: Random, words: tuple[str, ...]) -> Clause:
    """A sentence with as much in it as the level allows."""
    nouns = rng.sample([word for word in words if word in NOUNS], 4)
    verbs = [word for word in words if word in VERBS]
    past = level >= PAST_FROM and rng.random() < 0.5
    first, second = (_draw_phrase(level, rng, words, noun) for noun in nouns[:2])
    if level >= RELATIVE_FROM:
        first = replace(first, clause=_inner(level, rng, words, nouns[2]))
    if level > RELATIVE_FROM:
        second = replace(second, clause=_inner(level, rng, words, nouns[3]))
    return Clause(first, rng.choice(verbs), second, past, level >= NEGATION_FROM and rng.random() < 0.5)


def _inner(level: int, rng: Random, words: tuple[str, ...], noun: str) -> Clause:
    """The clause after `that`: its subject is the noun before it."""
    verb = rng.choice([word for word in words if word in VERBS])
    return Clause(Phrase(noun), verb, _draw_phrase(level, rng, words, noun), rng.random() < 0.5, rng.random() < 0.3)


def _draw_phrase(level: int, rng: Random, words: tuple[str, ...], noun: str) -> Phrase:
    known = [word for word in words if word in ADJECTIVES]
    adjectives = rng.sample(known, min(len(known), rng.randint(0, between(level, 0, 3))))
    return Phrase(noun, tuple(adjectives), level >= PLURAL_FROM and rng.random() < 0.5)


def _examples(level: int, rng: Random, words: tuple[str, ...]) -> list[Clause]:
    """Sentences that show every rule of order; none of them is the one to translate."""
    nouns = [word for word in words if word in NOUNS]
    verbs = [word for word in words if word in VERBS]
    adjective = next(word for word in words if word in ADJECTIVES)
    plain = Clause(Phrase(nouns[0]), verbs[0], Phrase(nouns[1]), False, False)
    shown = [
        plain,
        Clause(Phrase(nouns[2], (adjective,)), verbs[1], Phrase(nouns[3], plural=True), True, False),
        Clause(Phrase(nouns[1]), verbs[0], Phrase(nouns[0], (adjective,)), False, True),
    ]
    if level >= RELATIVE_FROM:
        shown.append(replace(plain, subject=Phrase(nouns[2], clause=plain)))
    rng.shuffle(shown)
    return shown


def _dictionary(tongue: Tongue, words: tuple[str, ...]) -> str:
    return "Dictionary: " + ", ".join(f"{word} = {tongue.words[word]}" for word in words) + "."


def _rules(level: int, tongue: Tongue) -> str:
    """Endings always, and the order of words as long as no example shows it."""
    order = f"Order: {', '.join(_ROLES[role] for role in tongue.order)}. No articles."
    place = f"Adjectives stand {'before' if tongue.adjective_first else 'after'} their noun."
    side = "before" if tongue.negation_first else "after"
    told = [
        (1, EXAMPLES_FROM, order),
        (2, EXAMPLES_FROM, place),
        (PLURAL_FROM, 11, f"Plural: noun + {tongue.plural}."),
        (PAST_FROM, 11, f"Past: verb + {tongue.past}."),
        (NEGATION_FROM, EXAMPLES_FROM, f"Not: {tongue.negation} {side} the verb."),
        (EXAMPLES_FROM, 11, f"Not: {tongue.negation}, placed as in the example. No articles."),
        (OBJECT_FROM, 11, f"Object: noun + {tongue.object}, after a plural ending."),
        (EXAMPLES_FROM, 11, "Several adjectives keep their order."),
        (AGREEMENT_FROM, 11, "An adjective takes the plural ending of its noun."),
        (
            RELATIVE_FROM,
            11,
            f"That: {tongue.relative}, after the noun and its adjectives; its clause is as in the example.",
        ),
    ]
    return " ".join(text for first, end, text in told if first <= level < end)
