"""Seconds of an update by phase."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from loomrl.telemetry.metric import PHASES, Metric

P = ParamSpec("P")
R = TypeVar("R")


class Phases:
    """Seconds per phase; a phase inside another one is not counted twice."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._spent: dict[Metric, float] = dict.fromkeys(PHASES, 0.0)
        self._inner = 0.0
        """Seconds of nested phases."""

    @contextmanager
    def __call__(self, phase: Metric) -> Iterator[None]:
        """Count the context's seconds for this phase."""
        begun = time.perf_counter()
        outer = self._inner
        self._inner = 0.0
        yield
        seconds = time.perf_counter() - begun
        self._spent[phase] += seconds - self._inner
        self._inner = outer + seconds

    def time_call(self, phase: Metric, call: Callable[P, R]) -> Callable[P, R]:
        """`call`, with its seconds counted for this phase."""

        def time_block(*args: P.args, **kwargs: P.kwargs) -> R:
            with self(phase):
                return call(*args, **kwargs)

        return time_block

    def spent(self, phase: Metric) -> float:
        """Seconds of this phase so far."""
        return self._spent[phase]

    def seconds(self) -> dict[str, float]:
        """Seconds by phase; time outside all phases is idle."""
        idle = time.perf_counter() - self._begun - sum(self._spent.values())
        return {str(phase): seconds for phase, seconds in self._spent.items()} | {str(Metric.TIME_IDLE): idle}
