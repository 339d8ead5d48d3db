"""Timing of an update: seconds by phase, and how engines and learner share it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loomrl.telemetry.metric import PHASES, Metric


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

    def spent(self, phase: Metric) -> float:
        """Seconds of this phase so far."""
        return self._spent[phase]

    def seconds(self) -> dict[str, float]:
        """Seconds by phase; time outside all phases is idle."""
        idle = time.perf_counter() - self._begun - sum(self._spent.values())
        return {str(phase): seconds for phase, seconds in self._spent.items()} | {str(Metric.TIME_IDLE): idle}


Worked = tuple[int, float]
"""Tokens that engines have sampled since their start, and their mean seconds of computation."""
Ask = Callable[[], Callable[[], Worked]]
"""Requests the engines' counts without waiting; the function it returns waits for the answer."""


class Pace:
    """Times one update, from its start; waits for the engines' counts only at its end."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._began = time.perf_counter()
        self._start = ask()

    @contextmanager
    def learning(self) -> Iterator[None]:
        """A context in which the learner works."""
        self._before_learning = self._ask()
        began = time.perf_counter()
        yield
        self._learning_s = time.perf_counter() - began
        self._after_learning = self._ask()

    def in_turns(self, rollout_s: float) -> dict[str, float]:
        """The engines' rate in a rollout of these seconds that ended before learning began."""
        start = self._start()
        tokens, busy_s = _difference(start, self._before_learning())
        return _rate(tokens, busy_s, rollout_s) | self._idle(_difference(start, self._ask()())[1], both_s=0.0)

    def overlapping(self) -> dict[str, float]:
        """The engines' rate since the start, and the share of that time in which engines and learner both worked."""
        whole_s = time.perf_counter() - self._began
        tokens, busy_s = _difference(self._start(), self._ask()())
        _, both_s = _difference(self._before_learning(), self._after_learning())
        return _rate(tokens, busy_s, whole_s) | {
            Metric.OVERLAP: both_s / whole_s,
            Metric.TIME_ENGINE_IDLE: max(whole_s - busy_s, 0.0),
            **self._idle(busy_s, both_s=both_s),
        }

    def _idle(self, busy_s: float, *, both_s: float) -> dict[str, float]:
        whole_s = time.perf_counter() - self._began
        return {Metric.IDLE: max(1 - (busy_s + self._learning_s - both_s) / whole_s, 0.0)}


def _difference(before: Worked, after: Worked) -> Worked:
    return max(after[0] - before[0], 0), max(after[1] - before[1], 0.0)  # engines that restart count from 0 again


def _rate(tokens: int, busy_s: float, seconds: float) -> dict[str, float]:
    return {Metric.TIME_ENGINE: busy_s, Metric.ENGINE_TOKENS_PER_S: tokens / max(seconds, 1e-9)}
