"""Fronts: sets of mutually undominated returns of several objectives, with quality measures.

Axes: `_P` points, `_H` objectives. Everything is maximised.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loomrl.errors import ConfigError

Floats = NDArray[np.float64]


def undominated(points_PH: ArrayLike) -> Floats:
    """The points that no other dominates; each once, sorted."""
    points = np.unique(np.asarray(points_PH, np.float64), axis=0)
    as_good_PP = (points[None] >= points[:, None]).all(-1)
    best: Floats = points[as_good_PP.sum(1) == 1]
    return best


def hypervolume(points_PH: ArrayLike, reference_H: Sequence[float]) -> float:
    """Volume between the reference and the front, by moocore."""
    try:
        import moocore
    except ImportError as error:
        raise ConfigError(f"moocore cannot be imported ({error}). Install: pip install 'loomrl[morl]'.") from error
    points = np.asarray(points_PH, np.float64)
    if points.shape[1:] != (len(reference_H),):
        raise ConfigError(f"reference={list(reference_H)}: points have {points.shape[1:]} objectives.")
    above = points[(points > np.asarray(reference_H)).all(1)]
    return float(moocore.hypervolume(above, ref=list(reference_H), maximise=True)) if len(above) else 0.0


def expected_utility(points_PH: ArrayLike, preferences: ArrayLike) -> float:
    """Mean over preferences of the greatest weighted sum of any point."""
    weighed = np.asarray(preferences, np.float64) @ np.asarray(points_PH, np.float64).T
    return float(weighed.max(1).mean())


def sparsity(points_PH: ArrayLike) -> float:
    """Mean squared gap between neighbours along each objective, summed over objectives; 0 for a single point."""
    points = np.asarray(points_PH, np.float64)
    if len(points) < 2:
        return 0.0
    return float(np.square(np.diff(np.sort(points, axis=0), axis=0)).sum() / (len(points) - 1))


class ParetoFront:
    """The front of all points seen above a reference, and its width."""

    def __init__(self, reference: Sequence[float] | None, *, most: int = 512) -> None:
        self.reference = None if reference is None else np.asarray(reference, np.float64)
        self.most = most
        self.points: Floats | None = None

    def observe(self, returns_PH: ArrayLike) -> None:
        """Add new points; of too many the last in order are dropped."""
        new = np.asarray(returns_PH, np.float64)
        if self.reference is not None and len(new):
            new = new[(new > self.reference).all(1)]
        if not len(new):
            return
        every = new if self.points is None else np.concatenate([self.points, new])
        self.points = undominated(every)[-self.most :]

    def span(self, count: int) -> tuple[Floats, Floats]:
        """The best of each objective, and its distance from the worst on the front; 0 and 1 without points."""
        if self.points is None:
            return np.zeros(count), np.ones(count)
        best = self.points.max(0)
        width = np.ptp(self.points, axis=0)
        return best, np.where(width > 0, width, 1.0)

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {"points": None if self.points is None else self.points.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from `state`."""
        self.points = None if state["points"] is None else np.asarray(state["points"], np.float64)
