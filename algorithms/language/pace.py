"""Timing of an update: how engines and learner share it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

from loomrl.telemetry.metric import Metric

Worked = tuple[int, float]
"""Tokens that engines have sampled since their start, and their mean seconds of computation."""
Ask = Callable[[], Callable[[], Worked]]
"""Requests the engines' counts without waiting; the function it returns waits for the answer."""


class Pace:
    """Times one update, from its start; waits for the engines' counts only when they are needed."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._began = time.perf_counter()
        self._start = ask()
        self._learning: list[tuple[Callable[[], Worked], Callable[[], Worked]]] = []

    @contextmanager
    def learning(self) -> Iterator[None]:
        """A context in which the learner works while the engines continue."""
        before = self._ask()
        yield
        self._learning.append((before, self._ask()))

    def seconds(self) -> float:
        """Seconds since the update began."""
        return time.perf_counter() - self._began

    def engines(self, rollout_s: float) -> dict[str, float]:
        """The engines' counts up to now, with the rate over the seconds of the rollout."""
        tokens, busy_s = self._done
        return {Metric.TIME_ENGINE: busy_s, Metric.ENGINE_TOKENS_PER_S: tokens / max(rollout_s, 1e-9)}

    def overlap(self) -> dict[str, float]:
        """The share of time in which engines and learner worked simultaneously."""
        whole_s, (_, busy_s) = self.seconds(), self._done
        both_s = sum(max(after()[1] - before()[1], 0.0) for before, after in self._learning)
        return {Metric.OVERLAP: both_s / whole_s, Metric.TIME_ENGINE_IDLE: max(whole_s - busy_s, 0.0)}

    @cached_property
    def _done(self) -> Worked:
        """The engines' counts from the start of the update until the first call."""
        end = self._ask()
        (tokens_before, busy_before_s), (tokens, busy_s) = self._start(), end()
        return max(tokens - tokens_before, 0), max(busy_s - busy_before_s, 0.0)
