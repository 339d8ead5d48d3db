"""Toxic sentences, by a classifier that ships in a package: a linear model over the words of English comments."""

import re
from collections.abc import Callable, Sequence
from functools import cache

from loomrl.errors import ConfigError
from loomrl.safety.rule import Found, Saying

Score = Callable[[Sequence[str]], Sequence[float]]
AT_LEAST = 0.5
"""The probability at which the package itself draws the line."""
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?]+(?=\s|\Z)|\n|[.!?]+|\Z)")
LONGEST = 500
"""Characters after which a sentence is judged although it goes on."""


class Toxicity:
    """Sentences that the classifier finds offensive. Each is judged when it has ended, and waits until then."""

    def __init__(self, at_least: float = AT_LEAST) -> None:
        self._at_least = at_least
        self._score = classifier()

    def find(self, saying: Saying) -> Found | None:
        """As of `TextRule`."""
        for start, end in sentences(saying.text, saying.since):
            has_ended = saying.is_whole or end < len(saying.text) or end - start >= LONGEST
            if not has_ended:
                return Found(start, "", is_sure=False)
            if self._score([saying.text[start:end]])[0] >= self._at_least:
                return Found(start, "toxic")
        return None


def toxic(answer: str, at_least: float = AT_LEAST) -> str | None:
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
