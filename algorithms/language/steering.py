"""The preferences of a run's groups: drawn for each, moved by what attempts earn.

Axes: `_P` attempts, `_G` objectives that a preference weighs, `_H` those that the environment pays.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from loomrl.algorithms.moving import by, open_moving, warn_of_constants
from loomrl.config import LanguageWeave
from loomrl.control.preference import Always, Leaning, group_returns
from loomrl.errors import ConfigError
from loomrl.evaluation.front import ParetoFront, parts_of
from loomrl.gym.preference import Preference, percents
from loomrl.gym.task_mixture import TaskMixture
from loomrl.telemetry.metric import Metric
from loomrl.types import Trajectory

ENOUGH = 100
"""Attempts after which an objective that never changed is named in the log."""


class PreferenceSource:
    """Where preferences come from, and the multipliers of constraints."""

    def __init__(self, settings: LanguageWeave) -> None:
        self.settings = settings
        self.tree = settings.tree
        self._moving = open_moving(settings)
        self._front = ParetoFront(settings.reference)
        self._latest: list[list[float]] = []

    @property
    def multipliers(self) -> tuple[float, ...]:
        """Weight of every objective in addition to its preference."""
        return tuple(self._moving.multipliers_G.tolist())

    def draw(self, rng: random.Random) -> Preference:
        """The preference of a group, rounded to what the policy reads."""
        source = self._moving.source(0, 1)
        if isinstance(source, Always):
            weights: Sequence[float] = source.weights
        elif isinstance(source, Leaning) and rng.random() < source.share:
            weights = source.towards
        else:
            weights = evenly(len(self.tree.names), round(1 / self.settings.precision), rng)
        told = percents(dict(zip(self.tree.names, weights, strict=True)))
        return {name: percent / 100 for name, percent in told.items()}

    def observe(self, attempts: Iterable[Trajectory]) -> None:
        """Learn from the attempts of an update."""
        paid_PH = [parts_of(attempt, self.tree.leaves) for attempt in attempts]
        if not paid_PH:
            return
        returns_PG = group_returns(paid_PH, self.tree)
        self._latest = [*self._latest, *paid_PH][-ENOUGH:]
        warn_of_constants(self.tree.leaves, self._latest, enough=ENOUGH)
        self._front.observe(returns_PG)
        best_G, width_G = self._front.span(len(self.tree.names))
        self._moving.observe(returns_PG, best_G=best_G, width_G=width_G)

    def metrics(self, attempts: Sequence[Trajectory]) -> dict[str, float]:
        """Mean returns of objectives, and the weights that moved."""
        if not attempts:
            return {}
        paid_H = np.mean([parts_of(attempt, self.tree.leaves) for attempt in attempts], axis=0)
        told = by(Metric.RETURN_OBJECTIVE, self.tree.names, group_returns(paid_H, self.tree))
        return told | by(Metric.RETURN_OBJECTIVE, self.tree.leaves, paid_H) | self._moving.metrics()

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {"front": self._front.state_dict(), "moving": self._moving.state_dict(), "latest": self._latest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._front.load_state_dict(state["front"])
        self._moving.load_state_dict(state["moving"])
        self._latest = [*state["latest"]]


def evenly(count: int, cuts: int, rng: random.Random) -> list[float]:
    """Weights of `count` objectives in steps of 1 / `cuts`, each of these preferences equally likely."""
    bars = sorted(rng.sample(range(cuts + count - 1), count - 1))
    edges = [-1, *bars, cuts + count - 1]
    return [(right - left - 1) / cuts for left, right in pairwise(edges)]


def open_steering(algorithm: object, mixture: TaskMixture, further: Sequence[str] = ()) -> PreferenceSource | None:
    """The source of preferences, if the algorithm has several objectives; `further` names the experiment's own parts.

    A ConfigError if an environment has no place for a preference, or an objective is not part of any reward.
    """
    if not isinstance(algorithm, LanguageWeave) or not algorithm.objectives:
        return None
    deaf = [name for name, member in mixture.members.items() if member.environment.player is not None]
    if deaf:
        raise ConfigError(
            f"algorithm.objectives: {', '.join(deaf)} is played by an agent, which says itself what the policy reads, "
            "so that no preference would be in it. Name other environments, or leave out objectives."
        )
    declared = [member.environment.reward_parts for member in mixture.members.values()]
    known = {*further, *(part for parts in declared for part in parts)}
    missing = [leaf for leaf in algorithm.tree.leaves if leaf not in known]
    if missing and all(declared):
        raise ConfigError(
            f"algorithm.objectives: no reward has a part named {', '.join(missing)}; known: "
            f"{', '.join(sorted(known))}. Name parts of the environments, or of rewards.parts."
        )
    return PreferenceSource(algorithm)
