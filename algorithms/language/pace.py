"""How engines and learner share the time of an update."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

from loomrl.telemetry.metric import Metric

Worked = tuple[int, float]
"""Tokens that engines sampled since they were made, and the seconds they computed, on average."""
Ask = Callable[[], Callable[[], Worked]]
"""Asks engines what they have done so far, without waiting; what it returns waits for the answer."""


class Pace:
    """Begins with an update; nobody waits for engines before it is asked what they did."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._began = time.perf_counter()
        self._start = ask()
        self._learning: list[tuple[Callable[[], Worked], Callable[[], Worked]]] = []

    @contextmanager
    def learning(self) -> Iterator[None]:
        """The block learns while the engines go on."""
        before = self._ask()
        yield
        self._learning.append((before, self._ask()))

    def seconds(self) -> float:
        """Since the update began."""
        return time.perf_counter() - self._began

    def engines(self, rollout_s: float) -> dict[str, float]:
        """What the engines have done until now, where they may have worked for so long."""
        tokens, busy_s = self._done
        return {Metric.TIME_ENGINE: busy_s, Metric.ENGINE_TOKENS_PER_S: tokens / max(rollout_s, 1e-9)}

    def overlap(self) -> dict[str, float]:
        """How far engines and learner worked at the same time."""
        whole_s, (_, busy_s) = self.seconds(), self._done
        both_s = sum(max(after()[1] - before()[1], 0.0) for before, after in self._learning)
        return {Metric.OVERLAP: both_s / whole_s, Metric.TIME_ENGINE_IDLE: max(whole_s - busy_s, 0.0)}

    @cached_property
    def _done(self) -> Worked:
        """From the beginning of the update until this is first asked for."""
        end = self._ask()
        (tokens_before, busy_before_s), (tokens, busy_s) = self._start(), end()
        return max(tokens - tokens_before, 0), max(busy_s - busy_before_s, 0.0)
