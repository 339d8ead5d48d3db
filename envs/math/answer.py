"""Answers of problems, and their exact comparison with attempts, by kind and required form."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Literal, NamedTuple

from loomrl.envs.math.form import Form, is_finished, is_finished_equation
from loomrl.envs.math.interval import MAX_ITEMS, read_intervals
from loomrl.envs.math.label import bare, read_statement, without_constant
from loomrl.envs.math.syntax import MAX_LENGTH, SyntaxNode, evaluate, join_thin, join_thousands, read, unwrap_text
from loomrl.envs.math.value import Calculator, Unreadable, Value, atoms, rational

Kind = Literal["value", "set", "tuple", "interval", "equation", "antiderivative"]


class AnswerMatch(Enum):
    """The result of a comparison. UNREADABLE means that our grammar does not cover the attempt."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class MathAnswer:
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


def compare(answer: MathAnswer, attempt: str) -> AnswerMatch:
    """Compare `attempt` with the answer, in bounded time for any text. What stands around an answer does not count."""
    if len(attempt) > MAX_LENGTH:
        return AnswerMatch.UNREADABLE
    calculator = Calculator()
    try:
        given = _COMPARED[answer.kind](answer, bare(attempt), calculator)
    except Unreadable:
        return AnswerMatch.UNREADABLE
    return AnswerMatch.EQUAL if given else AnswerMatch.DIFFERENT


class ReadItem(NamedTuple):
    """One expression of an answer: as it was written, and its exact value."""

    node: SyntaxNode
    value: Value


def _same_value(answer: MathAnswer, attempt: str, calculator: Calculator) -> bool:
    said = read_statement(attempt)
    if any(_is_other(name, answer.names) for name in said.names):
        raise Unreadable("another unknown's value")
    given = _item(_plain(answer, said.answer), answer, calculator)
    truth = _item(answer.text, answer, Calculator())
    same = all(calculator.equal(_item(side, answer, calculator).value, truth.value) for side in said.equal)
    return same and _is_right(given, truth, answer.form, calculator)


def _is_other(name: str, names: tuple[str, ...]) -> bool:
    return bool(names) and len(name) == 1 and name.isascii() and name not in names


def expression(answer: MathAnswer, attempt: str) -> str:
    """The expression that an attempt at a value states: without words, names, unit and separators of thousands."""
    said = read_statement(bare(attempt))
    return attempt if said.equal else _plain(answer, said.answer)


def _plain(answer: MathAnswer, text: str) -> str:
    return join_thousands(_strip_unit(text, answer.unit))


def _is_right(given: ReadItem, truth: ReadItem, form: Form, calculator: Calculator) -> bool:
    return calculator.equal(given.value, truth.value) and is_finished(given.node, truth.node, form)


def _same_set(answer: MathAnswer, attempt: str, calculator: Calculator) -> bool:
    """Equal as sets: `{2, -3}`, `2, -3`, `x = 2 or x = -3`, `1 ± √2`."""
    given = _items(_strip_brackets(attempt, "{["), answer, calculator)
    truth = _items(answer.text, answer, Calculator())
    right = [[_is_right(item, other, answer.form, calculator) for other in truth] for item in given]
    return all(map(any, right)) and all(map(any, zip(*right, strict=True)))


def _same_tuple(answer: MathAnswer, attempt: str, calculator: Calculator) -> bool:
    """Equal one by one: `(2, -3)`, `2, -3`, and with the unknowns named in any order `y = -3, x = 2`."""
    names = answer.names or PLACES
    pieces = _split(_strip_brackets(_in_pairs(attempt, names), "([{" if "=" in attempt else "(["))
    named = [_name_of(piece, names) for piece in pieces]
    if any(named):
        if sorted(named) != sorted(names):
            raise Unreadable("every unknown is to be given once")
        pieces = [pieces[named.index(name)] for name in names]
    given = [_item(_strip_name(piece, names), answer, calculator) for piece in pieces]
    truth = _items(answer.text, answer, Calculator())
    return len(given) == len(truth) and all(
        _is_right(item, other, answer.form, calculator) for item, other in zip(given, truth, strict=True)
    )


PLACES = ("quotient", "remainder")
"""Names for the numbers of a pair without unknowns."""
_REMAINDER = re.compile(
    r"(?:(\d+)|(quotient\b[^a-z]*\d+)),? *(?:with |and )?(?:a )?(?:R|r|remainder) *(?:of |=|:)? *(\d+)", re.I
)


def _in_pairs(text: str, names: tuple[str, ...]) -> str:
    """`(y, x) = (-3, 2)` as `y = -3, x = 2`, `quotient 7, remainder 2` and `7 R 2` as `7, 2`."""
    head, sign, values = text.rpartition("=")
    order = [name.strip(" $") for name in _strip_brackets(head.strip(), "(").split(",")]
    if sign and sorted(order) == sorted(names):
        pieces = _split(_strip_brackets(bare(values), "(["))
        return ", ".join(f"{name} = {piece}" for name, piece in zip(order, pieces, strict=False))
    if names is PLACES and (found := _REMAINDER.fullmatch(text)):
        quotient = found[1] or re.sub(r"\D", "", found[2])
        return f"{quotient}, {found[3]}"
    return text


def _same_equation(answer: MathAnswer, attempt: str, calculator: Calculator) -> bool:
    """Equal up to a constant factor and to the order of the sides."""
    sides = _sides(attempt, answer)
    truth_sides = _sides(answer.text, answer)
    given = _gap(sides, calculator)
    truth = _gap(truth_sides, Calculator())
    return _is_multiple(given, truth, calculator) and is_finished_equation(sides, truth_sides, given)


_FUNCTION = re.compile(r"^\s*[a-zA-Z]\s*\(x\)\s*=")
"""`f(x) = …` for `y = …`."""


def _sides(text: str, answer: MathAnswer) -> list[SyntaxNode]:
    sides = _FUNCTION.sub("y = ", text, count=1).split("=")
    if len(sides) != 2:
        raise Unreadable("an equation has two sides")
    return [read(side, answer.variables) for side in sides]


def _gap(sides: list[SyntaxNode], calculator: Calculator) -> Value:
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


_NAMED_CONSTANT = re.compile(r"\bconst(?:ant\b|\.|\b)|\b[CcKk]_\{?\d\}?|\\(?:text|mathrm)\{\s*[CcKk]\s*\}")


def _without_constants(node: SyntaxNode) -> SyntaxNode | None:
    """A sum without the terms that are a constant's name; None if nothing is left."""
    if node.kind == "symbol" and node.name in CONSTANTS:
        return None
    if node.kind not in ("+", "-"):
        return node
    left, right = map(_without_constants, node.parts)
    if left is None or right is None:
        return left or (right and (right if node.kind == "+" else SyntaxNode("negate", (right,))))
    return node._replace(parts=(left, right))


def _same_antiderivative(answer: MathAnswer, attempt: str, calculator: Calculator) -> bool:
    """Equal up to a constant; a `+ C`, `+ c` or `+ k` may be written."""
    said = read_statement(without_constant(attempt))
    if said.equal:
        raise Unreadable("several antiderivatives")
    letters = answer.variables + CONSTANTS
    node = _without_constants(read(_NAMED_CONSTANT.sub(r"C", said.answer), letters))
    if node is None:
        raise Unreadable("nothing but a constant")
    truth = _item(answer.text, answer, Calculator())
    gap = calculator.subtract(evaluate(node, calculator), truth.value)
    if any(letter in name for name in atoms(gap) for letter in letters):
        return False
    return is_finished(node, truth.node, answer.form)


def _same_interval(answer: MathAnswer, attempt: str, calculator: Calculator) -> bool:
    """Equal unions of intervals: `(-inf, 2] U (5, inf)`, `x <= 2 or x > 5`, `2 < x <= 5`."""
    return read_intervals(attempt, answer.names[0]) == read_intervals(answer.text, answer.names[0])


def _item(text: str, answer: MathAnswer, calculator: Calculator) -> ReadItem:
    node = read(text, answer.variables)
    return ReadItem(node, evaluate(node, calculator))


def _items(text: str, answer: MathAnswer, calculator: Calculator) -> list[ReadItem]:
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


_SEPARATOR = re.compile(r"[,;\n∨]|\\q?quad\b|\\(?:lor|vee)\b|\\?\b(?:and|or)\b|\\text\{ *(?:and|or) *\}", re.IGNORECASE)
_BULLET = re.compile(r"\s*(?:(?:[-*•]|\d{1,2}[.)])\s+(?=[*`$]*[a-z]\w*\s*=)|either\b)", re.IGNORECASE)
_EDGES = " \t*`"
_CASES = re.compile(r"\\(?:begin|end)\{(?:cases|aligned|array)\}")


def _split(text: str) -> list[str]:
    """At commas, semicolons, ends of lines, `and` and `or`; the items hold none of these."""
    plain = text
    if "\\" in text or not text.isascii():
        lines = _CASES.sub("", text).replace("\\\\", "\n")
        plain = _SPACES.sub(" ", join_thin(lines))
    pieces = [_BULLET.sub("", piece).strip(_EDGES).rstrip(".") for piece in _SEPARATOR.split(plain)]
    pieces = [piece for piece in pieces if piece.strip(_EDGES)]
    if not 1 <= len(pieces) <= MAX_ITEMS:
        raise Unreadable(f"between 1 and {MAX_ITEMS} items are read")
    return pieces


def _strip_brackets(text: str, openings: str) -> str:
    """The content of one pair of outer brackets, plain or LaTeX, or the text itself."""
    text = _MEMBER.sub("", text)
    for opening in openings:
        closing = _CLOSING[opening]
        match = re.fullmatch(rf"(?:\\left\s*)?\\?\{opening}(.*?)(?:\\right\s*)?\\?\{closing}", text, re.DOTALL)
        if match:
            return match[1]
    return text


_CLOSING = {"(": ")", "[": "]", "{": "}"}
_MEMBER = re.compile(r"^[a-zA-Z]\s*(?:\\in\b|\bin\b|∈|=(?=\s*\\?\{))\s*")
_INDEX = re.compile(r"(?:_?\{?\d\}?|[₀-₉])$")
_SPACES = re.compile(r"\\[;,:! ]")


def _name_of(text: str, names: tuple[str, ...]) -> str:
    """The unknown that `x = …`, `x_1 = …`, `x: …` or `**x** = …` gives, or an empty text."""
    head, sign, _ = _split_name(text)
    name = _INDEX.sub("", head.strip(" \t\n$*`")) if sign else ""
    if names is PLACES:
        name = next((place for place in PLACES if name.lower() in (place, place[0])), "")
    return name if name in names else ""


def _split_name(text: str) -> tuple[str, str, str]:
    """A name, the sign behind it, and the rest."""
    return text.partition("=" if "=" in text else ":")


def _strip_name(text: str, names: tuple[str, ...]) -> str:
    return (_split_name(text)[2] if _name_of(text, names) else text).strip(" *`")


UNITS = {
    "": r"(?:(?:square|cubic|sq\.?) )?units?(?: *(?:\^ *\{?[23]\}?|[²³]))?",
    "cm": r"cm|centi(?:meter|metre)s?",
    "m": r"m|met(?:er|re)s?",
    "cm^2": r"cm *(?:(?:\^|\*\*)? *\{?2\}?|²)|(?:square|sq\.?) (?:cm|centi(?:meter|metre)s?)",
    "cm^3": r"cm *(?:(?:\^|\*\*)? *\{?3\}?|³)|cubic (?:cm|centi(?:meter|metre)s?)",
    "degrees": r"[°º]|\^ *\{?\\circ\}?|\\degree|degrees?|deg",
    "dollars": r"(?:US )?dollars?|USD",
    "km/h": r"km/h|kph|kilomet(?:er|re)s per hour",
}


_ADVERBS = "(?:long|high|wide|tall|deep|apart|away|now|then|each|altogether|in total)"


def _strip_unit(text: str, unit: str) -> str:
    """The number in front of the problem's unit; another unit stays, and is Unreadable."""
    if not unit and "unit" not in text:
        return text
    plain = re.sub(r"^(?:US ?\$|USD\b)", "", unwrap_text(text).strip()) if unit == "dollars" else unwrap_text(text)
    plain = plain.replace("$", " ").strip()
    return re.sub(rf"(?:(?<![a-z])\(?(?:{UNITS[unit]})\)?)?(?: {_ADVERBS})?$", "", plain)


_COMPARED: dict[Kind, Callable[[MathAnswer, str, Calculator], bool]] = {
    "value": _same_value,
    "set": _same_set,
    "tuple": _same_tuple,
    "interval": _same_interval,
    "equation": _same_equation,
    "antiderivative": _same_antiderivative,
}
