"""Stopping rules of a run, and its best policy."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from loomrl.config import Patience, ReturnPatience
from loomrl.threshold import SINGLE, reaches


class Convergence:
    """Judges a run by the mean of the last `window` scores, and stops it by rules.

    Scores are judged once a window is full. Until then the newest policy counts as the best.
    """

    score = "return"
    unit = "steps"
    """Unit of `at`."""
    over = " of the latest 100 episodes"
    """The base of a score's mean, for messages."""

    def __init__(self, rules: Patience | ReturnPatience, *, window: int = 1) -> None:
        self.rules = rules
        self.window = window
        self.at = 0
        """Time of the latest score."""
        self.best = 0
        """Time of the best mean; 0 before the first score."""
        self.best_mean: float | None = None
        self._scores: deque[float] = deque(maxlen=window)

    @property
    def mean(self) -> float | None:
        """Mean of the latest scores; None until a window is full."""
        return _mean(self._scores) if len(self._scores) == self.window else None

    def see(self, score: float, at: int) -> str | None:
        """Observe the score at this time; returns the reason to stop after it, or None."""
        self.at = at
        self._scores.append(score)
        mean = self.mean
        if mean is None:
            self.best = at
            return None
        if self.best_mean is None or mean > self.best_mean:
            self.best = at
            self.best_mean = mean
        return self._verdict(mean, self.best_mean)

    def _verdict(self, mean: float, best: float) -> str | None:
        rules = self.rules
        if rules.target is not None and reaches(mean, rules.target, rounding=SINGLE):
            return f"target reached: {self.score} {mean:.3f}{self.over}, asked for {rules.target:g}"
        if rules.decline is not None and not reaches(mean, best - rules.decline, added=abs(best), rounding=SINGLE):
            return (
                f"decline: {self.score} {mean:.3f}{self.over}, {best:.3f} at {self.unit.removesuffix('s')} {self.best}"
            )
        if rules.plateau is not None and self.at - self.best >= rules.plateau:
            return f"plateau: nothing better than {self.score} {best:.3f} for {self.at - self.best} {self.unit}"
        return None

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {"at": self.at, "best": self.best, "best_mean": self.best_mean, "scores": list(self._scores)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self.at = state["at"]
        self.best = state["best"]
        self.best_mean = state["best_mean"]
        self._scores = deque(state["scores"], maxlen=self.window)


class Stopper(Convergence):
    """Convergence by success, per update or on held-out tasks, and by the KL from the reference policy."""

    score = "success"
    unit = "updates"

    def __init__(self, settings: Patience) -> None:
        self._by_evaluation = settings.by == "evaluation"
        super().__init__(settings, window=1 if self._by_evaluation else settings.window)
        self.over = " on held-out tasks" if self._by_evaluation else f" over {settings.window} updates"
        self.updates = 0
        """Observed so far."""
        self.stopped: str | None = None
        """The reason to stop, once there is one."""
        self._limit = settings.kl
        self._kl: deque[float] = deque(maxlen=settings.window)

    def observe(self, success: float, kl: float) -> str | None:
        """Observe one update; returns the reason to stop after it, or None."""
        if not 0 <= success <= 1:
            raise ValueError(f"success={success} of update {self.updates + 1} must lie between 0 and 1.")
        self._kl.append(kl)
        self.updates += 1
        reason = None if self._by_evaluation else self.see(success, self.updates)
        self.stopped = self._is_collapsed() or reason
        return self.stopped

    def stop(self, reason: str) -> str:
        """End the run for this reason, which comes before all others."""
        self.stopped = reason
        return reason

    def judge(self, success: float | None) -> str | None:
        """Observe the present version's success on held-out tasks, if it is known; the reason to stop, or None."""
        if self._by_evaluation and success is not None:
            self.stopped = self.see(success, self.updates) or self.stopped
        return self.stopped

    def _is_collapsed(self) -> str | None:
        limit = self._limit
        kl = _mean(self._kl)
        if limit is None or kl <= limit:
            return None
        return f"KL collapse: {kl:.3g} nats per token from the reference policy, more than {limit:g}"

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return super().state_dict() | {"kl": list(self._kl), "stopped": self.stopped, "updates": self.updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        super().load_state_dict(state)
        self.stopped = state["stopped"]
        self.updates = state["updates"]
        self._kl = deque(state["kl"], maxlen=self._kl.maxlen)


def _mean(values: deque[float]) -> float:
    return sum(values) / len(values)
