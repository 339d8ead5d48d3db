"""Placeholders: the text in the place of a finding. The same value has the same one, another value the next number."""

import re
from typing import Protocol

KINDS = ("key", "password", "email", "phone", "card", "iban", "ip", "mac", "id")
MARK = re.compile(rf"<(?:{'|'.join(KINDS)})-[1-9][0-9]{{0,6}}>")
_MARKED = re.compile(rf"(?:{MARK.pattern}[.,;:)\]}}/&]*)+")


def mark(kind: str, number: int) -> str:
    """The placeholder of the n-th value of a kind."""
    return f"<{kind}-{number}>"


def is_placeholder(text: str) -> bool:
    """True for placeholders with nothing but punctuation behind them."""
    return _MARKED.fullmatch(text) is not None


def drop_numbers(text: str) -> str:
    """The text with all placeholders of a kind equal."""
    return MARK.sub(lambda found: found[0].partition("-")[0] + ">", text)


def normalise(kind: str, value: str) -> str:
    """One form for the ways of writing a value: spaces in a number, capitals in an address."""
    if kind in ("phone", "card", "iban", "mac", "id"):
        return "".join(filter(str.isalnum, value)).casefold()
    return value.casefold().replace("%40", "@") if kind == "email" else value


class Names(Protocol):
    """Gives placeholders to values."""

    def see(self, text: str) -> None:
        """Take note of the placeholders in a text that is to be redacted."""

    def name(self, kind: str, value: str) -> str:
        """The placeholder of a value."""


class Counting:
    """Placeholders by number, beginning after those of a text that has some. It holds the values, in memory only."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._last: dict[str, int] = {}

    def see(self, text: str) -> None:
        """Skip the numbers that the text has."""
        for found in MARK.findall(text):
            kind, _, number = found[1:-1].partition("-")
            self._last[kind] = max(self._last.get(kind, 0), int(number))

    def name(self, kind: str, value: str) -> str:
        """The placeholder of a value; a new value gets the next number."""
        value = normalise(kind, value)
        if value not in self._named:
            self._last[kind] = self._last.get(kind, 0) + 1
            self._named[value] = mark(kind, self._last[kind])
        return self._named[value]
