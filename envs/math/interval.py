"""Unions of intervals in text: `(-inf, 2] U (5, inf)`, `x <= 2 or x > 5`, `2 < x <= 5`."""

import re
from fractions import Fraction
from typing import NamedTuple

from loomrl.envs.math.form import Form, is_finished
from loomrl.envs.math.label import is_label
from loomrl.envs.math.syntax import SyntaxReader, evaluate, tokens
from loomrl.envs.math.value import Calculator, Unreadable, rational

MAX_ITEMS = 12
"""Intervals of a union, and items of a list."""


class NumberInterval(NamedTuple):
    """An interval. None is an infinite end."""

    low: Fraction | None
    high: Fraction | None
    low_closed: bool
    high_closed: bool


_BUILDER = re.compile(
    r"\\?\{\s*([a-z])\s*(?:(?:∈|\\in)\s*(?:ℝ|R|\\mathbb\{R\})\s*)?(?:[|:∣]|\\mid\b)\s*(.*?)\\?\}", re.DOTALL
)
"""`{x | x < 3}`"""


def read_intervals(text: str, name: str) -> list[NumberInterval]:
    """The union of intervals that a bare text says, from left to right; `name` is the unknown."""
    calculator = Calculator()
    if (builder := _BUILDER.fullmatch(text)) and builder[1] == name:
        text = builder[2]
    text = re.sub(r"\bunion\b", "U", text)
    head, sign, rest = text.partition("=")
    if sign and is_label(head) and rest.strip()[:1] in "([\\":
        text = rest
    found = tokens(re.sub(r"\binf(inity)?\b|\boo\b", "infty", text.replace("-infty", "- infty")))
    if found[:2] == [name, "in"]:
        found = found[2:]
    parts = _split_at(found, ("cup", "U", "or", "OR"))
    if len(parts) > MAX_ITEMS:
        raise Unreadable("too many intervals")
    pieces = [_piece(part, name, calculator) for part in parts]
    return sorted(pieces, key=lambda piece: (piece.low is not None, piece.low or 0, piece.high or 0))


def _split_at(items: list[str], separators: tuple[str, ...]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for item in items:
        if item in separators:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def _piece(part: list[str], name: str, calculator: Calculator) -> NumberInterval:
    if len(part) > 3 and part[0] in "([" and part[-1] in ")]":
        ends = _split_at(part[1:-1], (",", ";"))
        if len(ends) != 2:
            raise Unreadable("an interval has two ends")
        low, high = (_end(end, calculator) for end in ends)
        return _check_ends(NumberInterval(low[0], high[0], part[0] == "[", part[-1] == "]"), low[1], high[1])
    return _inequality(part, name, calculator)


def _inequality(part: list[str], name: str, calculator: Calculator) -> NumberInterval:
    """`x > 3`, `3 < x`, `2 < x <= 5`."""
    signs = [token for token in part if token in _FLIPPED]
    sides = _split_at(part, tuple(_FLIPPED))
    if signs and signs[0] in (">", ">="):
        signs = [_FLIPPED[sign] for sign in reversed(signs)]
        sides = sides[::-1]
    if any(sign not in ("<", "<=") for sign in signs) or [name] not in sides:
        raise Unreadable("not an inequality for the unknown")
    at = sides.index([name])
    if len(sides) == 3 and at == 1:
        low, high = _end(sides[0], calculator), _end(sides[2], calculator)
        return _check_ends(NumberInterval(low[0], high[0], signs[0] == "<=", signs[1] == "<="), low[1], high[1])
    if len(sides) != 2:
        raise Unreadable("not an inequality for the unknown")
    end = _end(sides[1 - at], calculator)
    sign = signs[0] == "<="
    if at == 0:
        return _check_ends(NumberInterval(None, end[0], False, sign), -1, end[1])
    return _check_ends(NumberInterval(end[0], None, sign, False), end[1], 1)


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _end(part: list[str], calculator: Calculator) -> tuple[Fraction | None, int]:
    """An end of an interval, and the sign of the infinity that it is."""
    if part in (["infty"], ["+", "infty"]):
        return None, 1
    if part == ["-", "infty"]:
        return None, -1
    node = SyntaxReader(list(part), "").whole()
    number = rational(evaluate(node, calculator))
    if number is None or not is_finished(node, node, Form.EXPANDED):
        raise Unreadable("an end that is not a rational number, worked out")
    return Fraction(number), 0


def _check_ends(piece: NumberInterval, low_sign: int, high_sign: int) -> NumberInterval:
    closed_at_infinity = (piece.low is None and piece.low_closed) or (piece.high is None and piece.high_closed)
    empty = piece.low is not None and piece.high is not None and piece.low >= piece.high
    if low_sign > 0 or high_sign < 0 or closed_at_infinity or empty:
        raise Unreadable("not an interval")
    return piece
