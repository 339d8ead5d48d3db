"""Findings of the training doctor, and how it reads a run's metrics."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import STEP

WINDOW = 10
"""Rows that are judged together: few enough to notice soon, enough to average over the draw of tasks."""

Row = Mapping[str, float]
History = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem by name, its evidence in numbers, and a remedy."""

    name: str
    evidence: str
    remedy: str


Examination = Callable[[History], Finding | None]

LEARNT = tuple(
    metric
    for metric in Metric
    if metric.startswith(("policy/", "gradient/", "reward/", "return/", "value/loss")) or metric is Metric.SUCCESS
)
"""Metrics that must be finite. Explained variance is exempt: it has no value if all returns are equal."""
JUDGED_BY = (Metric.SUCCESS, Metric.RETURN)
"""Metrics of what was attempted: of language policies, and of control."""


def not_a_number_at(history: History) -> tuple[float, str] | None:
    """The first step at which a learner's metric is NaN or infinite, and those metrics."""
    for index, row in enumerate(history, 1):
        bad = sorted(name for name in LEARNT if not math.isfinite(row.get(name, 0.0)))
        if bad:
            return row.get(STEP, index), ", ".join(bad)
    return None


def values_of(history: History, metric: Metric) -> list[float]:
    """The finite values of a metric, in order."""
    return [row[metric] for row in history if math.isfinite(row.get(metric, math.nan))]


def recent(history: History, metric: Metric) -> float | None:
    """Mean of a metric over the last window, or None if there are fewer values."""
    values = values_of(history, metric)
    return fmean(values[-WINDOW:]) if len(values) >= WINDOW else None


def too_few(history: History) -> str | None:
    """Why the doctor cannot judge yet; None once there is a window of rows with attempts or episodes."""
    attempted = [row for row in history if any(math.isfinite(row.get(metric, math.nan)) for metric in JUDGED_BY)]
    rows = attempted or history  # what learns from logged data alone attempts nothing
    if len(rows) >= WINDOW:
        return None
    return f"Too little to judge yet: {len(rows)} rows of metrics, and the training doctor compares {WINDOW} or more."


def windows(values: Sequence[float]) -> list[float]:
    """Mean of every full window."""
    return [fmean(values[end - WINDOW : end]) for end in range(WINDOW, len(values) + 1)]


def noise(values: Sequence[float]) -> float:
    """Standard deviation between rows without the trend: from the differences of neighbours."""
    steps = [later - earlier for earlier, later in pairwise(values)]
    return math.sqrt(fmean(step * step for step in steps) / 2)
