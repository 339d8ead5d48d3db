"""The results of running A/B tests, as Prometheus reads them."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import Metric

from loomrl.observability import family
from loomrl.release.ab import AbReading, ArmResult
from loomrl.store import LoomDB
from loomrl.store.ab_tests import AbTest, list_tests
from loomrl.store.observations import read_observations

PATIENCE_S = 2.0
"""Time for one look; observations that are left are read at the next one. A result is valid at every look."""
PAGE = 1000


@dataclass(slots=True)
class _Followed:
    reading: AbReading
    after: int = 0


class AbResults:
    """Follows the observations of running tests. One thread at a time."""

    def __init__(self, db: LoomDB) -> None:
        self._db = db
        self._followed: dict[tuple[str, float], _Followed] = {}
        """By name and beginning: a name may be used again."""

    def collect(self, now: float) -> Iterator[Metric]:
        """The results so far."""
        units = family.AB_UNITS.measured()
        mean = family.AB_MEAN.measured()
        difference = family.AB_DIFFERENCE.measured()
        running = {(test.name, test.started_at): test for test in list_tests(self._db) if test.is_running(now)}
        self._followed = {key: self._followed.get(key) or _Followed(AbReading(test)) for key, test in running.items()}
        until = time.monotonic() + PATIENCE_S
        for key, test in running.items():
            self._read(self._followed[key], test, until)
            arms = self._followed[key].reading.result().arms
            for arm in arms:
                units.add_metric([test.endpoint, test.name, arm.name], arm.units)
                for metric, bound, value in _differences(arm):
                    difference.add_metric([test.endpoint, test.name, arm.name, metric, bound], value)
            for name, metric, value in _means(arms):
                mean.add_metric([test.endpoint, test.name, name, metric], value)
        yield from (units, mean, difference)

    def _read(self, followed: _Followed, test: AbTest, until: float) -> None:
        while batch := read_observations(self._db, test.endpoint, after=followed.after, limit=PAGE):
            followed.reading.observe(each for _, each in batch)
            followed.after = batch[-1][0]
            if time.monotonic() > until:
                break


def _means(arms: Sequence[ArmResult]) -> Iterator[tuple[str, str, float]]:
    """Arm, metric and mean, as far as there are any. The first arm's stand in the findings about the others."""
    first, *others = arms
    sides = [(first.name, finding.guard.metric, finding.baseline) for finding in others[0].findings]
    sides += [(arm.name, finding.guard.metric, finding.challenger) for arm in others for finding in arm.findings]
    return ((name, metric, side.value) for name, metric, side in sides if math.isfinite(side.value))


def _differences(arm: ArmResult) -> Iterator[tuple[str, str, float]]:
    """Metric, bound and value, as far as there are any."""
    for finding in arm.findings:
        for bound, value in (("estimate", finding.difference), ("low", finding.low), ("high", finding.high)):
            if math.isfinite(value):
                yield finding.guard.metric, bound, value
