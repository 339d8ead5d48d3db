"""Shared by several kinds of figures: names, Pythagorean triples, and measures."""

from fractions import Fraction
from random import Random

TRIPLES = ((3, 4, 5), (5, 12, 13), (8, 15, 17), (7, 24, 25), (20, 21, 29), (12, 35, 37), (9, 40, 41), (28, 45, 53))
Measure = tuple[str, Fraction, str, list[str]]
"""A question, the number in its answer, the unit, and the steps."""


def triangle_name(rng: Random) -> tuple[str, str, str]:
    """Three corners."""
    p, q, r = rng.choice((("A", "B", "C"), ("P", "Q", "R"), ("D", "E", "F"), ("K", "L", "M"), ("R", "S", "T")))
    return p, q, r
