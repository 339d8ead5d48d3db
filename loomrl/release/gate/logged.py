"""The value of a candidate from sessions that the present version served, by ratios of their probabilities.

With the ratio w of both versions' probabilities for what was sampled, and a harm H in 0..1 (1 - reward), the mean of
(w - 1) H is the difference of harms. It is never below -1, so betting bounds it from below whatever w does, and a ratio
that is cut makes the bound only more careful. The other bound is that of (w - 1) (1 - H), since w has the mean 1.

Two questions: all answers of a session by the candidate (`session`, the product of ratios), and one of the first
answers, the others as they were, summed over these (`answer`). The second varies far less where sessions are long.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from loomrl.release.betting import Floats, least_difference
from loomrl.release.gate.check import LEAST_CHANGE, CheckState, GateCheck
from loomrl.release.paired import suited_bets

EFFECTIVE = 200.0
"""Sessions of the candidate's own that the log must be worth, else nothing is said."""
ANSWERS = 8
"""Answers of a session that are replaced one at a time."""
MOST_RATIO = 1000.0
"""Ratios are cut here, for finite numbers."""
Level = Literal["session", "answer"]


@dataclass(frozen=True, slots=True)
class LoggedSession:
    """A served session with its reward in 0..1; `ratios_A`: log-ratio of candidate to server of each answer."""

    ratios_A: Floats
    reward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDifference:
    """The change of the mean reward, candidate minus server, with a confidence interval."""

    level: Level
    effective: float
    """Sessions that would tell as much, had the candidate answered them itself (Kish)."""
    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedValue:
    """The candidate's mean reward, with a confidence interval, beside that of the server."""

    effective: float
    mean: float
    """Self-normalised: the ratios are divided by their mean."""
    low: float
    high: float
    served: float


def difference_of(sessions: Sequence[LoggedSession], level: Level, *, error_rate: float) -> LoggedDifference:
    """The difference at this level; `error_rate` is that of both bounds together."""
    changes_E, weights_A, most = _changes(sessions, level)
    reward_E = np.array([one.reward for one in sessions])
    gain = _least(changes_E * reward_E / most, error_rate / 2)
    harm = _least(changes_E * (1 - reward_E) / most, error_rate / 2)
    centred_E = changes_E * (reward_E - reward_E.mean())
    effective = kish(weights_A) * len(sessions) / len(weights_A)
    return LoggedDifference(
        level=level, effective=effective, mean=float(centred_E.mean()), low=gain * most, high=-harm * most
    )


def value_of(sessions: Sequence[LoggedSession], *, error_rate: float) -> LoggedValue:
    """The value of whole sessions; `error_rate` is that of both bounds together."""
    weights_E = _ratios([one.ratios_A.sum() for one in sessions])
    reward_E = np.array([one.reward for one in sessions])
    return LoggedValue(
        effective=kish(weights_E),
        mean=float((weights_E * reward_E).sum() / weights_E.sum()),
        low=max(0.0, _least(weights_E * reward_E, error_rate / 2, floor=0.0)),
        high=min(1.0, 1 - _least(weights_E * (1 - reward_E), error_rate / 2, floor=0.0)),
        served=float(reward_E.mean()),
    )


def kish(weights: Floats) -> float:
    """The number of equal weights that would tell as much: (Σw)² / Σw²."""
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def check_sessions(
    name: str, sessions: Sequence[LoggedSession], left_out: Mapping[str, int], *, error_rate: float
) -> GateCheck:
    """Failed if the candidate is proved worse than what served; it is never an argument for the candidate.

    Where sessions have several answers, both levels share the error rate. A level whose log is worth too little is
    silent.
    """
    name = f"logged {name}"
    levels: list[Level] = ["session"]
    if any(len(one.ratios_A) > 1 for one in sessions):
        levels.append("answer")
    told = f"{len(sessions)} sessions" + (f" ({_describe_left_out(left_out)})" if left_out else "")
    rate = error_rate / len(levels)
    found = [difference_of(sessions, level, error_rate=rate) for level in levels if sessions]
    spoken = [one for one in found if one.effective >= EFFECTIVE]
    worth = ", ".join(f"{one.effective:.1f} by {one.level}" for one in found) or "0"
    figures: dict[str, Any] = {
        "sessions": len(sessions),
        "left_out": dict(left_out),
        "needed": EFFECTIVE,
        "effective": {one.level: one.effective for one in found},
    }
    if not spoken:
        reason = f"too little to say: effective n={worth} of {EFFECTIVE:g} needed; {told}"
        return GateCheck(name=name, state=CheckState.NOT_APPLICABLE, reason=reason, figures=figures)
    figures["differences"] = [asdict(one) for one in spoken]
    if spoken[0].level == "session":  # of single answers nothing follows for a canary, which gives all of them
        figures[LEAST_CHANGE] = spoken[0].low
    value = value_of(sessions, error_rate=error_rate)
    if value.effective >= EFFECTIVE:
        figures["value"] = asdict(value)
    figures["estimator"] = "importance weights alone: nothing judges answers that were never given"
    reason = "; ".join(
        f"{one.mean:+.3f} in [{one.low:+.3f}, {one.high:+.3f}] by {one.level} (effective n={one.effective:.0f})"
        for one in spoken
    )
    is_worse = any(one.high < 0 for one in spoken)
    state = CheckState.FAILED if is_worse else CheckState.PASSED
    verb = "proved worse" if is_worse else "not proved worse"
    return GateCheck(name=name, state=state, reason=f"{verb} than what was served: {reason}; {told}", figures=figures)


def _changes(sessions: Sequence[LoggedSession], level: Level) -> tuple[Floats, Floats, float]:
    """A term per session, all ratios, and the number that the terms are at most below zero."""
    if level == "session":
        weights_E = _ratios([one.ratios_A.sum() for one in sessions])
        return weights_E - 1, weights_E, 1.0
    parts = [_ratios(one.ratios_A[:ANSWERS]) for one in sessions]
    return np.array([(part - 1).sum() for part in parts]), np.concatenate(parts), float(ANSWERS)


def _ratios(logs: Any) -> Floats:
    ratios: Floats = np.exp(np.minimum(np.asarray(logs, np.float64), math.log(MOST_RATIO)))
    return ratios


def _least(terms_E: Floats, error_rate: float, *, floor: float = -1.0) -> float:
    """The lower confidence bound of the mean of terms that are never below `floor`."""
    ones_E = np.ones(len(terms_E))
    bets = suited_bets(terms_E, len(terms_E), error_rate)
    return least_difference(terms_E, ones_E, -floor * ones_E, error_rate, bets)


def _describe_left_out(left_out: Mapping[str, int]) -> str:
    return "left out: " + ", ".join(f"{count} {why}" for why, count in sorted(left_out.items()))
