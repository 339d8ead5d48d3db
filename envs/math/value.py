"""Exact values: rational functions over Q in variables, pi, e, roots, logarithms, sines and cosines.

Two atoms are taken as independent, so that equality is never claimed wrongly, though an exotic identity may be missed.
Roots and logarithms take their arguments to be positive.
"""

from fractions import Fraction
from math import gcd, isqrt, lcm
from typing import NamedTuple

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
    """One name for one polynomial, independent of the order in which it was built."""
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
    """A whole number as an int; one with too many digits is Unreadable."""
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


MAX_TERMS = 100
MAX_PRIME = 10**4
MAX_MULTIPLE_ANGLE = 6


class Value(NamedTuple):
    """Numerator over denominator, neither of them reduced against the other; compare with `Calculator.equal`."""

    numerator: Polynomial
    denominator: Polynomial


def constant(number: Rational) -> Value:
    """A rational number as a value."""
    return Value({(): tidy(number)} if number else {}, ONE)


def atom(name: str) -> Value:
    """A variable or a named constant as a value."""
    return Value({((name, 1),): 1}, ONE)


def rational(value: Value) -> Rational | None:
    """The number that a value is, or None if it is not a rational one."""
    if value.denominator is not ONE and value.denominator != ONE:
        return None
    if not value.numerator:
        return 0
    return value.numerator.get(()) if len(value.numerator) == 1 else None


def atoms(value: Value) -> set[str]:
    """The names that occur in a value."""
    return {name for part in value for monomial in part for name, _ in monomial}


class Calculator:
    """Exact arithmetic that refuses long work: beyond `work` products of terms it raises Unreadable."""

    def __init__(self, work: int = 1500) -> None:
        self.work = work

    def equal(self, a: Value, b: Value) -> bool:
        """True if two values are the same function, by cross multiplication."""
        if a.denominator == b.denominator:
            return a.numerator == b.numerator
        return self._times(a.numerator, b.denominator) == self._times(b.numerator, a.denominator)

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        if a.denominator == b.denominator:
            return Value(self._plus(a.numerator, b.numerator), a.denominator)
        numerator = self._plus(self._times(a.numerator, b.denominator), self._times(b.numerator, a.denominator))
        return Value(numerator, self._times(a.denominator, b.denominator))

    def negate(self, a: Value) -> Value:
        """-a."""
        return Value({monomial: -number for monomial, number in a.numerator.items()}, a.denominator)

    def subtract(self, a: Value, b: Value) -> Value:
        """a - b."""
        return self.add(a, self.negate(b))

    def multiply(self, a: Value, b: Value) -> Value:
        """a · b."""
        return Value(self._times(a.numerator, b.numerator), self._times(a.denominator, b.denominator))

    def divide(self, a: Value, b: Value) -> Value:
        """a / b; a zero divisor is Unreadable."""
        return self.multiply(a, self._inverse(b))

    def power(self, base: Value, exponent: Value) -> Value:
        """base ^ exponent for whole and half exponents, and for a number or e to any exponent."""
        number = rational(exponent)
        if number is None or base.numerator == {(("e", 1),): 1}:
            return self._exponential(base, exponent)
        if number.denominator == 2:
            return self._whole_power(self.root(base), number.numerator)
        if number.denominator != 1:
            root = self.nth_root(base, number.denominator)
            return self._whole_power(root, number.numerator)
        return self._whole_power(base, int(number))

    def root(self, a: Value) -> Value:
        """The positive square root."""
        if a.denominator != ONE:
            product = Value(self._times(a.numerator, a.denominator), ONE)
            return self.divide(self.root(product), Value(a.denominator, ONE))
        if not a.numerator:
            return constant(0)
        content, common, rest = parts(a.numerator)
        result = self._root_of_rational(content)
        for name, exponent in common:
            half = _whole(name, exponent // 2)
            result = self.multiply(result, half)
            if exponent % 2:
                result = self.multiply(result, _squared_atom(f"√{name}", {((name, 1),): 1}))
        if rest != ONE:
            result = self.multiply(result, _squared_atom(f"√({short_text(rest)})", rest))
        return result

    def nth_root(self, a: Value, degree: int) -> Value:
        """The real root of a rational number that is a perfect power; other roots but square ones are Unreadable."""
        if degree == 2:
            return self.root(a)
        number = rational(a)
        if number is None or not 1 <= degree <= 12 or (number < 0 and degree % 2 == 0):
            raise Unreadable("a root that is not exact")
        top, bottom = exact_root(abs(number.numerator), degree), exact_root(number.denominator, degree)
        return constant(Fraction(top if number >= 0 else -top, bottom))

    def logarithm(self, a: Value) -> Value:
        """The natural logarithm, split along products."""
        if a.denominator != ONE:
            return self.subtract(self.logarithm(Value(a.numerator, ONE)), self.logarithm(Value(a.denominator, ONE)))
        if not a.numerator:
            raise Unreadable("the logarithm of 0")
        content, common, rest = parts(a.numerator)
        if content < 0:
            raise Unreadable("the logarithm of a negative number")
        terms = [(f"ln({prime})", exponent) for prime, exponent in self._factors(content.numerator)]
        terms += [(f"ln({prime})", -exponent) for prime, exponent in self._factors(content.denominator)]
        terms += [(f"ln({name})", exponent) for name, exponent in common if name != "e"]
        result = constant(dict(common).get("e", 0))
        if rest != ONE:
            terms.append((f"ln({short_text(rest)})", 1))
        for name, exponent in terms:
            result = self.add(result, self.multiply(constant(exponent), atom(name)))
        return result

    def sine(self, a: Value) -> Value:
        """sin a."""
        return self._circular(a)[0]

    def cosine(self, a: Value) -> Value:
        """cos a."""
        return self._circular(a)[1]

    def _spend(self, work: int) -> None:
        # a budget of work instead of seconds: a text is unreadable on every machine or on none
        self.work -= work
        if self.work < 0:
            raise Unreadable("too much to compute")

    def _plus(self, a: Polynomial, b: Polynomial) -> Polynomial:
        self._spend(1 + min(len(a), len(b)))
        if len(a) < len(b):
            a, b = b, a
        total = dict(a)
        for monomial, number in b.items():
            accumulate(total, monomial, number)
        return total

    def _times(self, a: Polynomial, b: Polynomial) -> Polynomial:
        if a is ONE:
            return b
        if b is ONE:
            return a
        self._spend(1 + len(a) * len(b))
        product: Polynomial = {}
        for left, p in a.items():
            for right, q in b.items():
                monomial, reduced = merge(left, right)
                if not reduced:
                    accumulate(product, monomial, tidy(p * q))
                    continue
                term: Polynomial = {monomial: tidy(p * q)}
                for square in reduced:
                    term = self._times(term, square)
                for piece, number in term.items():
                    accumulate(product, piece, number)
        if len(product) > MAX_TERMS:
            raise Unreadable("too many terms")
        return ONE if product == ONE else product

    def _inverse(self, a: Value) -> Value:
        if not a.numerator:
            raise Unreadable("a division by 0")
        if len(a.numerator) > 1:
            return self._over(a.denominator, a.numerator)
        [(monomial, number)] = a.numerator.items()
        free: Polynomial = {
            tuple((name, -e) for name, e in monomial if not isinstance(name, Squared)): tidy(Fraction(1) / number)
        }
        result = Value(self._times(a.denominator, free), ONE)
        for name, _ in monomial:
            if isinstance(name, Squared):
                result = self.multiply(result, Value({((name, 1),): 1}, ONE))
                result = self.multiply(result, self._inverse(Value(name.square, ONE)))
        return result

    def _over(self, numerator: Polynomial, denominator: Polynomial) -> Value:
        """The quotient with a denominator free of content and of common factors."""
        content, common, rest = parts(denominator)
        plain = all(not isinstance(name, Squared) for name, _ in common)
        if not plain:
            return Value(numerator, denominator)
        scale: Polynomial = {tuple((name, -e) for name, e in common): tidy(Fraction(1) / content)}
        return Value(self._times(numerator, scale), rest)

    def _whole_power(self, base: Value, exponent: int) -> Value:
        if abs(exponent) > MAX_EXPONENT:
            raise Unreadable("an exponent that is too large")
        if exponent < 0:
            base = self._inverse(base)
            exponent = -exponent
        result = Value(ONE, ONE)
        while exponent:
            if exponent & 1:
                result = self.multiply(result, base)
            exponent >>= 1
            if exponent:
                base = self.multiply(base, base)
        return result

    def _exponential(self, base: Value, exponent: Value) -> Value:
        """base ^ exponent as a product of powers of e or of primes, one for each term of the exponent."""
        if exponent.denominator != ONE:
            raise Unreadable("an exponent that is a quotient")
        number = rational(base)
        if number is None and base.numerator != {(("e", 1),): 1}:
            raise Unreadable("a power with a variable in base and exponent")
        if number is not None and number <= 0:
            raise Unreadable("a power of a number that is not positive")
        bases: list[tuple[str, int]] = [("e", 1)]
        if number is not None:
            bases = [(str(prime), e) for prime, e in self._factors(number.numerator)]
            bases += [(str(prime), -e) for prime, e in self._factors(number.denominator)]
        result = Value(ONE, ONE)
        for name, multiplicity in bases:
            for monomial, coefficient in exponent.numerator.items():
                times = tidy(coefficient * multiplicity)
                result = self.multiply(result, self._elementary(name, monomial, times))
        return result

    def _elementary(self, base: str, monomial: Monomial, times: Rational) -> Value:
        """base ^ (times · monomial)."""
        if not monomial and base != "e":
            return self.power(constant(int(base)), constant(times))
        whole = times.numerator
        share = times.denominator
        if abs(whole) > MAX_EXPONENT:
            raise Unreadable("an exponent that is too large")
        if not monomial and share == 1:
            return _whole("e", whole)
        return _whole(f"{base}^({short_text({monomial: tidy(Fraction(1, share))})})", whole)

    def _root_of_rational(self, number: Rational) -> Value:
        if number < 0:
            raise Unreadable("the root of a negative number")
        product = number.numerator * number.denominator
        exact = isqrt(product)
        if exact * exact == product:
            return constant(Fraction(exact, number.denominator))
        result = constant(Fraction(1, number.denominator))
        for prime, exponent in self._factors(product):
            result = self.multiply(result, constant(prime ** (exponent // 2)))
            if exponent % 2:
                result = self.multiply(result, _squared_atom(f"√{prime}", {(): prime}))
        return result

    def _factors(self, number: int) -> list[tuple[int, int]]:
        """Prime factors with their exponents, ascending."""
        self._spend(isqrt(min(number, MAX_PRIME**2)) // 100)
        found = []
        prime = 2
        while prime * prime <= number:
            exponent = 0
            while number % prime == 0:
                number //= prime
                exponent += 1
            if exponent:
                found.append((prime, exponent))
            prime += 1 if prime == 2 else 2
            if prime > MAX_PRIME:
                raise Unreadable("a number that is too large to factor")
        return [*found, (number, 1)] if number > 1 else found

    def _circular(self, a: Value) -> tuple[Value, Value]:
        """(sin a, cos a): exact at multiples of pi/4 and pi/6, multiple angles expanded, otherwise atoms."""
        if a.denominator != ONE:
            raise Unreadable("the sine of a quotient")
        if not a.numerator:
            return constant(0), constant(1)
        if set(a.numerator) == {(("pi", 1),)}:
            return self._at_turn(Fraction(a.numerator[("pi", 1),]) / 2)
        content, _, _ = parts(a.numerator)
        if max(a.numerator.items())[1] < 0:
            sine, cosine = self._circular(self.negate(a))
            return self.negate(sine), cosine
        times = abs(content.numerator)
        if not 1 <= times <= MAX_MULTIPLE_ANGLE:
            times = 1
        name = short_text(self.divide(a, constant(times)).numerator)
        cos = atom(f"cos({name})")
        sin = _squared_atom(f"sin({name})", self._plus(ONE, {((f"cos({name})", 2),): -1}))
        sine = sin
        cosine = cos
        for _ in range(times - 1):
            sine, cosine = (
                self.add(self.multiply(sine, cos), self.multiply(cosine, sin)),
                self.subtract(self.multiply(cosine, cos), self.multiply(sine, sin)),
            )
        return sine, cosine

    def _at_turn(self, turn: Fraction) -> tuple[Value, Value]:
        """(sin, cos) of a share of a full turn, from the first eighth of the circle by symmetry."""
        turn %= 1
        if turn > Fraction(1, 2):
            sine, cosine = self._at_turn(1 - turn)
            return self.negate(sine), cosine
        if turn > Fraction(1, 4):
            sine, cosine = self._at_turn(Fraction(1, 2) - turn)
            return sine, self.negate(cosine)
        if turn > Fraction(1, 8):
            sine, cosine = self._at_turn(Fraction(1, 4) - turn)
            return cosine, sine
        half = constant(Fraction(1, 2))
        exact = {
            Fraction(0): (constant(0), constant(1)),
            Fraction(1, 12): (half, self.multiply(half, self.root(constant(3)))),
            Fraction(1, 8): (self.multiply(half, self.root(constant(2))),) * 2,
        }
        if turn not in exact:
            raise Unreadable("the sine of an angle that has no simple one")
        sine, cosine = exact[turn]
        return sine, cosine


def _squared_atom(name: str, square: Polynomial) -> Value:
    made = Squared(name)
    made.square = square
    return Value({((made, 1),): 1}, ONE)


def _whole(name: str, exponent: int) -> Value:
    if not exponent:
        return Value(ONE, ONE)
    return Value({((name, exponent),): 1}, ONE)
