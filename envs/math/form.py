"""In which form an answer was asked for, and whether an attempt has it."""

from collections.abc import Iterator
from enum import Enum
from math import gcd, isqrt

from envs.math.polynomial import ONE, content
from envs.math.syntax import Node, evaluate
from envs.math.value import Calculator, Value, rational


class Form(Enum):
    """What the prompt demands beyond the value."""

    ANY = "any"
    EXPANDED = "expanded"
    """Nothing left to compute: no two numbers to combine, as few terms as the value needs, no product of sums."""
    LOWEST = "lowest"
    """EXPANDED, and every number whole or a fraction in lowest terms."""
    FACTORED = "factored"
    """As many factors as the truth has, each with coprime whole coefficients."""


def has_form(node: Node, value: Value, truth: Node, form: Form) -> bool:
    """Whether a right answer is also written as asked. `truth` is written so."""
    if form is Form.ANY:
        return True
    if form is Form.FACTORED:
        return _is_factored(node, _count_factors(truth))
    return _is_expanded(node, value) and (form is not Form.LOWEST or _is_lowest(node))


def _is_expanded(node: Node, value: Value) -> bool:
    terms = list(_terms(_undivided(node)))
    if value.denominator != ONE:
        return True
    return len(terms) <= max(1, len(value.numerator)) and all(_is_term(term) for term in terms)


def _undivided(node: Node) -> Node:
    """The sum above a number, as in `(1 + √5)/2`; a sum of plain numbers is left where it is, to be found out."""
    if node.kind == "/" and node.parts[0].kind in ("+", "-") and _is_literal(node.parts[1]):
        return node.parts[0]
    return node


def _terms(node: Node) -> Iterator[Node]:
    if node.kind in ("+", "-"):
        for part in node.parts:
            yield from _terms(part)
        return
    yield node


def _factors(node: Node) -> Iterator[Node]:
    """What is multiplied in a term; a divisor counts as a factor unless it completes a fraction of two numbers."""
    if node.kind == "*":
        for part in node.parts:
            yield from _factors(part)
        return
    if node.kind == "negate":
        yield from _factors(node.parts[0])
        return
    if node.kind == "/" and not _is_fraction(node):
        above = list(_factors(node.parts[0]))
        other = [factor for factor in above if not _is_literal(factor)]
        if other and len(above) - len(other) <= 1 and _is_literal(node.parts[1]):
            yield from (*other, node.parts[1])
            return
        yield from above
        yield from _factors(node.parts[1])
        return
    yield node


def _is_term(node: Node) -> bool:
    """One number at most, and no factor that could be computed or multiplied out."""
    if _is_whole_fraction(node):
        return False
    factors = list(_factors(node))
    numbers = [factor for factor in factors if _is_literal(factor)]
    return len(numbers) <= 1 and all(_is_finished(factor) for factor in factors)


def _is_finished(factor: Node) -> bool:
    if _is_literal(factor) or factor.kind == "symbol":
        return True
    if factor.kind == "sqrt":
        return _is_finished_root(factor.parts[0])
    if factor.kind == "^":
        base, exponent = factor.parts
        return not (_is_literal(base) and _is_literal(exponent)) and base.kind not in ("+", "-") and _single(exponent)
    return factor.kind in ("sin", "cos", "tan", "ln", "exp")


def _is_finished_root(radicand: Node) -> bool:
    """Not √(9 + 16), which holds a sum, nor √25, which is 5."""
    number = rational(evaluate(radicand, Calculator()))
    if number is None:
        return True
    return _is_literal(radicand) and (number.denominator != 1 or isqrt(int(number)) ** 2 != number)


def _single(exponent: Node) -> bool:
    return not (exponent.kind in ("+", "-", "*", "/", "^") and rational(evaluate(exponent, Calculator())) is not None)


def _is_literal(node: Node) -> bool:
    """A number as one writes it: 7, 2.5, 3/4, 2 1/2, 15 %."""
    return (
        node.kind in ("number", "mixed")
        or (node.kind == "percent" and _is_literal(node.parts[0]))
        or _is_fraction(node)
    )


def _is_whole_fraction(node: Node) -> bool:
    """14/2, which is 7."""
    if node.kind == "negate":
        return _is_whole_fraction(node.parts[0])
    number = rational(evaluate(node, Calculator())) if node.kind == "/" else None
    return number is not None and number.denominator == 1


def _is_fraction(node: Node) -> bool:
    if node.kind == "negate":
        return _is_literal(node.parts[0])
    return node.kind == "/" and all(
        part.kind == "number" or (part.kind == "negate" and part.parts[0].kind == "number") for part in node.parts
    )


def _is_lowest(node: Node) -> bool:
    if node.kind == "/" and all(part.kind == "number" for part in _unsigned(node.parts)):
        top, bottom = (part.number for part in _unsigned(node.parts))
        return top.denominator == bottom.denominator == 1 < bottom and gcd(int(top), int(bottom)) == 1
    if node.kind == "number":
        return "." not in node.name
    return node.kind != "percent" and all(_is_lowest(part) for part in node.parts)


def _unsigned(parts: tuple[Node, ...]) -> tuple[Node, ...]:
    return tuple(part.parts[0] if part.kind == "negate" else part for part in parts)


def _is_factored(node: Node, wanted: int) -> bool:
    return _count_factors(node) == wanted and all(_is_primitive(factor) for factor, _ in _powers(node))


def _count_factors(node: Node) -> int:
    return sum(exponent for _, exponent in _powers(node))


def _powers(node: Node) -> Iterator[tuple[Node, int]]:
    """The factors that are not numbers, with their exponents."""
    for factor in _factors(node):
        base, exponent = factor, 1
        if factor.kind == "^" and factor.parts[1].kind == "number" and factor.parts[1].number.denominator == 1:
            base, exponent = factor.parts[0], int(factor.parts[1].number)
        if rational(evaluate(base, Calculator())) is None:
            yield base, exponent


def _is_primitive(factor: Node) -> bool:
    value = evaluate(factor, Calculator())
    polynomial = value.denominator == ONE and all(e > 0 for monomial in value.numerator for _, e in monomial)
    return polynomial and content(value.numerator) == 1
