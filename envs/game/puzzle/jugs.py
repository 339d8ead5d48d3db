"""Measuring with jugs, a tap and a sink."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random

from loomrl.gym.generate import between

NAMES = "abc"
Litres = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Jugs:
    """Jugs with water in them."""

    capacity: Litres
    target: int
    water: Litres

    @property
    def rules(self) -> str:
        """The goal and the moves."""
        return (
            f"Measure exactly {self.target} litres in one of the jugs. Moves: fill a, empty a, pour a b, which ends "
            "when a is empty or b is full."
        )

    def shown(self) -> str:
        """The water in every jug, with its capacity."""
        return "\n".join(
            f"{name}: {water} of {most}" for name, water, most in zip(NAMES, self.water, self.capacity, strict=False)
        )

    def moves(self) -> Sequence[str]:
        """The moves that change anything."""
        return list(_changes(self.capacity, self.water))

    def after(self, move: str) -> "Jugs":
        """The state after a move."""
        return replace(self, water=_changes(self.capacity, self.water)[move])

    def distance(self) -> int | None:
        """From the table of all that can be reached."""
        return _distances(self.capacity, self.target).get(self.water)


def make_jugs(level: int, rng: Random) -> Jugs:
    """Empty jugs and a target that takes as many moves as the level says; with two jugs there are even numbers only."""
    wanted = between(level, 4, 13)
    while True:
        count = 2 if level < 4 else rng.choice((2, 2, 3))
        capacity = tuple(sorted(rng.sample(range(3, 7 + level), count)))
        targets = [target for target, distance in _targets(capacity).items() if distance in (wanted, wanted + 1)]
        if targets:
            return Jugs(capacity, rng.choice(targets), (0,) * count)


@lru_cache(maxsize=4096)
def _targets(capacity: Litres) -> Mapping[int, int]:
    """Of every amount that can be measured, how many moves it takes from empty jugs at least."""
    known = {(0,) * len(capacity): 0}
    border = [(0,) * len(capacity)]
    found = {0: 0}
    for water in border:
        for after in _changes(capacity, water).values():
            if after not in known:
                known[after] = known[water] + 1
                border.append(after)
                for litres in after:
                    found.setdefault(litres, known[after])
    return found


def _changes(capacity: Litres, water: Litres) -> Mapping[str, Litres]:
    """Move → the resulting water, for all moves that change anything."""
    found = {}
    for a, name in enumerate(NAMES[: len(water)]):
        found[f"fill {name}"] = _with(water, {a: capacity[a]})
        found[f"empty {name}"] = _with(water, {a: 0})
        for b, other in enumerate(NAMES[: len(water)]):
            poured = min(water[a], capacity[b] - water[b])
            if a != b:
                found[f"pour {name} {other}"] = _with(water, {a: water[a] - poured, b: water[b] + poured})
    return {move: after for move, after in found.items() if after != water}


def _with(water: Litres, changed: Mapping[int, int]) -> Litres:
    return tuple(changed.get(jug, litres) for jug, litres in enumerate(water))


@lru_cache(maxsize=256)
def _distances(capacity: Litres, target: int) -> Mapping[Litres, int]:
    """Of every state that can be reached from empty jugs, the moves to the target; those without a way are missing."""
    before: dict[Litres, list[Litres]] = {(0,) * len(capacity): []}
    border = list(before)
    for water in border:
        for after in _changes(capacity, water).values():
            if after not in before:
                before[after] = []
                border.append(after)
            before[after].append(water)
    known = {water: 0 for water in before if target in water}
    border = list(known)
    for water in border:
        for earlier in before[water]:
            if earlier not in known:
                known[earlier] = known[water] + 1
                border.append(earlier)
    return known
