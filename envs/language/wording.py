"""Allowed differences between two right answers: declared here, and bounded in time for any text."""

import re
import unicodedata

from loomrl.gym.generate import words

LONGEST = 4000
"""Characters of an answer; longer ones are wrong."""


_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "−": "-", "‐": "-", "‑": "-"})
_ARTICLES = ("the ", "a ", "an ")
_EDGES = " \t\n.,;:!?\"'`*"
_SMALL = words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = words("twenty thirty forty fifty sixty seventy eighty ninety")
_WORDS = {word: number for number, word in enumerate(_SMALL)} | {
    tens + ("-" + unit if place else ""): 20 + 10 * decade + place
    for decade, tens in enumerate(_TENS)
    for place, unit in enumerate(_SMALL[:10])
}
_PADDING = re.compile(r"(?<![0-9])0(?=[1-9])")
_NUMBER = re.compile(r"-?[0-9]{1,12}")
_WHOLE = re.compile(r"(-?[0-9]{1,12})\.0+")


def plain(text: str) -> str:
    """`text` in one case, with one kind of space, quote and hyphen, and without invisible marks."""
    composed = unicodedata.normalize("NFC", text[: LONGEST + 1]).translate(_QUOTES)
    visible = "".join(letter for letter in composed if unicodedata.category(letter) != "Cf")
    return " ".join(visible.casefold().split())


def bare(text: str) -> str:
    """`plain`, without an article before it and punctuation around it; a whole number without decimals."""
    found = plain(text).strip(_EDGES)
    article = next((article for article in _ARTICLES if found.startswith(article)), "")
    return _WHOLE.sub(r"\1", found) if _WHOLE.fullmatch(found) else found.removeprefix(article)


def same_name(given: str, truth: str) -> bool:
    """True if both are one name: case, article, and punctuation around it are ignored."""
    return len(given) <= LONGEST and bare(given) == bare(truth)


def same_number(given: str, truth: str) -> bool:
    """True if both are one whole number, in digits or in words; one unit may follow, such as `7 years`."""
    return len(given) <= LONGEST and (number := _number_in(bare(given))) is not None and number == int(truth)


def same_text(given: str, truth: str) -> bool:
    """True if both are equal; case, kinds of space, quotes and full stops around them are ignored."""
    return len(given) <= LONGEST and plain(given).strip("\"'`. ") == plain(truth).strip("\"'`. ")


def same_date(given: str, truth: str) -> bool:
    """`same_text`, but for zeros before the number of a day or a month."""
    return len(given) <= LONGEST and same_text(_PADDING.sub("", given), _PADDING.sub("", truth))


def _number_in(text: str) -> int | None:
    first, _, unit = text.partition(" ")
    first = _WHOLE.sub(r"\1", first)
    if unit not in ("", "people", "person", "years", "year"):
        return None
    if first in _WORDS:
        return _WORDS[first]
    return int(first) if _NUMBER.fullmatch(first) else None
