"""Rewards from named components: weighted, normalised, clipped, and – where asked for – turned towards what lags.

Pure but for running statistics, which are part of a checkpoint (`state_dict`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from loomrl.errors import ConfigError, ScorerError, unknown
from loomrl.types import Reward

X = TypeVar("X")
Normalization = Literal["none", "z-score", "min-max"]
NORMALIZATIONS: tuple[Normalization, ...] = ("none", "z-score", "min-max")


@dataclass(frozen=True)
class RewardComponent(Generic[X]):
    """One named objective: `compute_fn` scores an attempt, `weight` says how much the score counts."""

    name: str
    weight: float
    compute_fn: Callable[[X], float]

    def score(self, attempt: X) -> float:
        """The raw score; a component that raises or answers with no finite number is a ScorerError, never a 0."""
        try:
            score = float(self.compute_fn(attempt))
        except Exception as error:  # the boundary to the author's code
            raise ScorerError(f"reward component {self.name!r} raised {type(error).__name__}: {error}") from error
        if not math.isfinite(score):
            raise ScorerError(f"reward component {self.name!r} answered {score}: a finite number is needed.")
        return score


class RunningStatistics:
    """Count, mean, spread and range of a stream, one value at a time (Welford), exact after a restart."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0
        self.low = math.inf
        self.high = -math.inf

    def add(self, value: float) -> None:
        """Take one more value into account."""
        self.count += 1
        delta = value - self.mean
        self.mean += delta / self.count
        self._squares += delta * (value - self.mean)
        self.low, self.high = min(self.low, value), max(self.high, value)

    @property
    def std(self) -> float:
        """Population standard deviation; 0 before the second value."""
        return math.sqrt(max(0.0, self._squares) / self.count) if self.count > 1 else 0.0

    def normalised(self, value: float, method: Normalization) -> float:
        """`value` on the stream's scale: z-score, or 0..1 between its extremes. A stream without spread gives 0."""
        if method == "none":
            return value
        if method == "z-score":
            return (value - self.mean) / self.std if self.std > 1e-12 else 0.0
        spread = self.high - self.low
        return (value - self.low) / spread if self.count and spread > 0 else 0.0

    def state_dict(self) -> dict[str, float]:
        """Everything a restart needs, as JSON (an empty stream has no range)."""
        state = {"count": self.count, "mean": self.mean, "squares": self._squares}
        return state | ({"low": self.low, "high": self.high} if self.count else {})

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on where `state` was taken."""
        self.count, self.mean, self._squares = int(state["count"]), state["mean"], state["squares"]
        self.low, self.high = state.get("low", math.inf), state.get("high", -math.inf)


class RewardComposition(Generic[X]):
    """Scores an attempt by all components: `parts` are weighted and sum to the total before clipping.

    `adaptation` > 0 turns the weights towards components whose mean score lags behind (exponentiated gradient;
    the sum of the weights stays). Call `adapt` once per update, so that the attempts of one update share their weights.
    """

    def __init__(
        self,
        components: Sequence[RewardComponent[X]],
        *,
        clip: tuple[float, float] | None = None,
        normalization: Normalization = "none",
        adaptation: float = 0.0,
    ) -> None:
        names = [component.name for component in components]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"reward components {names}: at least one is needed, and each name once.")
        if any(not math.isfinite(c.weight) or (adaptation and c.weight <= 0) for c in components):
            raise ConfigError("reward weights must be finite, and positive where they adapt.")
        if normalization not in NORMALIZATIONS:
            raise ConfigError("normalization " + unknown("method", normalization, NORMALIZATIONS))
        if clip is not None and not clip[0] < clip[1]:
            raise ConfigError(f"clip={clip}: the lower bound must be below the upper one.")
        self.components = tuple(components)
        self.clip = clip
        self.normalization: Normalization = normalization
        self.adaptation = adaptation
        self.weights = {component.name: component.weight for component in components}
        self.statistics = {component.name: RunningStatistics() for component in components}

    def __call__(self, attempt: X, *, success: float = 0.0) -> Reward:
        """The reward of one attempt. A component that fails fails the attempt before any statistic has moved."""
        scores = {component.name: component.score(attempt) for component in self.components}
        for name, score in scores.items():
            self.statistics[name].add(score)
        parts = {
            name: self.weights[name] * self.statistics[name].normalised(score, self.normalization)
            for name, score in scores.items()
        }
        total = math.fsum(parts.values())
        if self.clip is not None:
            total = min(max(total, self.clip[0]), self.clip[1])
        return Reward(total, parts, success)

    def adapt(self) -> None:
        """Move weight from components that lead to those that lag, measured on each one's own range."""
        progress = {name: s.normalised(s.mean, "min-max") for name, s in self.statistics.items()}
        mean = math.fsum(progress.values()) / len(progress)
        raised = {n: w * math.exp(self.adaptation * (mean - progress[n])) for n, w in self.weights.items()}
        scale = math.fsum(self.weights.values()) / math.fsum(raised.values())
        self.weights = {name: weight * scale for name, weight in raised.items()}

    def state_dict(self) -> dict[str, Any]:
        """Weights and statistics, as JSON."""
        statistics = {name: stream.state_dict() for name, stream in self.statistics.items()}
        return {"weights": dict(self.weights), "statistics": statistics}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken; a state of other components is refused."""
        if set(state["weights"]) != set(self.weights):
            raise ConfigError(f"reward state of {sorted(state['weights'])} does not fit {sorted(self.weights)}.")
        self.weights = dict(state["weights"])
        for name, stream in state["statistics"].items():
            self.statistics[name].load_state_dict(stream)
