"""Notation of generators: text for `loomrl.envs.math.syntax`, and LaTeX for the second opinion."""

from collections.abc import Sequence
from decimal import Context, Decimal, Inexact, localcontext
from fractions import Fraction
from math import isqrt

from loomrl.envs.math.syntax import SyntaxNode

Number = int | Fraction


def number(value: Number) -> str:
    """`3`, `-3/4`."""
    return str(Fraction(value))


def decimal(value: Number) -> str:
    """`12.5`: exact; a value without a finite expansion raises `decimal.Inexact`."""
    value = Fraction(value)
    with localcontext(Context(traps=[Inexact])):
        return f"{Decimal(value.numerator) / Decimal(value.denominator):f}"


def bracket(value: Number) -> str:
    """`3`, `(-3)`, `(3/4)`: safe between operators."""
    shown = number(value)
    return shown if shown.isdecimal() else f"({shown})"


def term(coefficient: Number, body: str) -> str:
    """`3x`, `-x`, `(3/4)x`, `5`; an empty body is the constant."""
    if not body:
        return number(coefficient)
    if coefficient == 1:
        return body
    if coefficient == -1:
        return f"-{body}"
    shown = number(coefficient)
    if "/" not in shown:
        return f"{shown}{body}"
    return f"-({shown[1:]}){body}" if shown.startswith("-") else f"({shown}){body}"


def x_power(exponent: int) -> str:
    """`x^3`, `x`, `x^(-2)`, and nothing for exponent 0."""
    return f"x^({exponent})" if exponent < 0 else power("x", exponent)


def times_pi(value: Number) -> str:
    """`12π`, `(3/4)π`."""
    return term(Fraction(value), "π")


def total(terms: Sequence[tuple[Number, str]]) -> str:
    """`3x^2 - x + 4` from coefficients and bodies; zero terms are left out."""
    shown = [term(coefficient, body) for coefficient, body in terms if coefficient]
    if not shown:
        return "0"
    rest = "".join(f" - {text[1:]}" if text.startswith("-") else f" + {text}" for text in shown[1:])
    return shown[0] + rest


def power(variable: str, exponent: int) -> str:
    """`x^3`, `x`, and nothing for exponent 0."""
    if exponent == 0:
        return ""
    return variable if exponent == 1 else f"{variable}^{exponent}"


def polynomial(coefficients: Sequence[Number], variable: str = "x") -> str:
    """Coefficients from the highest power down: `[3, 0, -4]` is `3x^2 - 4`."""
    top = len(coefficients) - 1
    return total([(c, power(variable, top - place)) for place, c in enumerate(coefficients)])


def minus(root: int, variable: str = "x") -> str:
    """`(x - 3)`, and `x` for 0: the factor that is zero at `root`."""
    return f"({polynomial([1, -root], variable)})" if root else variable


def multiply(a: Sequence[Number], b: Sequence[Number]) -> list[Number]:
    """The product of two polynomials."""
    product: list[Number] = [0] * (len(a) + len(b) - 1)
    for i, left in enumerate(a):
        for j, right in enumerate(b):
            product[i + j] += left * right
    return product


def value_at(coefficients: Sequence[Number], x: Number) -> Number:
    """A polynomial's value."""
    result: Number = 0
    for coefficient in coefficients:
        result = result * x + coefficient
    return result


def slope(coefficients: Sequence[Number]) -> list[Number]:
    """A polynomial's derivative."""
    top = len(coefficients) - 1
    return [c * (top - place) for place, c in enumerate(coefficients[:-1])] or [0]


def surd(coefficient: Number, radicand: int) -> str:
    """coefficient · √radicand in simplest form: `6√2`, `5`."""
    outside = next(k for k in range(isqrt(radicand), 0, -1) if radicand % (k * k) == 0)
    inside = radicand // (outside * outside)
    return term(coefficient * outside, "" if inside == 1 else f"√{inside}")


def latex(node: SyntaxNode) -> str:
    """A tree in LaTeX, with every operation bracketed."""
    if node.kind in ("number", "symbol"):
        return node.name.replace("pi", r"\pi ") if node.name else f"({node.number})"
    parts = [latex(part) for part in node.parts]
    if node.kind in ("+", "-"):
        return f"({parts[0]} {node.kind} {parts[1]})"
    if node.kind in _LATEX:
        return _LATEX[node.kind].format(*parts)
    return rf"\{node.kind}({parts[0]})"


_LATEX = {
    "*": r"({0} \cdot {1})",
    "/": r"\frac{{{0}}}{{{1}}}",
    "^": "({0})^{{{1}}}",
    "negate": "(-{0})",
    "abs": "|{0}|",
    "percent": r"\frac{{{0}}}{{100}}",
    "sqrt": r"\sqrt{{{0}}}",
    "root": r"\sqrt[{1}]{{{0}}}",
    "exp": "e^{{{0}}}",
    "mixed": "({0} + {1})",
}
