"""The shipped rules about actions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.safety.rule import Deed, Wrong

SLACK = 1e-6
"""Of float32, relative to the bound: an action that was clipped to it is within."""


class Bounds:
    """Components between `low` and `high`; the nearest allowed action is clipped."""

    def __init__(self, low: float | Sequence[float], high: float | Sequence[float]) -> None:
        self._low, self._high = np.asarray(low, np.float64), np.asarray(high, np.float64)

    def judge(self, deed: Deed) -> Wrong | None:
        """As of `ActionRule`."""
        action = deed.action
        if not np.isfinite(action).all():
            return Wrong("no number")
        if _within(action, self._low, self._high):
            return None
        return Wrong("out of bounds", _clipped(action, self._low, self._high))


class Rate:
    """Components within `most` of the action before; the nearest allowed action goes as far as that."""

    def __init__(self, most: float | Sequence[float]) -> None:
        self._most = np.asarray(most, np.float64)

    def judge(self, deed: Deed) -> Wrong | None:
        """As of `ActionRule`."""
        action = deed.action
        before = deed.before
        if before is None or before.shape != action.shape or not np.isfinite(action).all():
            return None
        low, high = before - self._most, before + self._most
        if _within(action, low, high):
            return None
        return Wrong("changes too fast", _clipped(action, low, high))


class States:
    """Forbids acting while all of these components of the observation are within their bounds."""

    def __init__(self, within: Mapping[int, tuple[float | None, float | None]]) -> None:
        self._within = dict(within)

    def judge(self, deed: Deed) -> Wrong | None:
        """As of `ActionRule`."""
        if deed.observation is None:
            return None
        seen = deed.observation
        for at, (low, high) in self._within.items():
            if not -len(seen) <= at < len(seen) or (low is not None and seen[at] < low):
                return None
            if high is not None and seen[at] > high:
                return None
        return Wrong("forbidden state")


def _clipped(action: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """The nearest action between the bounds; of whole numbers, a whole one."""
    if action.dtype.kind in "biu":
        low, high = np.ceil(low), np.floor(high)
    return np.clip(action, low, high).astype(action.dtype)


def _within(action: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> bool:
    slack = SLACK * np.maximum(1.0, np.maximum(np.abs(low), np.abs(high)))
    return bool(np.all(action >= low - slack) and np.all(action <= high + slack))
