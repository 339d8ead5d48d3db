"""The learning rate of every update: planned ahead, or adapted to the policy's KL per update."""

import math
from collections.abc import Mapping
from typing import Any, Protocol

from loomrl.config import AdaptiveRate, ConstantRate, CosineRate, LinearRate
from loomrl.config import Schedule as Plan

HYSTERESIS = 1.5
"""Between target / 1.5 and target * 1.5 the adaptive rate is unchanged."""


class Schedule(Protocol):
    """A learning rate schedule."""

    def rate(self, update: int) -> float:
        """The learning rate of update number `update`, counted from 0."""

    def observe(self, kl: float) -> None:
        """Observe an update's KL, measured after its last step."""

    def state_dict(self) -> dict[str, Any]:
        """The state from observations, as JSON."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""


class PlannedSchedule:
    """Warms up, then stays or falls to a floor, reached with the last of `updates`. It ignores observations."""

    def __init__(self, peak: float, schedule: ConstantRate | LinearRate | CosineRate, updates: int) -> None:
        self._peak = peak
        self._schedule = schedule
        self._updates = updates

    def rate(self, update: int) -> float:
        """The learning rate of update number `update`; past the last one, the floor."""
        warmup = self._schedule.warmup
        if update < warmup:
            return self._peak * (update + 1) / (warmup + 1)
        progress = min(1.0, (update - warmup) / max(1, self._updates - 1 - warmup))
        return self._peak * self._share(progress)

    def _share(self, progress: float) -> float:
        match self._schedule:
            case ConstantRate():
                return 1.0
            case LinearRate(floor=floor):
                return floor + (1 - floor) * (1 - progress)
            case CosineRate(floor=floor):
                return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2

    def observe(self, kl: float) -> None:
        """Ignored."""

    def state_dict(self) -> dict[str, Any]:
        """Empty: the plan is in the settings."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing to restore."""


class AdaptiveSchedule:
    """Shrinks after an update with a large KL, grows after one with a small KL."""

    def __init__(self, start: float, schedule: AdaptiveRate) -> None:
        self._schedule = schedule
        self._start = start
        self._rate = self._bound(start)

    def rate(self, update: int) -> float:
        """The current learning rate."""
        return self._rate

    def observe(self, kl: float) -> None:
        """Shrink above `target_kl` * 1.5, grow below `target_kl` / 1.5, stay between."""
        if kl > self._schedule.target_kl * HYSTERESIS:
            self._rate = self._bound(self._rate / self._schedule.factor)
        elif kl < self._schedule.target_kl / HYSTERESIS:
            self._rate = self._bound(self._rate * self._schedule.factor)

    def state_dict(self) -> dict[str, Any]:
        """The current rate, and the one it began with."""
        return {"rate": self._rate, "start": self._start}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume with that rate, unless it began with another than ours."""
        if state.get("start", self._start) == self._start:
            self._rate = self._bound(float(state["rate"]))

    def _bound(self, rate: float) -> float:
        return min(max(rate, self._schedule.lowest), self._schedule.highest)


def open_schedule(rate: float, schedule: Plan, updates: int) -> Schedule:
    """A schedule with the peak or initial learning rate `rate`, over `updates`."""
    if isinstance(schedule, AdaptiveRate):
        return AdaptiveSchedule(rate, schedule)
    return PlannedSchedule(rate, schedule, updates)
