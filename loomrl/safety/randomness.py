"""Recognises randomly drawn characters: neither named by a person nor counted by a program."""

import re
from itertools import filterfalse, pairwise

SHORTEST = 16
"""Minimum number of characters, without words, of a drawn token."""
DOUBT = 5.0
"""Minimum log-odds against words."""
_PAIRS = (
    "abcdgilmnprstuvy baeiloru cacehiklortu dadeilosu eacdefgilmnpqrstvxy faefilor gaehilnorsu haeiot "
    "iabcdefglmnoprstvz kaei ladeilostuy mabeimop nacdefginostuv oabcdgilmnoprstuvw paehilortu qu racdegilmnorstuy "
    "sacehilopstuy tacehilorstuy uabeilmnprst vaei waei xpt yps ze"
)
_COMMON = frozenset(first[0] + second for first in _PAIRS.split() for second in first[1:])
"""Pairs of letters that make up nine tenths of identifiers and words in seven languages, and three tenths of drawn
text."""
_SEGMENT = re.compile(r"[A-Za-z0-9]+")
_DIGITS = re.compile(r"\d+")
_TIME = re.compile(r"\d{8}T\d{6}Z?")
_HEX = re.compile(r"(?:0x)?(?:[0-9a-f]+|[0-9A-F]+)")


def is_drawn(token: str) -> bool:
    """True for a run of letters, digits and signs that looks randomly drawn."""
    body = "".join(filterfalse(_is_known, _SEGMENT.findall(token)))
    letters = sum(map(str.isalpha, body))
    digits = len(_DIGITS.findall(body))
    if len(body) < SHORTEST or 3 * letters < len(body) or len(set(filter(str.isalpha, body.lower()))) < 8:
        return False
    if digits < (2 if body.islower() or body.isupper() else 1):
        return False
    common, pairs = _pairs(body)
    words = 1.1 * common - 1.95 * (pairs - common)  # log-odds: ln .9/.3 and ln .7/.1
    return words - digits - 0.7 * _switches(body) < -DOUBT


def is_word(segment: str) -> bool:
    """True for a word, perhaps with a number behind it, and for a short number."""
    letters = segment.rstrip("0123456789")
    if len(segment) - len(letters) > 4 and letters:
        return False
    if not letters.isalpha():
        return len(segment) <= 4 and not letters
    common, pairs = _pairs(letters)
    return len(letters) <= 3 or common >= 0.6 * pairs


def is_wordy(text: str) -> bool:
    """True for words and short numbers alone, with any signs between them."""
    return all(map(is_word, _SEGMENT.findall(text))) and text.isascii()


def _is_known(segment: str) -> bool:
    return is_word(segment) or _is_hex(segment) or _TIME.fullmatch(segment) is not None


def _is_hex(segment: str) -> bool:
    """True for a hash or its beginning: those are everywhere, and no secrets by themselves."""
    return len(segment) >= 7 and _HEX.fullmatch(segment) is not None


def _pairs(text: str) -> tuple[int, int]:
    """The common ones among the pairs of neighbouring letters, and all. Where a capital begins a word is no pair."""
    pairs = [(a + b).lower() for a, b in pairwise(text) if a.isalpha() and b.isalpha() and not (a > "Z" >= b)]
    return sum(pair in _COMMON for pair in pairs), len(pairs)


def _switches(text: str) -> int:
    """The changes between small letters, capitals and digits; a word's capital is none."""
    return sum(_class(a) != _class(b) and not (a.isupper() and b.islower()) for a, b in pairwise(text))


def _class(letter: str) -> int:
    return 0 if letter.islower() else 1 if letter.isupper() else 2
