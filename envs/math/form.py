"""Finished answers by form, and checks of attempts.

A closed grammar: what no rule names is unfinished. The table for users is in docs/environments.md, "Finished answers".
A form is judged only after the value was found right.
"""

from collections.abc import Iterator
from enum import Enum
from fractions import Fraction
from math import gcd
from typing import NamedTuple

from loomrl.envs.math.syntax import FUNCTIONS, UNCOMPUTED, SyntaxNode, combine, evaluate, without_bars
from loomrl.envs.math.value import (
    MAX_EXPONENT,
    ONE,
    Calculator,
    Unreadable,
    Value,
    atom,
    atoms,
    content,
    parts,
    rational,
)


class Form(Enum):
    """The form that the prompt requires."""

    ANY = "any"
    """Every number worked out; brackets and like terms may stay."""
    AS_GIVEN = "as given"
    """ANY, and as short as the truth: for answers that someone else wrote."""
    EXPANDED = "expanded"
    """Nothing left to compute: a number, or terms that are collected."""
    LOWEST = "lowest"
    """A whole number or a fraction in lowest terms."""
    FACTORED = "factored"
    """The same number of factors as the truth, each with coprime whole coefficients."""


def is_finished(node: SyntaxNode, truth: SyntaxNode, form: Form) -> bool:
    """True if a right answer also has the required form, as `truth` does."""
    if form is Form.ANY:
        return _is_elementary_for(truth, node)
    if form is Form.AS_GIVEN:
        return _is_elementary_for(truth, node) and _size(node) <= _size(truth)
    if form is Form.FACTORED:
        return _is_factored(node, _count_factors(truth))
    if form is Form.LOWEST:
        return is_literal(node) and _is_lowest(node)
    return _is_expanded(node)


def is_finished_equation(sides: list[SyntaxNode], truth: list[SyntaxNode], gap: Value) -> bool:
    """True if an equation with the difference `gap` of its sides is finished."""
    terms = [_strip_sign(term) for side in sides for term in _terms(side)]
    loose = [term for term in terms if is_literal(term) and term.number != 0]
    letters = [leaf.name for side in sides for leaf in _leaves(side) if leaf.kind == "symbol"]
    given = [leaf.name for side in truth for leaf in _leaves(side) if leaf.kind == "symbol"]
    return (
        len(loose) <= 1
        and all(_is_elementary_for(side, side) for side in sides)
        and all(
            letters.count(name) <= max(given.count(name), sum(name in dict(m) for m in gap.numerator))
            for name in letters
        )
    )


# Literals


def is_literal(node: SyntaxNode) -> bool:
    """True if a node is a plain number."""
    node = _strip_sign(node)
    if node.kind == "mixed":
        return _is_fraction(node.parts[1]) and node.parts[1].parts[0].number < node.parts[1].parts[1].number
    if node.kind == "percent":
        return node.parts[0].kind == "number"
    return node.kind == "number" or _is_fraction(node)


def _is_fraction(node: SyntaxNode) -> bool:
    """Whole over whole, in lowest terms."""
    if node.kind != "/":
        return False
    top, bottom = map(_strip_sign, node.parts)
    return _is_whole(top) and _is_whole(bottom) and bottom.number > 1 == gcd(int(top.number), int(bottom.number))


def _is_whole(node: SyntaxNode) -> bool:
    return node.kind == "number" and node.name.isdecimal()


def _is_lowest(node: SyntaxNode) -> bool:
    return node.kind != "percent" and all(_is_lowest(part) for part in node.parts) and "." not in node.name


def _strip_sign(node: SyntaxNode) -> SyntaxNode:
    while node.kind == "negate":
        node = node.parts[0]
    return node


# Terms and factors


def _terms(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """The terms of a sum."""
    if node.kind in ("+", "-"):
        for part in node.parts:
            yield from _terms(part)
        return
    yield node


class Product(NamedTuple):
    """The factors of a term without their signs; a literal is one factor."""

    above: tuple[SyntaxNode, ...]
    below: tuple[SyntaxNode, ...] = ()

    @property
    def numbers(self) -> tuple[list[SyntaxNode], list[SyntaxNode]]:
        """The literals above and below."""
        return [f for f in self.above if is_literal(f)], [f for f in self.below if is_literal(f)]

    @property
    def others(self) -> tuple[list[SyntaxNode], list[SyntaxNode]]:
        """The factors above and below that are not plain numbers."""
        return [f for f in self.above if not is_literal(f)], [f for f in self.below if not is_literal(f)]


def _product(node: SyntaxNode) -> Product:
    node = _strip_sign(node)
    if node.kind not in ("*", "/") or is_literal(node):
        return Product((node,))
    left, right = map(_product, node.parts)
    if node.kind == "/":
        right = Product(right.below, right.above)
    return Product(left.above + right.above, left.below + right.below)


def _has_one_number(product: Product) -> bool:
    """At most one literal above; one whole number below, against which a number above does not cancel."""
    above, below = product.numbers
    if len(above) > 1 or len(below) > 1:
        return False
    if not below:
        return True
    bottom = below[0]
    if not _is_whole(bottom) or bottom.number < 2:
        return False
    return not above or (_is_whole(above[0]) and gcd(int(above[0].number), int(bottom.number)) == 1)


def _power(node: SyntaxNode) -> tuple[SyntaxNode, Fraction]:
    """Base and exponent, where that is a plain number; otherwise the node itself and 1."""
    if node.kind == "^" and is_literal(node.parts[1]):
        exponent = rational(evaluate(node.parts[1], Calculator()))
        assert exponent is not None
        return node.parts[0], Fraction(exponent)
    return node, Fraction(1)


# EXPANDED


def _is_expanded(node: SyntaxNode) -> bool:
    value = evaluate(node, Calculator())
    if rational(value) is not None:
        return is_literal(node)
    terms = list(_terms(_over_whole(_strip_sign(node))))
    return len(terms) <= len(value.numerator) and all(map(_is_simple_term, terms))


def _over_whole(node: SyntaxNode) -> SyntaxNode:
    """The sum above a whole number against which it does not cancel, as in `(1 + √5)/2`; else the node."""
    if node.kind != "/" or not _is_whole(node.parts[1]) or node.parts[1].number < 2:
        return node
    top = _strip_sign(node.parts[0])
    if top.kind not in ("+", "-"):
        return node
    numbers = [_product(term).numbers[0] or [ONE_NODE] for term in _terms(top)]
    whole = [found[0].number for found in numbers if _is_whole(found[0])]
    cancels = gcd(int(node.parts[1].number), *map(int, whole)) > 1
    return node if cancels or len(whole) < len(numbers) else top


ONE_NODE = SyntaxNode("number", number=Fraction(1), name="1")


def _is_simple_term(term: SyntaxNode) -> bool:
    """A literal times powers of letters and at most one root of a literal."""
    product = _product(term)
    above, below = product.others
    roots = [factor for factor in (*above, *below) if factor.kind == "sqrt"]
    powers = [_power(factor) for factor in above if factor.kind != "sqrt"]
    return (
        _has_one_number(product)
        and len(roots) <= 1
        and all(_is_literal_root(root) for root in roots)
        and all(factor.kind == "sqrt" for factor in below)
        and all(base.kind == "symbol" and exponent >= 1 == exponent.denominator for base, exponent in powers)
    )


def _is_literal_root(root: SyntaxNode) -> bool:
    """√50, but not √25, which is 5, nor √(9 + 16)."""
    radicand = root.parts[0]
    return is_literal(radicand) and rational(evaluate(root, Calculator())) is None


# FACTORED


def _is_factored(node: SyntaxNode, wanted: int) -> bool:
    product = _product(node)
    factors = product.others[0]
    return (
        not product.below
        and len(product.numbers[0]) <= 1
        and all(_is_prime_power(*_power(factor)) for factor in factors)
        and _count_factors(node) == wanted
    )


def _count_factors(node: SyntaxNode) -> int:
    """Every factor that is no number, as often as its exponent says."""
    return sum(int(exponent) for _, exponent in map(_power, _product(node).others[0]))


def _is_prime_power(base: SyntaxNode, exponent: Fraction) -> bool:
    if exponent < 1 or exponent.denominator != 1:
        return False
    if base.kind == "symbol":
        return True
    value = evaluate(base, Calculator())
    return base.kind in ("+", "-") and _is_expanded(base) and content(value.numerator) == 1


# ANY


def _is_elementary_for(truth: SyntaxNode, node: SyntaxNode) -> bool:
    """True if everything is computed; a quotient of sums may remain only if the truth is one."""
    try:
        value = _finish_value(node, Calculator())
        plain = _finish_value(truth, Calculator())
    except _Unfinished:
        return False
    cancelled = value is not None and plain is not None and plain.denominator == ONE != value.denominator
    return not cancelled and _is_elementary(node)


class _Unfinished(Exception):
    """A part that is left to compute."""


def _finish_value(node: SyntaxNode, calculator: Calculator) -> Value | None:
    """The value of a tree, None if it cannot be computed; _Unfinished if a computation remains in it."""
    if is_literal(node):
        return evaluate(node, calculator)
    if node.kind in UNCOMPUTED:
        return atom(str(node))
    node = without_bars(node)
    values = [_finish_value(part, calculator) for part in node.parts]
    known = [value for value in values if value is not None]
    if node.kind in ("+", "-") and _may_be_idle(known) and _has_idle_terms(node):
        raise _Unfinished
    if len(known) < len(values):
        return None
    try:
        value = combine(node, known, calculator)
    except Unreadable:
        return None
    if rational(value) is not None:
        raise _Unfinished
    if node.kind in ("+", "-") and _cancels(known, value):
        raise _Unfinished
    if node.kind in _MARKS and not any(name.startswith(_MARKS[node.kind]) for name in atoms(value)):
        raise _Unfinished
    return value


_MARKS = {"sqrt": ("√",), "ln": ("ln(",), "exp": ("e",), **dict.fromkeys(("sin", "cos", "tan"), ("sin(", "cos("))}
"""Marks of functions that remain in a value that could not be computed."""


def _cancels(sides: list[Value], total: Value) -> bool:
    """True if a single term, or more than half of all terms, cancels from the sum."""
    if any(side.denominator != total.denominator for side in sides):
        return False
    terms = {monomial for side in sides for monomial in side.numerator}
    gone = terms - {*total.numerator}
    single = any(len(side.numerator) == 1 and gone & {*side.numerator} for side in sides)
    return single or 2 * len(gone) > len(terms)


def _is_elementary(node: SyntaxNode) -> bool:
    node = _strip_sign(node)
    if is_literal(node) or node.kind == "symbol":
        return True
    if node.kind in ("+", "-"):
        terms = list(_terms(node))
        return sum(map(is_literal, terms)) <= 1 and all(map(_is_elementary, terms))
    if node.kind in ("*", "/"):
        return _is_elementary_product(_product(node))
    if node.kind == "^":
        return _is_elementary_power(*node.parts)
    if node.kind not in FUNCTIONS:
        return False
    [argument] = without_bars(node).parts
    leaves = list(_leaves(argument))
    if node.kind in UNCOMPUTED and not any(leaf.kind == "symbol" for leaf in leaves):
        return False
    nested = FUNCTIONS if node.kind in UNCOMPUTED else UNCOMPUTED
    return not any(leaf.kind in nested for leaf in leaves) and _is_elementary(argument)


def _may_be_idle(sides: list[Value]) -> bool:
    """False if the two sides of a sum share no monomial; then nothing cancels between them."""
    return len(sides) < 2 or not sides[0].numerator.keys().isdisjoint(sides[1].numerator)


def _has_idle_terms(node: SyntaxNode) -> bool:
    """True if some terms of a sum add up to nothing, as in `24x + x - x` and `24x + 3x - x - 2x`."""
    calculator = Calculator()
    try:
        values = [_value_with_sign(sign, term, calculator) for sign, term in _terms_with_signs(node)]
        sums: list[Value] = []
        for value in values:
            longer = [calculator.add(some, value) for some in sums]
            if not all(some.numerator for some in longer):
                return True
            sums += [value, *longer] if len(sums) < MOST_SUMS else [value]
    except Unreadable:
        return False
    return False


MOST_SUMS = 255
"""All sums of the first eight terms are tried; later terms are compared with these and with each other."""


def _terms_with_signs(node: SyntaxNode, sign: int = 1) -> Iterator[tuple[int, SyntaxNode]]:
    """The terms of a sum, brackets in it opened."""
    if node.kind == "negate":
        yield from _terms_with_signs(node.parts[0], -sign)
    elif node.kind in ("+", "-"):
        yield from _terms_with_signs(node.parts[0], sign)
        yield from _terms_with_signs(node.parts[1], -sign if node.kind == "-" else sign)
    else:
        yield sign, node


def _value_with_sign(sign: int, term: SyntaxNode, calculator: Calculator) -> Value:
    try:
        value = evaluate(term, calculator)
    except Unreadable:
        value = atom(str(term))
    return value if sign > 0 else calculator.negate(value)


def _is_elementary_product(product: Product) -> bool:
    above, below = product.others
    roots = [factor for factor in (*above, *below) if factor.kind == "sqrt"]
    return (
        _has_one_number(product)
        and len(roots) <= 1
        and all(map(_is_elementary, (*above, *below)))
        and not {_base(factor) for factor in above} & {_base(factor) for factor in below}
    )


def _base(factor: SyntaxNode) -> str:
    """One name for a factor, its power and its multiples: what may not stand above and below a line."""
    base, _ = _power(factor)
    try:
        _, _, rest = parts(evaluate(base, Calculator()).numerator)
    except Unreadable:
        return str(base)
    first = next(iter(sorted(rest)), ())
    sign = -1 if rest.get(first, 1) < 0 else 1
    return str(sorted((m, sign * n) for m, n in rest.items())) if rest != ONE else str(base)


def _is_elementary_power(base: SyntaxNode, exponent: SyntaxNode) -> bool:
    if not is_literal(exponent):
        return (is_literal(base) or base.kind == "symbol") and _is_elementary(exponent)
    _, number = _power(SyntaxNode("^", (base, exponent)))
    return abs(number) <= MAX_EXPONENT and base.kind not in ("sqrt", "^") and _is_elementary(base)


def _leaves(node: SyntaxNode) -> Iterator[SyntaxNode]:
    """The literals, letters and functions in a tree."""
    if is_literal(node):
        yield _strip_sign(node)
        return
    if node.kind in ("symbol", *FUNCTIONS):
        yield node
    for part in node.parts:
        yield from _leaves(part)


def _size(node: SyntaxNode) -> int:
    return sum(1 for _ in _leaves(node))
