"""Where the seconds of an update go."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from loomrl.telemetry.metric import PHASES, Metric


class Phases:
    """Where the seconds of an update go."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: Metric) -> Iterator[None]:
        """Count the block's seconds as this phase's."""
        begun = time.perf_counter()
        yield
        self._spent[phase] += time.perf_counter() - begun

    def seconds(self) -> dict[str, float]:
        """Per phase; what is in none of them is idle."""
        spent = {phase: self._spent[phase] for phase in PHASES if phase is not Metric.TIME_IDLE}
        idle = time.perf_counter() - self._begun - sum(spent.values())
        return {str(phase): seconds for phase, seconds in spent.items()} | {Metric.TIME_IDLE: idle}
