"""The shipped rules about answers. Each looks at a bounded end of the text, so that no answer makes it slow."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from loomrl.errors import ConfigError
from loomrl.safety.pattern import PATTERNS, AssignmentPattern, SecretPattern
from loomrl.safety.rule import Found, Saying, Use

LONGEST = 200
"""Characters after which a form counts as a secret even if it may go on."""
_KEY_END = re.compile(r"(?:bearer [A-Za-z0-9_.~+/=-]{0,200}|[A-Za-z0-9_.~+/=-]{1,200})\Z", re.IGNORECASE)
"""Characters that a key may begin with, at the end of a text."""
_WORD_END = re.compile(r"\S{1,200}\Z")
_PRIVATE = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY")
_PRIVATE_END = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}\Z")
_ASSIGNED_END = re.compile(
    r"(?:pass[\w-]{0,12}|kennwort|pwd|secret[\w-]{0,8}|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|authorization|credentials?)[^\n]{0,80}\Z",
    re.IGNORECASE,
)


class Secrets:
    """Secrets of known forms; those of `key` unless they are placeholders."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self._patterns = [one for one in PATTERNS if one.kind in kinds]
        self._ends = [_KEY_END, _PRIVATE_END] if "key" in kinds else []
        self._ends += [_WORD_END] if {"password", "email"} & {*kinds} else []
        self._ends += [_ASSIGNED_END] if "password" in kinds else []
        self._has_keys = "key" in kinds

    def find(self, saying: Saying) -> Found | None:
        """Find the first hit."""
        folded = saying.text[saying.since :].casefold()
        possible = [one for one in self._patterns if one.is_possible(folded)]
        found = [one for pattern in possible for one in _secrets(pattern, saying)]
        if self._has_keys and (begun := _PRIVATE.search(saying.text, saying.since)):
            found.append(Found(begun.start(), "key"))
        if sure := [one for one in found if one.is_sure]:
            return min(sure, key=lambda one: one.start)
        if not saying.is_whole:
            found += [Found(m.start(), "", is_sure=False) for end in self._ends if (m := _at_end(end, saying))]
        return min(found, key=lambda one: one.start, default=None)


def _secrets(pattern: SecretPattern, saying: Saying) -> Iterable[Found]:
    """The first finding of a form; one that reaches the end may go on, unless it is long."""
    for match in pattern.matches(saying.text, saying.since):
        goes_on = not saying.is_whole and match.end() == len(saying.text)
        if goes_on and match.end() - match.start() <= LONGEST:
            yield Found(match.start(), pattern.kind, is_sure=False)
            return
        span = pattern.secret(match)
        if span is None:
            continue
        yield Found(span[0] if isinstance(pattern, AssignmentPattern) else match.start(), pattern.kind)
        return


def _at_end(form: re.Pattern[str], saying: Saying) -> re.Match[str] | None:
    since = max(saying.since, len(saying.text) - LONGEST)
    if form is _KEY_END:
        since = max(since, saying.text.rfind(" ") - len("bearer"))  # it has no space but that one
    return form.search(saying.text, since)


class Blocked:
    """Phrases as whole words, in any case, with any space between their words."""

    def __init__(self, phrases: Iterable[str]) -> None:
        listed = sorted({" ".join(_plain(phrase).lower().split()) for phrase in phrases}, key=len, reverse=True)
        forms = "|".join(r"\s+".join(map(re.escape, phrase.split(" "))) for phrase in listed)
        self._form = re.compile(rf"(?<!\w)(?:{forms})(?!\w)", re.IGNORECASE)
        self._begun = frozenset(phrase[:length] for phrase in listed for length in range(1, len(phrase) + 1))
        openings = sorted({re.escape(phrase[:2].rstrip()) for phrase in listed})
        self._start = re.compile(rf"(?<!\w)(?=\S\Z|{'|'.join(openings)})", re.IGNORECASE)
        self._reach = max(map(len, listed)) + LONGEST_GAPS

    def find(self, saying: Saying) -> Found | None:
        """Find the first hit."""
        text = _plain(saying.text)
        since = saying.since
        for match in self._form.finditer(text, since):
            if match.end() < len(text) or saying.is_whole:
                return Found(match.start(), "phrase")
        if saying.is_whole:
            return None
        for match in self._start.finditer(text, max(since, len(text) - self._reach)):
            start = match.start()
            if " ".join(text[start:].lower().split()) in self._begun:
                return Found(start, "", is_sure=False)
        return None


def _plain(text: str) -> str:
    """The same text, of the same length, with one form of apostrophe."""
    return text.replace("\u2019", "'")


LONGEST_GAPS = 10
"""Further characters of space between the words of a phrase."""
_WORD = re.compile(r"\w+")


class PromptLeak:
    """A run of the system prompt's words. Case and punctuation do not count."""

    SHORTEST = 6

    def __init__(self, words: int) -> None:
        self._words = words

    def find(self, saying: Saying) -> Found | None:
        """Find the first hit."""
        prompt, count, known = _normal(saying.asked.system)
        least = min(self._words, count)
        if least < self.SHORTEST and least < self._words:
            return None
        run: list[re.Match[str]] = []
        for match in _WORD.finditer(saying.text, saying.since):
            is_last = not saying.is_whole and match.end() == len(saying.text)
            if not is_last and match[0].casefold() not in known:
                run.clear()
                continue
            run.append(match)
            while run and not _is_in(run, prompt, is_begun=is_last):
                run.pop(0)
            if len(run) >= least and not is_last:
                return Found(run[0].start(), "system prompt")
        if run and not saying.is_whole:
            return Found(run[0].start(), "", is_sure=False)
        return None


def _is_in(run: Sequence[re.Match[str]], prompt: str, *, is_begun: bool) -> bool:
    words = " ".join(match[0] for match in run).casefold()
    return f" {words}{'' if is_begun else ' '}" in prompt


@lru_cache(maxsize=256)
def _normal(system: str) -> tuple[str, int, frozenset[str]]:
    """Its words between single spaces, their number, and the different ones."""
    words = _WORD.findall(system.casefold())
    return f" {' '.join(words)} ", len(words), frozenset(words)


class Repetition:
    """Copies of a piece at the end of the text; copies before the detection have left already."""

    LONGEST = 80
    """Characters of a piece."""
    TAIL = 8
    """Characters at the end by which an earlier copy is found."""

    def __init__(self, times: int, characters: int) -> None:
        self._times = times
        self._characters = characters

    def find(self, saying: Saying) -> Found | None:
        """Find the first hit."""
        text = saying.text
        size = len(saying.text)
        before = text.rfind(text[-self.TAIL :], max(0, size - self.LONGEST - self.TAIL), size - 1)
        period = size - self.TAIL - before
        length = max(period * self._times, self._characters)
        if before < 0 or length > size or text[-period:].isspace():
            return None
        is_periodic = text[size - length : size - period] == text[size - length + period :]
        return Found(size, "repetition") if is_periodic else None


class Calls:
    """Malformed or unknown tool calls."""

    OPENING = "<tool_call>"

    def find(self, saying: Saying) -> Found | None:
        """Find the first hit."""
        tools = saying.asked.tools
        if not tools:
            return None
        begun = saying.text.find(self.OPENING, saying.since)
        if begun >= 0:
            return Found(begun, "malformed call")  # whole calls are no part of the text
        wrong = next(filter(None, (_wrong(use, tools) for use in saying.uses)), None)
        if wrong is not None:
            return Found(len(saying.text), wrong)
        if not saying.is_whole:
            begun = saying.text.rfind(self.OPENING[0], saying.since)
            if begun >= 0 and self.OPENING.startswith(saying.text[begun:]):
                return Found(begun, "", is_sure=False)
        return None


_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def _wrong(use: Use, tools: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The fault of a call by the names, required names and plain types of its schema."""
    if use.name not in tools:
        return "unknown tool"
    try:
        given = json.loads(use.arguments or "{}")
    except (ValueError, RecursionError):
        return "arguments that are no JSON"
    if not isinstance(given, dict):
        return "arguments that are no object"
    schema = tools[use.name]
    properties = schema.get("properties")
    required = schema.get("required")
    properties = properties if isinstance(properties, Mapping) else {}
    if isinstance(required, list) and not all(name in given for name in required):
        return "missing argument"
    if schema.get("additionalProperties") is False and not given.keys() <= properties.keys():
        return "unknown argument"
    return (
        None if all(_fits(value, properties.get(name)) for name, value in given.items()) else "argument of wrong type"
    )


def _fits(value: Any, schema: Any) -> bool:
    named = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = _KINDS.get(named) if isinstance(named, str) else None
    return kinds is None or (isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds))


Score = Callable[[Sequence[str]], Sequence[float]]
AT_LEAST = 0.5
"""The package's own threshold."""
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?]+(?=\s|\Z)|\n|[.!?]+|\Z)")
LONGEST_SENTENCE = 500
"""Characters after which a sentence is judged although it goes on."""


class Toxicity:
    """Sentences that the classifier finds offensive. Each is judged when it has ended, and waits until then."""

    def __init__(self, at_least: float = AT_LEAST) -> None:
        self._at_least = at_least
        self._score = classifier()

    def find(self, saying: Saying) -> Found | None:
        """Find the first hit."""
        for start, end in sentences(saying.text, saying.since):
            has_ended = saying.is_whole or end < len(saying.text) or end - start >= LONGEST_SENTENCE
            if not has_ended:
                return Found(start, "", is_sure=False)
            if self._score([saying.text[start:end]])[0] >= self._at_least:
                return Found(start, "toxic")
        return None


def toxic_sentence(answer: str, at_least: float = AT_LEAST) -> str | None:
    """The first toxic sentence of an answer; None if there is none."""
    found = Toxicity(at_least).find(Saying(text=answer))
    return None if found is None else answer[found.start :]


def sentences(text: str, since: int) -> list[tuple[int, int]]:
    """Begin and end of each sentence from a place on; those without a letter are left out."""
    found = [match.span() for match in _SENTENCE.finditer(text, since)]
    return [(start, end) for start, end in found if any(map(str.isalpha, text[start:end]))]


@cache
def classifier() -> Score:
    """The probability that a text is offensive; a ConfigError where the package is not installed."""
    try:
        from profanity_check import predict_prob
    except ImportError:
        raise ConfigError(
            "kind=toxicity needs a classifier that is not installed: pip install 'loomrl[safety]'. Without it, "
            "kind=blocked with insults=true knows the words of a list."
        ) from None
    score: Score = predict_prob
    return score
