"""Reports on policies of several objectives: returns by preference, and their front."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loomrl.errors import EpisodeError
from loomrl.evaluation.front import expected_utility, hypervolume, sparsity, undominated
from loomrl.evaluation.returns import ReturnReport, judge_returns
from loomrl.evaluation.statistics import Interval, mean_interval


@dataclass(frozen=True, slots=True)
class Steered:
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
    by_preference: tuple[Steered, ...]
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
class Played:
    """Finished episodes `E` of every preference `P`."""

    preferences_PH: NDArray[np.float32]
    returns_PEH: NDArray[np.float64]
    steps_PE: NDArray[np.int64]


def judge_front(
    policy: str, played: Played, *, objectives: Sequence[str], reference: Sequence[float] | None, confidence: float
) -> FrontReport:
    """The report over these episodes; an EpisodeError if a return is not finite."""
    _check_finite(played, objectives)
    weighed_PE = (played.returns_PEH * played.preferences_PH[:, None]).sum(-1)
    whole = judge_returns(policy, weighed_PE.ravel().tolist(), played.steps_PE.ravel().tolist(), confidence=confidence)
    means_PH = played.returns_PEH.mean(1)
    front = undominated(means_PH)
    return FrontReport(
        policy=policy,
        confidence=confidence,
        overall=whole.overall,
        objectives=tuple(objectives),
        by_preference=tuple(
            Steered(
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
    )


def _check_finite(played: Played, objectives: Sequence[str]) -> None:
    bad = np.argwhere(~np.isfinite(played.returns_PEH))
    if len(bad):
        preference, episode, objective = bad[0]
        told = played.returns_PEH[preference, episode, objective]
        raise EpisodeError(
            f"objective {objectives[objective]!r} returned {told} in episode {episode + 1} "
            f"by preference {played.preferences_PH[preference].tolist()}: nothing can be judged by it. Look at what "
            "the environment pays."
        )
