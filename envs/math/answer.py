"""Answers of problems, and their exact comparison with attempts, by kind and required form."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Literal, NamedTuple

from loomrl.envs.math.form import Form, is_finished, is_finished_equation
from loomrl.envs.math.label import bare, is_label, stated, without_constant
from loomrl.envs.math.polynomial import Unreadable
from loomrl.envs.math.syntax import MAX_LENGTH, Node, Reader, evaluate, join_thousands, read, tokens, unwrap_text
from loomrl.envs.math.value import Calculator, Value, atoms, rational

Kind = Literal["value", "set", "tuple", "interval", "equation", "antiderivative"]
MAX_ITEMS = 12


class Match(Enum):
    """The result of a comparison. UNREADABLE means that our grammar does not cover the attempt."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Answer:
    """The truth as text in plain notation, and how an attempt at it is read.

    `names` are the unknowns an attempt may repeat, as in `x = 3`; `variables` the letters that may occur in it; `unit`
    may follow the number and is not required.
    """

    text: str
    kind: Kind = "value"
    form: Form = Form.EXPANDED
    names: tuple[str, ...] = ()
    variables: str = ""
    unit: str = ""


def compare(answer: Answer, attempt: str) -> Match:
    """Compare `attempt` with the answer, in bounded time for any text. What stands around an answer does not count."""
    if len(attempt) > MAX_LENGTH:
        return Match.UNREADABLE
    calculator = Calculator()
    try:
        given = _COMPARED[answer.kind](answer, bare(attempt), calculator)
    except Unreadable:
        return Match.UNREADABLE
    return Match.EQUAL if given else Match.DIFFERENT


class Item(NamedTuple):
    """One expression of an answer: as it was written, and its exact value."""

    node: Node
    value: Value


def _same_value(answer: Answer, attempt: str, calculator: Calculator) -> bool:
    said = stated(attempt)
    if any(_is_other(name, answer.names) for name in said.names):
        raise Unreadable("another unknown's value")
    given = _item(_plain(answer, said.answer), answer, calculator)
    truth = _item(answer.text, answer, Calculator())
    same = all(calculator.equal(_item(side, answer, calculator).value, truth.value) for side in said.equal)
    return same and _is_right(given, truth, answer.form, calculator)


def _is_other(name: str, names: tuple[str, ...]) -> bool:
    return bool(names) and len(name) == 1 and name.isascii() and name not in names


def expression(answer: Answer, attempt: str) -> str:
    """The expression that an attempt at a value states: without words, names, unit and separators of thousands."""
    said = stated(bare(attempt))
    return attempt if said.equal else _plain(answer, said.answer)


def _plain(answer: Answer, text: str) -> str:
    return join_thousands(_strip_unit(text, answer.unit))


def _is_right(given: Item, truth: Item, form: Form, calculator: Calculator) -> bool:
    return calculator.equal(given.value, truth.value) and is_finished(given.node, truth.node, form)


def _same_set(answer: Answer, attempt: str, calculator: Calculator) -> bool:
    """Equal as sets: `{2, -3}`, `2, -3`, `x = 2 or x = -3`, `1 ± √2`."""
    given = _items(_strip_brackets(attempt, "{", "}"), answer, calculator)
    truth = _items(answer.text, answer, Calculator())
    right = [[_is_right(item, other, answer.form, calculator) for other in truth] for item in given]
    return all(map(any, right)) and all(map(any, zip(*right, strict=True)))


def _same_tuple(answer: Answer, attempt: str, calculator: Calculator) -> bool:
    """Equal one by one: `(2, -3)`, `2, -3`, and with the unknowns named in any order `y = -3, x = 2`."""
    names, _, values = attempt.rpartition("=")
    order = [name.strip(" $") for name in _strip_brackets(names.strip(), "(", ")").split(",")]
    if answer.names and sorted(order) == sorted(answer.names):
        pieces = _split(_strip_brackets(bare(values), "(", ")"))
        attempt = ", ".join(f"{name} = {piece}" for name, piece in zip(order, pieces, strict=False))
    pieces = _split(_strip_brackets(attempt, "(", ")"))
    named = [_name_of(piece, answer.names) for piece in pieces]
    if any(named):
        if sorted(named) != sorted(answer.names):
            raise Unreadable("every unknown is to be given once")
        pieces = [pieces[named.index(name)] for name in answer.names]
    given = [_item(_strip_name(piece, answer.names), answer, calculator) for piece in pieces]
    truth = _items(answer.text, answer, Calculator())
    return len(given) == len(truth) and all(
        _is_right(item, other, answer.form, calculator) for item, other in zip(given, truth, strict=True)
    )


def _same_equation(answer: Answer, attempt: str, calculator: Calculator) -> bool:
    """Equal up to a constant factor and to the order of the sides."""
    sides, truth_sides = _sides(attempt, answer), _sides(answer.text, answer)
    given, truth = _gap(sides, calculator), _gap(truth_sides, Calculator())
    return _is_multiple(given, truth, calculator) and is_finished_equation(sides, truth_sides, given)


_FUNCTION = re.compile(r"^\s*[a-zA-Z]\s*\(x\)\s*=")
"""`f(x) = …` for `y = …`."""


def _sides(text: str, answer: Answer) -> list[Node]:
    sides = _FUNCTION.sub("y = ", text, count=1).split("=")
    if len(sides) != 2:
        raise Unreadable("an equation has two sides")
    return [read(side, answer.variables) for side in sides]


def _gap(sides: list[Node], calculator: Calculator) -> Value:
    left, right = (evaluate(side, calculator) for side in sides)
    return calculator.subtract(left, right)


def _is_multiple(given: Value, truth: Value, calculator: Calculator) -> bool:
    if not given.numerator:
        return False
    factor = rational(calculator.divide(given, truth))
    if factor is not None:
        return factor != 0
    first = next(iter(truth.numerator))
    if first not in given.numerator or given.denominator != truth.denominator:
        return False
    factor = Fraction(given.numerator[first]) / truth.numerator[first]
    return given.numerator == {monomial: number * factor for monomial, number in truth.numerator.items()}


CONSTANTS = "CcKk"


def _is_constant(node: Node) -> bool:
    return node.kind == "symbol" and node.name in CONSTANTS


def _same_antiderivative(answer: Answer, attempt: str, calculator: Calculator) -> bool:
    """Equal up to a constant; a `+ C`, `+ c` or `+ k` may be written."""
    said = stated(without_constant(attempt))
    if said.equal:
        raise Unreadable("several antiderivatives")
    letters = answer.variables + CONSTANTS
    node = read(re.sub(r"\bconst(?:ant|\.)?(?![a-z])", "C", said.answer), letters)
    while node.kind in ("+", "-") and _is_constant(node.parts[1]):
        node = node.parts[0]
    truth = _item(answer.text, answer, Calculator())
    gap = calculator.subtract(evaluate(node, calculator), truth.value)
    if any(letter in name for name in atoms(gap) for letter in letters):
        return False
    return is_finished(node, truth.node, answer.form)


class Piece(NamedTuple):
    """An interval. None is an infinite end."""

    low: Fraction | None
    high: Fraction | None
    low_closed: bool
    high_closed: bool


def _same_interval(answer: Answer, attempt: str, calculator: Calculator) -> bool:
    """Equal unions of intervals: `(-inf, 2] U (5, inf)`, `x <= 2 or x > 5`, `2 < x <= 5`."""
    return _pieces(attempt, answer, calculator) == _pieces(answer.text, answer, calculator)


_BUILDER = re.compile(
    r"\\?\{\s*([a-z])\s*(?:(?:∈|\\in)\s*(?:ℝ|R|\\mathbb\{R\})\s*)?(?:[|:∣]|\\mid\b)\s*(.*?)\\?\}", re.DOTALL
)
"""`{x | x < 3}`"""


def _pieces(text: str, answer: Answer, calculator: Calculator) -> list[Piece]:
    name = answer.names[0]
    if (builder := _BUILDER.fullmatch(text)) and builder[1] == name:
        text = builder[2]
    head, sign, rest = text.partition("=")
    if sign and is_label(head) and rest.strip()[:1] in "([\\":
        text = rest
    found = tokens(re.sub(r"\binf(inity)?\b|\boo\b", "infty", text.replace("-infty", "- infty")))
    if found[:2] == [name, "in"]:
        found = found[2:]
    parts = _parted(found, ("cup", "U", "or"))
    if len(parts) > MAX_ITEMS:
        raise Unreadable("too many intervals")
    pieces = [_piece(part, name, calculator) for part in parts]
    return sorted(pieces, key=lambda piece: (piece.low is not None, piece.low or 0, piece.high or 0))


def _parted(items: list[str], separators: tuple[str, ...]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for item in items:
        if item in separators:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def _piece(part: list[str], name: str, calculator: Calculator) -> Piece:
    if len(part) > 3 and part[0] in "([" and part[-1] in ")]":
        ends = _parted(part[1:-1], (",", ";"))
        if len(ends) != 2:
            raise Unreadable("an interval has two ends")
        low, high = (_end(end, calculator) for end in ends)
        return _checked(Piece(low[0], high[0], part[0] == "[", part[-1] == "]"), low[1], high[1])
    return _inequality(part, name, calculator)


def _inequality(part: list[str], name: str, calculator: Calculator) -> Piece:
    """`x > 3`, `3 < x`, `2 < x <= 5`."""
    signs = [token for token in part if token in _FLIPPED]
    sides = _parted(part, tuple(_FLIPPED))
    if signs and signs[0] in (">", ">="):
        signs, sides = [_FLIPPED[sign] for sign in reversed(signs)], sides[::-1]
    if any(sign not in ("<", "<=") for sign in signs) or [name] not in sides:
        raise Unreadable("not an inequality for the unknown")
    at = sides.index([name])
    if len(sides) == 3 and at == 1:
        low, high = _end(sides[0], calculator), _end(sides[2], calculator)
        return _checked(Piece(low[0], high[0], signs[0] == "<=", signs[1] == "<="), low[1], high[1])
    if len(sides) != 2:
        raise Unreadable("not an inequality for the unknown")
    end, sign = _end(sides[1 - at], calculator), signs[0] == "<="
    if at == 0:
        return _checked(Piece(None, end[0], False, sign), -1, end[1])
    return _checked(Piece(end[0], None, sign, False), end[1], 1)


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _end(part: list[str], calculator: Calculator) -> tuple[Fraction | None, int]:
    """An end of an interval, and the sign of the infinity that it is."""
    if part in (["infty"], ["+", "infty"]):
        return None, 1
    if part == ["-", "infty"]:
        return None, -1
    node = Reader(list(part), "").whole()
    number = rational(evaluate(node, calculator))
    if number is None or not is_finished(node, node, Form.EXPANDED):
        raise Unreadable("an end that is not a rational number, worked out")
    return Fraction(number), 0


def _checked(piece: Piece, low_sign: int, high_sign: int) -> Piece:
    closed_at_infinity = (piece.low is None and piece.low_closed) or (piece.high is None and piece.high_closed)
    empty = piece.low is not None and piece.high is not None and piece.low >= piece.high
    if low_sign > 0 or high_sign < 0 or closed_at_infinity or empty:
        raise Unreadable("not an interval")
    return piece


def _item(text: str, answer: Answer, calculator: Calculator) -> Item:
    node = read(text, answer.variables)
    return Item(node, evaluate(node, calculator))


def _items(text: str, answer: Answer, calculator: Calculator) -> list[Item]:
    pieces = [_strip_name(piece, answer.names) for piece in _split(text)]
    return [_item(sign, answer, calculator) for piece in pieces for sign in _both_signs(piece)]


def _both_signs(text: str) -> tuple[str, ...]:
    """`1 ± √2` as two texts."""
    parts = re.split(r"±|\\pm\b|\+/-", text)
    if len(parts) == 1:
        return (text,)
    if len(parts) > 2:
        raise Unreadable("one ± at most")
    return f"{parts[0]}+{parts[1]}", f"{parts[0]}-{parts[1]}"


_SEPARATOR = re.compile(r"[,;\n∨]|\\q?quad\b|\\(?:lor|vee)\b|\\?\b(?:and|or)\b|\\text\{ *(?:and|or) *\}")


def _split(text: str) -> list[str]:
    """At commas, semicolons, ends of lines, `and` and `or`; the items hold none of these."""
    pieces = [piece for piece in _SEPARATOR.split(text) if piece.strip(" \t*")]
    if not 1 <= len(pieces) <= MAX_ITEMS:
        raise Unreadable(f"between 1 and {MAX_ITEMS} items are read")
    return pieces


def _strip_brackets(text: str, opening: str, closing: str) -> str:
    """The content of one pair of outer brackets, plain or LaTeX, or the text itself."""
    pattern = rf"(?:\\left\s*)?\\?{re.escape(opening)}(.*?)(?:\\right\s*)?\\?{re.escape(closing)}"
    match = re.fullmatch(pattern, re.sub(r"^[a-zA-Z]\s*(?:\\in\b|\bin\b|∈|=(?=\s*\\?\{))\s*", "", text), re.DOTALL)
    return match[1] if match else text


_INDEX = re.compile(r"(?:_\{?\d\}?|[₀-₉])$")


def _name_of(text: str, names: tuple[str, ...]) -> str:
    """The unknown that `x = …`, `x_1 = …` or `**x** = …` gives, or an empty text."""
    head, sign, _ = text.partition("=")
    name = _INDEX.sub("", head.strip(" \t\n$*`")) if sign else ""
    return name if name in names else ""


def _strip_name(text: str, names: tuple[str, ...]) -> str:
    return text.partition("=")[2].strip(" *`") if _name_of(text, names) else text.strip(" *`")


UNITS = {
    "": r"(?:(?:square|cubic|sq\.?) )?units?(?: *(?:\^ *\{?[23]\}?|[²³]))?",
    "cm": r"cm|centi(?:meter|metre)s?",
    "m": r"m|met(?:er|re)s?",
    "cm^2": r"cm *(?:\^ *\{?2\}?|²)|(?:square|sq\.?) (?:cm|centi(?:meter|metre)s?)",
    "cm^3": r"cm *(?:\^ *\{?3\}?|³)|cubic (?:cm|centi(?:meter|metre)s?)",
    "degrees": r"°|\^ *\{?\\circ\}?|degrees?|deg",
    "dollars": r"dollars?|USD",
    "km/h": r"km/h|kph|kilomet(?:er|re)s per hour",
}


def _strip_unit(text: str, unit: str) -> str:
    """The number in front of the problem's unit; another unit stays, and is Unreadable."""
    if not unit and "unit" not in text:
        return text
    plain = unwrap_text(text).strip().strip("$").strip()
    return re.sub(rf"(?<![a-z])(?:{UNITS[unit]})$", "", plain)


_COMPARED: dict[Kind, Callable[[Answer, str, Calculator], bool]] = {
    "value": _same_value,
    "set": _same_set,
    "tuple": _same_tuple,
    "interval": _same_interval,
    "equation": _same_equation,
    "antiderivative": _same_antiderivative,
}
