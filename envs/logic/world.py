"""Sets of worlds as the bits of an integer: a statement is the set of worlds in which it holds."""

from functools import lru_cache
from math import factorial


def everything(count: int) -> int:
    """The set of all of `count` worlds."""
    return (1 << count) - 1


@lru_cache(maxsize=16)
def facts(count: int) -> tuple[int, ...]:
    """For each of `count` facts, the worlds in which it is true; there is one world per subset of the facts."""
    every = everything(1 << count)
    return tuple(every // ((1 << (1 << number)) + 1) << (1 << number) for number in range(count))


@lru_cache(maxsize=16)
def orders(count: int) -> tuple[tuple[int, ...], ...]:
    """At [item][place] the worlds where the item has that place; there is one world for each order of the items."""
    if count == 1:
        return ((1,),)
    block = factorial(count - 1)
    below = orders(count - 1)
    return tuple(
        (
            everything(block) << item * block,
            *(
                sum(below[item - (first < item)][place] << first * block for first in range(count) if first != item)
                for place in range(count - 1)
            ),
        )
        for item in range(count)
    )
