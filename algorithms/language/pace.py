"""How engines and learner share the time of an update."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loomrl.telemetry.metric import Metric


class Pace:
    """Begins with an update. `worked` tells the tokens that engines sampled so far, and the seconds they computed."""

    def __init__(self, worked: Callable[[], tuple[int, float]]) -> None:
        self._worked = worked
        self._began = time.perf_counter()
        self._tokens, self._busy_s = worked()
        self._both_s = 0.0

    @contextmanager
    def learning(self) -> Iterator[None]:
        """The block learns while the engines go on."""
        _, before_s = self._worked()
        yield
        _, after_s = self._worked()
        self._both_s += max(after_s - before_s, 0.0)

    def seconds(self) -> float:
        """Since the update began."""
        return time.perf_counter() - self._began

    def engines(self, rollout_s: float) -> dict[str, float]:
        """What the engines did, where they may have worked for so long."""
        tokens, busy_s = self._worked()
        return {
            Metric.TIME_ENGINE: max(busy_s - self._busy_s, 0.0),
            Metric.ENGINE_TOKENS_PER_S: max(tokens - self._tokens, 0) / max(rollout_s, 1e-9),
        }

    def overlap(self) -> dict[str, float]:
        """How far engines and learner worked at the same time."""
        whole_s, (_, busy_s) = self.seconds(), self._worked()
        return {
            Metric.OVERLAP: self._both_s / whole_s,
            Metric.TIME_ENGINE_IDLE: max(whole_s - (busy_s - self._busy_s), 0.0),
        }
