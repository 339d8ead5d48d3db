"""Exact numbers in text: an expression and its value, and whether two answers are the same."""

import re
from fractions import Fraction
from math import gcd

from loomrl.gym.answer import undress

MOST_DIGITS = 40
MOST_BITS = 600
DEEPEST = 20
MOST_EXPONENT = 40
MOST_DECIMALS = 18

_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|[-+*/^()])")
_NUMBER = re.compile(r"[-+]?(?:\d{1,40}|\d{1,3}(?:,\d{3}){1,12})(?:\.\d{1,20})?", re.ASCII)
_RATIO = re.compile(r"([-+]?\d{1,40})\s*/\s*(\d{1,40})", re.ASCII)


class UnreadableAmount(ValueError):
    """No expression, or one without a value."""


def value_of(text: str) -> Fraction:
    """The exact value of an expression with + - * / ^, brackets and decimal numbers."""
    reader = _AmountReader(_tokens(text))
    value = reader.sum()
    if reader.ahead:
        raise UnreadableAmount(f"{reader.ahead!r} was not expected")
    return value


def spelt(value: Fraction) -> str:
    """A number in full: as decimals where these end soon, otherwise as a fraction in lowest terms."""
    for places in range(MOST_DECIMALS):
        scaled = value * 10**places
        if scaled.denominator == 1:
            digits = str(abs(scaled.numerator)).rjust(places + 1, "0")
            text = f"{digits[:-places]}.{digits[-places:]}" if places else digits
            return f"-{text}" if value < 0 else text
    return str(value)


def same_answer(wanted: str, given: str) -> bool:
    """True if an answer is right: numbers by value, other texts except for case, spaces and what stands around them.

    A number is whole, decimal or a fraction in lowest terms: `4500/100` is a division that was not done.
    """
    if len(given) > 400:
        return False
    plain = " ".join(undress(given).split())
    number = _read(wanted)
    if number is not None:
        return _read(plain) == number
    return plain.casefold() == undress(wanted).casefold()


def _read(text: str) -> Fraction | None:
    if _NUMBER.fullmatch(text):
        return Fraction(text.replace(",", ""))
    ratio = _RATIO.fullmatch(text)
    if ratio is None or int(ratio[2]) < 2 or gcd(int(ratio[1]), int(ratio[2])) > 1:
        return None
    return Fraction(int(ratio[1]), int(ratio[2]))


def _tokens(text: str) -> list[str]:
    if not text.isascii():
        raise UnreadableAmount("only digits, + - * / ^ ( ) and the decimal point are understood")
    found = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise UnreadableAmount(f"{text[position : position + 10]!r} has no meaning here")
        if len(match[1]) > MOST_DIGITS:
            raise UnreadableAmount(f"a number has at most {MOST_DIGITS} digits")
        found.append(match[1])
        position = match.end()
    return found


class _AmountReader:
    """Recursive descent that computes as it reads."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    @property
    def ahead(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def sum(self) -> Fraction:
        self._depth += 1
        if self._depth > DEEPEST:
            raise UnreadableAmount("too deeply nested")
        value = self._product()
        while self.ahead in ("+", "-"):
            value = value + self._product() if self._take() == "+" else value - self._product()
        self._depth -= 1
        return value

    def _product(self) -> Fraction:
        value = self._power()
        while self.ahead in ("*", "/"):
            if self._take() == "*":
                value = _check_size(value * self._power())
                continue
            divisor = self._power()
            if not divisor:
                raise UnreadableAmount("division by zero")
            value = _check_size(value / divisor)
        return value

    def _power(self) -> Fraction:
        sign = 1
        while self.ahead in ("+", "-"):
            sign = -sign if self._take() == "-" else sign
        base = self._atom()
        if self.ahead != "^":
            return sign * base
        self._take()
        exponent = self._atom()
        if exponent.denominator != 1 or exponent > MOST_EXPONENT:
            raise UnreadableAmount(f"an exponent is a whole number up to {MOST_EXPONENT}")
        if base.numerator.bit_length() + base.denominator.bit_length() > MOST_BITS // (int(exponent) + 1):
            raise UnreadableAmount("the number becomes too large")
        return sign * base ** int(exponent)

    def _atom(self) -> Fraction:
        token = self._take()
        if token == "(":
            value = self.sum()
            if self._take() != ")":
                raise UnreadableAmount("a bracket is not closed")
            return value
        if not token[:1].isdigit():
            raise UnreadableAmount(
                f"a number was expected before {token!r}" if token else "the expression is not complete"
            )
        return Fraction(token)

    def _take(self) -> str:
        token = self.ahead
        self._position += 1
        return token


def _check_size(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > MOST_BITS:
        raise UnreadableAmount("the number becomes too large")
    return value
