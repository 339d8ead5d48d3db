"""Generators of test inputs: small recipes that draw one argument."""

from collections.abc import Sequence
from math import isqrt
from random import Random
from string import ascii_lowercase

from loomrl.envs.code.problem import Draw
from loomrl.envs.code.value import Value

_WORD_LIST = (
    "apple bird cloud door engine fish garden house island jacket kite level lemon moon noon ocean paper queen "
    "radar river stone tower uncle voice water yellow zebra ant bee cat dog eel fox owl pig rat Anna Bob civic "
    "deed Eve"
)
WORDS = tuple(_WORD_LIST.split())
TEXT_LETTERS = "aaabbcdeeeiioou xyzAEBT"


def integer(low: int, high: int) -> Draw:
    """A whole number, either end included."""
    return lambda rng: rng.randint(low, high)


def composite(low: int, high: int) -> Draw:
    """A number of this size times some small primes, so that its divisors cannot be guessed."""
    return lambda rng: rng.randint(low, high) * 2 ** rng.randint(0, 4) * 3 ** rng.randint(0, 2) * rng.choice((1, 5, 7))


def nearly_prime(low: int, high: int) -> Draw:
    """A prime number of this size times a small number."""

    def draw(rng: Random) -> int:
        number = rng.randint(low, high)
        while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
            number += 1
        return number * rng.randint(1, 60)

    return draw


def choice(items: Sequence[Value]) -> Draw:
    """One of these."""
    return lambda rng: rng.choice(items)


def flag() -> Draw:
    """True or False."""
    return choice((False, True))


def several(draw: Draw, low: int, high: int) -> Draw:
    """A list of so many; now and then an empty one, where `low` is 0."""
    return lambda rng: [draw(rng) for _ in range(rng.randint(low, high))]


def numbers(low: int = -9, high: int = 20, *, fewest: int = 0, most: int = 9) -> Draw:
    """A list of whole numbers, in which some come again, from narrow ranges as well as wide ones."""

    def draw(rng: Random) -> list[int]:
        top = high if rng.random() < 0.6 else min(high, low + 4)
        return [rng.randint(low, top) for _ in range(rng.randint(fewest, most))]

    return draw


def ascending(draw: Draw) -> Draw:
    """The list in order."""
    return lambda rng: sorted(draw(rng))


def text(letters: str = TEXT_LETTERS, low: int = 0, high: int = 12) -> Draw:
    """Text of these letters."""
    return lambda rng: "".join(rng.choice(letters) for _ in range(rng.randint(low, high)))


def word() -> Draw:
    """A word; half of them are made up."""
    made_up = text(ascii_lowercase[:6], 1, 7)
    return lambda rng: rng.choice(WORDS) if rng.random() < 0.5 else made_up(rng)


def words(low: int = 0, high: int = 6) -> Draw:
    """A list of words, some of which may come again."""
    return several(choice(WORDS[:14] + WORDS[-7:]), low, high)


def sentence(low: int = 1, high: int = 6) -> Draw:
    """Words with single spaces between them."""
    draw = words(low, high)
    return lambda rng: " ".join(draw(rng))


def pairs(first: Draw, second: Draw, low: int = 0, high: int = 6) -> Draw:
    """A list of tuples of two."""
    return lambda rng: [(first(rng), second(rng)) for _ in range(rng.randint(low, high))]


def spans(start: Draw, length: Draw, low: int = 0, high: int = 6) -> Draw:
    """A list of tuples (start, end)."""

    def draw(rng: Random) -> list[tuple[int, int]]:
        starts = [start(rng) for _ in range(rng.randint(low, high))]
        return [(first, first + length(rng)) for first in starts]

    return draw


def mapping(key: Draw, value: Draw, low: int = 0, high: int = 5) -> Draw:
    """A dict."""
    return lambda rng: {key(rng): value(rng) for _ in range(rng.randint(low, high))}


def grid(draw: Draw, low: int = 1, high: int = 4) -> Draw:
    """A list of equally long rows."""

    def rows(rng: Random) -> list[list[Value]]:
        height = rng.randint(low, high)
        width = rng.randint(low, high)
        return [[draw(rng) for _ in range(width)] for _ in range(height)]

    return rows


def sometimes(draw: Draw, other: Draw) -> Draw:
    """Mostly the first, sometimes the second."""
    return lambda rng: other(rng) if rng.random() < 0.35 else draw(rng)
