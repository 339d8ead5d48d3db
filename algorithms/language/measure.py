"""Metrics of an update's attempts.

Axis: `_K` tokens that the policy wrote.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from loomrl.algorithms.advantage import has_signal
from loomrl.gym.grade import GRADES
from loomrl.telemetry.metric import Metric
from loomrl.types import Failure, Group, Task, Tokens, Trajectory, joined


def measure(
    groups: Sequence[Group], failures: Sequence[Failure], *, family_of: Callable[[Task], str]
) -> dict[str, float]:
    """Means over the usable attempts, of which there is at least one; failures are counted by boundary."""
    usable = [attempt for group in groups for attempt in group.usable]
    rewards = [attempt.reward.total for attempt in usable]
    mean = _mean(rewards)
    metrics: dict[str, float] = {
        Metric.SUCCESS: _mean(t.reward.success for t in usable),
        Metric.REWARD_TOTAL: mean,
        Metric.REWARD_DEVIATION: math.sqrt(_mean((reward - mean) ** 2 for reward in rewards)),
        Metric.FAILURES: float(len(failures)),
        Metric.GROUPS_WITHOUT_SIGNAL: _mean(float(not signal(group)) for group in groups),
        Metric.LENGTH_ACTION: _mean(float(_count_actions(t)) for t in usable),
        Metric.LENGTH_TURNS: _mean(float(len(t.turns)) for t in usable),
        Metric.LENGTH_PROMPT: _mean(float(_length(t) - _count_actions(t)) for t in usable),
    }
    if levels := [float(t.task.level) for t in usable if t.task.level]:  # rows of files may have none
        metrics[Metric.LEVEL] = _mean(levels)
    for boundary, count in Counter(failure.boundary for failure in failures).items():
        metrics[Metric.FAILURES.of(boundary)] = float(count)
    for part in sorted({part for t in usable for part in t.reward.parts}):
        metrics[Metric.REWARD_PART.of(part)] = _mean(t.reward.parts.get(part, 0.0) for t in usable)
    for part, apart in sorted(_disagreements(groups).items()):
        metrics[Metric.JUDGE_DISAGREEMENT.of(part)] = _mean(apart)
    for family in sorted({family_of(t.task) for t in usable}):
        members = [t for t in usable if family_of(t.task) == family]
        metrics[Metric.SUCCESS.of(family)] = _mean(t.reward.success for t in members)
        if any(t.task.level for t in members):
            metrics[Metric.LEVEL.of(family)] = _mean(float(t.task.level) for t in members)
    return metrics


def _disagreements(groups: Sequence[Group]) -> dict[str, list[float]]:
    """By part: how far two rankings of a group differ, of every group that was ranked twice."""
    found: dict[str, list[float]] = {}
    for first in (group.usable[0] for group in groups if group.usable):
        for part, grade in first.extra.get(GRADES, {}).items():
            if grade.get("disagreement") is not None:
                found.setdefault(part, []).append(grade["disagreement"])
    return found


def ages(groups: Iterable[Group], version: int) -> NDArray[np.int32]:
    """Age in versions of every token that policy `version` learns from."""
    rows = [joined(turns) for group in groups for attempt in group.usable for turns in attempt.sequences]
    each = [version - tokens.versions_T[tokens.mask_T] for tokens in rows if tokens is not None]
    return np.concatenate([np.zeros(0, np.int32), *each])


def staleness(groups: Iterable[Group], version: int) -> dict[str, float]:
    """Age in versions of the tokens from which policy `version` learns."""
    ages_K = ages(groups, version)
    if not ages_K.size:
        return {}
    return {Metric.STALENESS_MEAN: float(ages_K.mean()), Metric.STALENESS_MAX: float(ages_K.max())}


def queue_wait(groups: Sequence[Group], now: float) -> float:
    """Mean seconds since the last attempt of each group ended."""
    return _mean(now - max(attempt.finished_at for attempt in group.trajectories) for group in groups)


def signal(group: Group, *, by_turn: bool = False) -> bool:
    """True if the group's attempts have different rewards, in all or in one of their turns."""
    if not by_turn:
        return has_signal(np.array([attempt.reward.total for attempt in group.usable]))
    earned = [[turn.reward.total for turn in attempt.turns] for attempt in group.usable]
    return any(has_signal(np.array(column)) for column in zip_longest(*earned, fillvalue=0.0))


def _count_actions(attempt: Trajectory) -> int:
    return sum(int(tokens.mask_T.sum()) for tokens in _tokens(attempt))


def _length(attempt: Trajectory) -> int:
    return sum(map(len, _tokens(attempt)))


def _tokens(attempt: Trajectory) -> Iterator[Tokens]:
    """Those of all turns of all threads."""
    return (turn.tokens for turns in attempt.sequences for turn in turns if turn.tokens is not None)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0
