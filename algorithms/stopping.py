"""When a run has had enough, and which of its updates was the best."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from loomrl.config import Patience


class Stopper:
    """Judges a run by the mean success of its last `window` updates, and stops it by the rules of `Patience`.

    Success is judged once a window is full. Until then the newest update is the best one: nothing speaks for another.
    """

    def __init__(self, settings: Patience) -> None:
        self.settings = settings
        self.updates = 0
        self.best = 0
        """The update with the best mean, counted from 1; 0 before the first."""
        self.best_mean: float | None = None
        self._success: deque[float] = deque(maxlen=settings.window)
        self._kl: deque[float] = deque(maxlen=settings.window)

    @property
    def is_best(self) -> bool:
        """Whether the update seen last is the best one."""
        return self.best == self.updates > 0

    def observe(self, success: float, kl: float) -> str | None:
        """Take in one update; why the run should stop after it, or None."""
        if not 0 <= success <= 1:
            raise ValueError(f"success={success} of update {self.updates + 1} must lie between 0 and 1.")
        self.updates += 1
        self._success.append(success)
        self._kl.append(kl)
        if len(self._success) < self.settings.window:
            self.best = self.updates
            return self._collapsed()
        mean = _mean(self._success)
        if self.best_mean is None or mean > self.best_mean:
            self.best, self.best_mean = self.updates, mean
        return self._collapsed() or self._verdict(mean, self.best_mean)

    def _collapsed(self) -> str | None:
        limit, kl = self.settings.kl, _mean(self._kl)
        if limit is None or kl <= limit:
            return None
        return f"KL collapse: {kl:.3g} nats per token from the policy of the beginning, more than {limit:g}"

    def _verdict(self, mean: float, best: float) -> str | None:
        rules, window = self.settings, self.settings.window
        if rules.target is not None and mean >= rules.target:
            return f"target reached: success {mean:.3f} over {window} updates, asked for {rules.target:g}"
        if rules.decline is not None and best - mean > rules.decline:
            return f"decline: success {mean:.3f} over {window} updates, {best:.3f} at update {self.best}"
        if rules.plateau is not None and self.updates - self.best >= rules.plateau:
            return f"plateau: nothing better than success {best:.3f} for {self.updates - self.best} updates"
        return None

    def state_dict(self) -> dict[str, Any]:
        """Everything a restart needs, as JSON."""
        return {
            "updates": self.updates,
            "best": self.best,
            "best_mean": self.best_mean,
            "success": list(self._success),
            "kl": list(self._kl),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.updates, self.best, self.best_mean = state["updates"], state["best"], state["best_mean"]
        self._success = deque(state["success"], maxlen=self.settings.window)
        self._kl = deque(state["kl"], maxlen=self.settings.window)


def _mean(values: deque[float]) -> float:
    return sum(values) / len(values)
