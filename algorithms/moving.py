"""Preferences that move during training: weights that adapt to the objective furthest behind, and multipliers of
constraints.

Axes: `_P` episodes, `_G` objectives that a preference weighs.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from ray.util.debug import log_once

from loomrl.algorithms.advantage import has_signal
from loomrl.config.weave import AdaptivePreference, ConstrainedPreference, Woven
from loomrl.control.preference import Leaning, Simplex, Source, open_preferences
from loomrl.telemetry.metric import Metric
from loomrl.threshold import SINGLE, reaches

_log = logging.getLogger(__name__)

Floats = NDArray[np.float64]

BEHIND = 1e-9
"""Distances below this, in widths of the front, count as zero."""


class FixedPreference:
    """The preference of the settings. Subclasses move it with the returns of episodes."""

    def __init__(self, settings: Woven) -> None:
        self.settings = settings
        self.tree = settings.tree
        self.multipliers_G: Floats = np.zeros(len(self.tree.names))
        """Weight of every objective in addition to its preference."""

    def observe(self, returns_PG: ArrayLike, *, best_G: Floats, width_G: Floats) -> None:
        """Observe ended episodes, with the best value and the width of the front for every objective."""

    def source(self, part: int, parts: int) -> Source:
        """The current source of preferences for node `part` of `parts`."""
        return open_preferences(self.settings, part=part, parts=parts)

    def metrics(self) -> dict[str, float]:
        """Metrics of what moved."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""


class ReturnWindow:
    """Returns collected until there are enough of them to move by."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.waiting: list[list[float]] = []

    def mean(self, returns_PG: ArrayLike) -> Floats | None:
        """The mean of all collected returns, once there are enough; the collection then starts again."""
        self.waiting += np.asarray(returns_PG, np.float64).tolist()
        if len(self.waiting) < self.enough:
            return None
        mean: Floats = np.mean(self.waiting, axis=0)
        self.waiting = []
        return mean


class Lagging(FixedPreference):
    """β: follows the distances of mean returns from the best known, in widths of the front."""

    def __init__(self, settings: Woven, asked: AdaptivePreference) -> None:
        super().__init__(settings)
        self.asked = asked
        count = len(self.tree.names)
        self.weights_G: Floats = np.full(count, 1 / count)
        self._episodes = ReturnWindow(asked.episodes)

    def observe(self, returns_PG: ArrayLike, *, best_G: Floats, width_G: Floats) -> None:
        """Shift the weights to the objectives furthest behind."""
        mean_G = self._episodes.mean(returns_PG)
        if mean_G is None:
            return
        behind_G = np.maximum(0.0, best_G - mean_G) / width_G
        if behind_G.sum() > BEHIND:
            momentum = self.asked.momentum
            self.weights_G = momentum * self.weights_G + (1 - momentum) * behind_G / behind_G.sum()

    def source(self, part: int, parts: int) -> Source:
        """Preferences around the current weights."""
        region = Simplex(len(self.weights_G), part, parts)
        return Leaning(tuple(self.weights_G.tolist()), self.asked.share, region)

    def metrics(self) -> dict[str, float]:
        """The weights by objective."""
        return by(Metric.PREFERENCE, self.tree.names, self.weights_G)

    def state_dict(self) -> dict[str, Any]:
        """The weights, and the collected returns."""
        return {"weights": self.weights_G.tolist(), "waiting": self._episodes.waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self.weights_G = np.asarray(state["weights"], np.float64)
        self._episodes.waiting = [*state["waiting"]]


class Constraints(FixedPreference):
    """λ ≥ 0: dual ascent on the shortfalls from thresholds, in widths of the front and at most one at a time.

    Shortfalls accumulate, up to the ceiling.
    """

    def __init__(self, settings: Woven, asked: ConstrainedPreference) -> None:
        super().__init__(settings)
        self.asked = asked
        names = self.tree.names
        self.held = np.array([name in asked.least for name in names])
        self.least_G: Floats = np.array([asked.least.get(name, -np.inf) for name in names])
        self._grown_G: Floats = np.zeros(len(names))
        self._best_G: Floats | None = None
        """Greatest mean so far."""
        self._episodes = ReturnWindow(asked.episodes)
        self._named: set[int] = set()
        """Objectives whose threshold was reported to be out of reach."""

    def observe(self, returns_PG: ArrayLike, *, best_G: Floats, width_G: Floats) -> None:
        """Move the multipliers by the current shortfalls."""
        mean_G = self._episodes.mean(returns_PG)
        if mean_G is None:
            return
        asked = self.asked
        missing_G = np.where(self.held, np.clip((self.least_G - mean_G) / width_G, -1.0, 1.0), 0.0)
        self._grown_G = np.clip(self._grown_G + asked.rate * missing_G, 0.0, asked.ceiling)
        self.multipliers_G = np.clip(self._grown_G + asked.damping * missing_G, 0.0, asked.ceiling)
        self._best_G = mean_G if self._best_G is None else np.maximum(self._best_G, mean_G)
        reached = [reaches(*both, rounding=SINGLE) for both in zip(self._best_G, self.least_G, strict=True)]
        out_of_reach = self.held & (self._grown_G >= asked.ceiling) & ~np.array(reached)
        for g in {*np.flatnonzero(out_of_reach).tolist()} - self._named:
            self._named.add(g)
            _log.warning(
                "objective %r: least=%g is out of reach: its multiplier is at its ceiling of %g, the best mean of %d "
                "episodes so far is %g, the latest %g. Lower the threshold, or train longer.",
                *(self.tree.names[g], self.least_G[g], asked.ceiling, asked.episodes, self._best_G[g], mean_G[g]),
            )

    def metrics(self) -> dict[str, float]:
        """The multipliers of constrained objectives."""
        return by(Metric.CONSTRAINT, np.array(self.tree.names)[self.held], self.multipliers_G[self.held])

    def state_dict(self) -> dict[str, Any]:
        """Multipliers, best mean, and the collected returns."""
        best = None if self._best_G is None else self._best_G.tolist()
        grown = self._grown_G.tolist()
        multipliers = self.multipliers_G.tolist()
        return {"grown": grown, "multipliers": multipliers, "best": best, "waiting": self._episodes.waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._grown_G, self.multipliers_G = (np.asarray(state[name], np.float64) for name in ("grown", "multipliers"))
        self._best_G = None if state["best"] is None else np.asarray(state["best"], np.float64)
        self._episodes.waiting = [*state["waiting"]]


def open_moving(settings: Woven) -> FixedPreference:
    """The moving preference for these settings."""
    asked = settings.preference
    if isinstance(asked, AdaptivePreference):
        return Lagging(settings, asked)
    if isinstance(asked, ConstrainedPreference):
        return Constraints(settings, asked)
    return FixedPreference(settings)


def by(metric: Metric, names: Iterable[str], values: Floats) -> dict[str, float]:
    """A metric of each of these names."""
    return dict(zip(map(metric.of, names), values.tolist(), strict=True))


def warn_of_constants(names: Sequence[str], returns_PH: ArrayLike, *, enough: int) -> None:
    """Warn once per objective that was constant over this many episodes: nothing can be learnt from it."""
    for name, column in zip(names, np.asarray(returns_PH).T, strict=False):
        if len(column) == enough and not has_signal(column) and log_once(f"constant objective {name}"):
            _log.warning(
                "objective %r was %g in all of the latest %d episodes: nothing can be learnt of it. Leave it out, "
                "or look at what the environment pays.",
                name,
                column[0],
                enough,
            )
