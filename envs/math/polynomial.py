"""Polynomials over Q, in bounds: a mapping of monomials to rational coefficients.

An *atom* is a name: a variable, `pi`, `ln(x)`, `e^(x)`. A `Squared` atom has a square that is simpler than itself (√2,
√x, sin x), so its exponent is only ever 0 or 1; every other exponent may be negative.
"""

from fractions import Fraction
from math import gcd, lcm

Rational = int | Fraction
Monomial = tuple[tuple[str, int], ...]
Polynomial = dict[Monomial, Rational]

MAX_BITS = 512
MAX_EXPONENT = 60
MAX_NAME = 400


class Unreadable(ValueError):
    """A text or an operation beyond what is supported here. It is never a crash."""


class Squared(str):
    """An atom whose square is a polynomial in other atoms."""

    square: Polynomial


ONE: Polynomial = {(): 1}


def text(polynomial: Polynomial) -> str:
    """One name for one polynomial, whatever order it was built in."""
    terms = sorted(polynomial.items())
    return "+".join("*".join([str(number), *(f"{n}^{e}" for n, e in monomial)]) for monomial, number in terms)


def short_text(polynomial: Polynomial) -> str:
    """The `text`, or Unreadable if it is too long for a name inside another one."""
    name = text(polynomial)
    if len(name) > MAX_NAME:
        raise Unreadable("too deeply nested")
    return name


def content(polynomial: Polynomial) -> Fraction:
    """The positive rational number that, divided out, leaves coprime whole coefficients."""
    numbers = list(polynomial.values())
    return Fraction(gcd(*(n.numerator for n in numbers)), lcm(*(n.denominator for n in numbers)))


def parts(polynomial: Polynomial) -> tuple[Fraction, Monomial, Polynomial]:
    """Content (negative only for a single term), common factors and the primitive rest."""
    number = content(polynomial)
    first, *others = polynomial
    common = dict(first)
    for monomial in others:
        exponents = dict(monomial)
        common = {name: min(e, exponents.get(name, 0)) for name, e in common.items()}
        for name, exponent in exponents.items():
            if exponent < 0:
                common[name] = min(common.get(name, 0), exponent)
    shared = tuple(sorted((name, e) for name, e in common.items() if e))
    if not others:
        return (number if polynomial[first] > 0 else -number), shared, ONE
    inverse = tuple((name, -e) for name, e in shared)
    return number, shared, {_join(m, inverse): tidy(Fraction(c) / number) for m, c in polynomial.items()}


def _join(a: Monomial, b: Monomial) -> Monomial:
    exponents = dict(a)
    for name, exponent in b:
        exponents[name] = exponents.get(name, 0) + exponent
    return tuple(sorted((name, e) for name, e in exponents.items() if e))


def merge(a: Monomial, b: Monomial) -> tuple[Monomial, list[Polynomial]]:
    """The product of two monomials, and the squares that came out of it."""
    if not a:
        return b, []
    if not b:
        return a, []
    merged = _join(a, b)
    squares: list[Polynomial] = []
    for name, exponent in merged:
        if abs(exponent) > 2 * MAX_EXPONENT:
            raise Unreadable("an exponent that is too large")
        if isinstance(name, Squared) and exponent > 1:
            squares.append(name.square)
    if squares:
        merged = tuple((name, e) for name, e in merged if not isinstance(name, Squared) or e == 1)
    return merged, squares


def accumulate(polynomial: Polynomial, monomial: Monomial, number: Rational) -> None:
    """Add a term in place; one that vanishes is dropped."""
    total = polynomial.get(monomial, 0) + number
    if not total:
        polynomial.pop(monomial, None)
        return
    polynomial[monomial] = total


def tidy(number: Rational) -> Rational:
    """A whole number as an int, whatever it was; one with too many digits is Unreadable."""
    if number.numerator.bit_length() > MAX_BITS or number.denominator.bit_length() > MAX_BITS:
        raise Unreadable("a number with too many digits")
    return number.numerator if number.denominator == 1 else number


def exact_root(number: int, degree: int) -> int:
    """The whole root of a whole number, or Unreadable."""
    guess = round(number ** (1 / degree)) if number < 2**52 else 0
    for candidate in (guess - 1, guess, guess + 1):
        if candidate >= 0 and candidate**degree == number:
            return candidate
    raise Unreadable("a root that is not exact")
