"""Numbers of the trajectories judged before, and their exact statistics."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation of so many numbers."""

    count: int
    mean: float
    deviation: float


NOTHING = Spread(0, math.nan, math.nan)


class Trail:
    """The last `limit` trajectories with their numbers, in the order in which they were judged last.

    Numbers are counted in units of 1 / `per`, as integers: the statistics are exact, and equal whether the trail grew
    number by number or was read from the record.
    """

    def __init__(self, limit: int, *, per: int = 1) -> None:
        self._limit = limit
        self._per = per
        self._kept: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._sums: dict[str, list[int]] = {}
        """Name → count, sum, sum of squares."""

    def add(self, trajectory: str, numbers: Mapping[str, float]) -> None:
        """Take a trajectory's numbers, in place of earlier ones; the oldest trajectory leaves if there is no room."""
        self.drop(trajectory)
        entry = {name: round(number * self._per) for name, number in numbers.items()}
        self._kept[trajectory] = entry
        self._count(entry, 1)
        if len(self._kept) > self._limit:
            self._count(self._kept.popitem(last=False)[1], -1)

    def drop(self, trajectory: str) -> None:
        """Forget a trajectory, if it is here."""
        entry = self._kept.pop(trajectory, None)
        if entry is not None:
            self._count(entry, -1)

    def spread(self, name: str) -> Spread:
        """Of the numbers of this name."""
        count, total, squares = self._sums.get(name, (0, 0, 0))
        if not count:
            return NOTHING
        variance = squares * count - total * total  # of integers: never negative
        return Spread(count, total / count / self._per, math.sqrt(variance) / count / self._per)

    def bounds(self, name: str) -> tuple[float, float]:
        """The least and the highest number of this name; there is one."""
        numbers = [entry[name] for entry in self._kept.values() if name in entry]
        return min(numbers) / self._per, max(numbers) / self._per

    def _count(self, entry: Mapping[str, int], sign: int) -> None:
        for name, number in entry.items():
            sums = self._sums.setdefault(name, [0, 0, 0])
            sums[0] += sign
            sums[1] += sign * number
            sums[2] += sign * number * number
