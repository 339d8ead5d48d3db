"""Invented names, always the same ones."""

from functools import lru_cache
from random import Random

FIRST = ("Ana", "Ben", "Cleo", "Dario", "Edda", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Kaja", "Levi", "Mira",
         "Nils", "Olga", "Pavel", "Rosa", "Sven", "Tilda", "Uwe", "Vera", "Wim", "Yara", "Zeno")  # fmt: skip
THINGS = ("bolt", "hinge", "lamp", "rope", "valve", "pump", "gear", "cable", "brush", "wheel", "filter", "spring",
          "clamp", "hose", "latch", "motor", "pipe", "ring", "screw", "tile")  # fmt: skip
WORDS = ("red", "blue", "green", "old", "new", "cold", "warm", "tall", "small", "quiet", "fox", "owl", "bear", "lynx",
         "hare", "crow", "pike", "moth", "wolf", "seal")  # fmt: skip
_STARTS = ("B", "Br", "D", "Dr", "F", "G", "H", "K", "Kr", "L", "M", "N", "P", "R", "S", "Sk", "T", "Tr", "V", "Z")
_MIDDLES = ("a", "e", "i", "o", "u", "ai", "ei", "ou")
_JOINTS = ("l", "lv", "m", "nd", "r", "rk", "st", "t", "v", "x", "b", "g")
_ENDS = ("a", "en", "is", "or", "um", "eth", "ow", "y", "an", "el")


@lru_cache(maxsize=8)
def invented(kind: str, count: int) -> tuple[str, ...]:
    """`count` different words that sound like names; the same for the same kind, and different for different ones."""
    rng = Random(f"names/{kind}")
    found: dict[str, None] = {}
    while len(found) < count:
        parts = (
            (_STARTS, _MIDDLES, _JOINTS, _MIDDLES, _JOINTS, _ENDS)
            if kind == "town"
            else (_STARTS, _MIDDLES, _JOINTS, _ENDS)
        )
        found["".join(map(rng.choice, parts))] = None
    return tuple(found)
