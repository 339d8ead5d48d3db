"""Fronts: sets of mutually undominated returns of several objectives, with quality measures.

Axes: `_P` points, `_H` objectives. Everything is maximised.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loomrl.config.weave import Objectives
from loomrl.errors import ConfigError, EpisodeError
from loomrl.evaluation.returns import Cut, ReturnReport, judge_returns
from loomrl.evaluation.statistics import Interval, mean_interval
from loomrl.gym.preference import preference_of
from loomrl.types import End, Trajectory

Floats = NDArray[np.float64]


def pareto_front(points_PH: ArrayLike) -> Floats:
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
        self.points = pareto_front(every)[-self.most :]

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


@dataclass(frozen=True, slots=True)
class PreferenceReturns:
    """The result of one preference."""

    preference: tuple[float, ...]
    returns: tuple[Interval, ...]
    """By objective."""
    is_on_front: bool
    """True if no other preference's mean returns dominate it."""


@dataclass(frozen=True, slots=True)
class FrontReport(ReturnReport):
    """The evaluation of a policy with many preferences. `overall` is of returns weighted by their preferences."""

    objectives: tuple[str, ...]
    by_preference: tuple[PreferenceReturns, ...]
    front: tuple[tuple[float, ...], ...]
    """Mean returns that no other preference's dominate."""
    reference: tuple[float, ...] | None
    hypervolume: float | None
    """Measured from the reference; None without one."""
    expected_utility: float
    """Mean over preferences of the best weighted sum on the front."""
    sparsity: float

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; infinite bounds are null."""
        data = ReturnReport.as_dict(self)
        for steered in data["by_preference"]:
            for interval in steered["returns"]:
                bounds = {name: interval[name] for name in ("low", "high")}
                interval |= {name: bound if np.isfinite(bound) else None for name, bound in bounds.items()}
        return data


@dataclass(frozen=True, slots=True)
class PreferenceEpisodes:
    """Finished episodes `E` of every preference `P`, which need not be equally many."""

    preferences_PH: NDArray[np.floating]
    returns_PEH: Sequence[NDArray[np.float64]]
    steps_PE: Sequence[NDArray[np.int64]]
    cut: Cut | None = None


def judge_front(
    policy: str,
    played: PreferenceEpisodes,
    *,
    objectives: Sequence[str],
    reference: Sequence[float] | None,
    confidence: float,
) -> FrontReport:
    """The report over these episodes; an EpisodeError if a return is not finite."""
    _check_finite(played, objectives)
    pairs = zip(played.returns_PEH, played.preferences_PH, strict=True)
    weighed = [float(total) for returns_EH, preference_H in pairs for total in (returns_EH * preference_H).sum(-1)]
    steps = np.concatenate(played.steps_PE).tolist()
    whole = judge_returns(policy, weighed, steps, confidence=confidence)
    means_PH = np.stack([returns_EH.mean(0) for returns_EH in played.returns_PEH])
    front = pareto_front(means_PH)
    return FrontReport(
        policy=policy,
        confidence=confidence,
        overall=whole.overall,
        objectives=tuple(objectives),
        by_preference=tuple(
            PreferenceReturns(
                tuple(preference.tolist()),
                tuple(mean_interval(column.tolist(), confidence=confidence) for column in returns_EH.T),
                is_on_front=bool((front == mean_H).all(1).any()),
            )
            for preference, returns_EH, mean_H in zip(played.preferences_PH, played.returns_PEH, means_PH, strict=True)
        ),
        front=tuple(map(tuple, front.tolist())),
        reference=None if reference is None else tuple(reference),
        hypervolume=None if reference is None else hypervolume(front, reference),
        expected_utility=expected_utility(front, played.preferences_PH),
        sparsity=sparsity(front),
        cut=played.cut,
    )


def _check_finite(played: PreferenceEpisodes, objectives: Sequence[str]) -> None:
    for preference_H, returns_EH in zip(played.preferences_PH, played.returns_PEH, strict=True):
        for episode, objective in np.argwhere(~np.isfinite(returns_EH)):
            raise EpisodeError(
                f"objective {objectives[objective]!r} returned {returns_EH[episode, objective]} in episode "
                f"{episode + 1} by preference {preference_H.tolist()}: nothing can be judged by it. Look at what the "
                "environment pays."
            )


def collect_returns(attempts: Iterable[Trajectory], objectives: Objectives) -> PreferenceEpisodes:
    """The attempts of language policies by their preference; failed ones are left out."""
    by_preference: dict[tuple[float, ...], list[Trajectory]] = {}
    for attempt in attempts:
        asked = preference_of(attempt.task) or {}
        cell = by_preference.setdefault(tuple(asked.get(name, 0.0) for name in objectives.names), [])
        if attempt.end is not End.FAILED:
            cell.append(attempt)
    empty = [preference for preference, cell in by_preference.items() if not cell]
    if empty:
        raise EpisodeError(f"all attempts by preference {list(empty[0])} failed: nothing can be said of a front.")
    shares_HG = np.array(objectives.shares_GH).T
    return PreferenceEpisodes(
        np.array(list(by_preference)),
        [np.array([parts_of(t, objectives.leaves) for t in cell]) @ shares_HG for cell in by_preference.values()],
        [np.array([len(t.turns) for t in cell]) for cell in by_preference.values()],
    )


def parts_of(attempt: Trajectory, leaves: Sequence[str]) -> list[float]:
    """The reward's part for each leaf; an attempt that earned nothing may not name them."""
    return [attempt.reward.parts.get(name, 0.0) for name in leaves]
