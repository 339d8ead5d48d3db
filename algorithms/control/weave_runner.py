"""The runner of WEAVE: every episode has a preference, from this node's region or as steered.

Axes: `_T` steps, `_N` environments, `_H` objectives that the environment pays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from loomrl.algorithms.control.algorithm import Brought, collect_fragment
from loomrl.algorithms.control.probe import make_environment
from loomrl.algorithms.control.rollout import Episode, Rollout
from loomrl.algorithms.control.runner import ArrayRunner
from loomrl.config.weave import Chebyshev, Weave
from loomrl.control.preference import (
    Preferred,
    Source,
    Steering,
    VectorRewards,
    group_returns,
    open_preferences,
    preference_in,
)
from loomrl.telemetry.metric import Metric


class WeaveRunner(ArrayRunner):
    """Gives every episode a preference from this runner's region, if there are several objectives."""

    @override
    def make_env(self) -> None:
        """Environments; with objectives, those with vector rewards."""
        settings = self.config.settings
        config = self.config
        if not settings.objectives:
            super().make_env()
            return
        if self.env is not None:
            self.env.close()
        self._tree = settings.tree
        self.pays = self._tree.leaves
        self.objectives = (len(self.pays),)
        part = max(0, (self.worker_index or 0) - 1)
        parts = max(1, config.num_env_runners)
        steering = Steering.of(settings, source=open_preferences(settings, part=part, parts=parts))
        make = partial(_make_preferred, config.env, dict(config.env_config), steering)
        self.env = VectorRewards([make] * config.num_envs_per_env_runner)
        self.num_envs = self.env.num_envs
        self._needs_initial_reset = True

    def steer(self, source: Source) -> None:
        """Draw the preferences of new episodes from this source."""
        self.env.steer(source)

    def _make_rollout(self, seen_T: NDArray[Any], *columns: Any) -> Rollout:
        """The rollout with every episode's return weighted by its preference."""
        rollout = super()._make_rollout(seen_T, *columns)
        settings = self.config.settings
        if not settings.objectives:
            return rollout
        shown = preference_in(seen_T[:-1][rollout.ended], len(settings.objectives), earns=earns(settings))
        episodes = [
            episode._replace(
                reward=float(np.dot(weights, group_returns(episode.parts, self._tree))),
                preference=tuple(weights.tolist()),
            )
            for episode, weights in zip(rollout.episodes, shown, strict=True)
        ]
        return replace(rollout, episodes=tuple(episodes))

    def _episodes(
        self, rewards: NDArray[np.float32], ended: NDArray[np.bool_], valid: NDArray[np.bool_]
    ) -> list[Episode]:
        """Episodes with discounted returns, on which fronts, references and thresholds are defined."""
        if self.objectives and self.config.settings.gamma != 1:
            rewards = rewards * self._shares(ended, valid)[..., None]
        return super()._episodes(rewards, ended, valid)

    def _shares(self, ended: NDArray[np.bool_], valid: NDArray[np.bool_]) -> NDArray[np.float32]:
        """γᵗ, where t counts the steps of the episode, `[T, N]`."""
        begun_TN = np.empty(ended.shape, np.int64)
        now_N = self._steps_N
        for t, (over_N, counts_N) in enumerate(zip(ended, valid, strict=True)):
            begun_TN[t] = now_N
            now_N = np.where(over_N, 0, now_N + counts_N)
        shares_TN: NDArray[np.float32] = np.power(float(self.config.settings.gamma), begun_TN).astype(np.float32)
        return shares_TN


def collect_steered(runner: WeaveRunner, *, random: bool, sources: Mapping[int, Source]) -> Brought:
    """A fragment whose new episodes have preferences from this runner's source, and the counters."""
    runner.steer(sources[runner.worker_index or 0])
    return collect_fragment(runner, random=random)


def nodes(rollouts: Sequence[Rollout], settings: Weave) -> dict[str, float]:
    """Figures of every node: steps, mean return of its episodes, and mean first weight of its steps."""
    found = {}
    count = len(settings.objectives)
    for rollout in rollouts:
        node = str(rollout.route[0])
        found[Metric.NODE_STEPS.of(node)] = float(rollout.env_steps())
        if rollout.episodes:
            found[Metric.NODE_RETURN.of(node)] = float(np.mean([episode.reward for episode in rollout.episodes]))
        if count and rollout.valid.any():
            shown = preference_in(rollout.seen[:-1][rollout.valid], count, earns=earns(settings))
            found[Metric.NODE_PREFERENCE.of(node)] = float(shown[:, 0].mean())
    return found


def earns(settings: Weave) -> bool:
    """True if the utility is of returns up to now, with a column of its own."""
    return isinstance(settings.scalarisation, Chebyshev)


def _make_preferred(env: Any, settings: dict[str, Any], steering: Steering) -> Preferred:
    return Preferred(make_environment(env, settings), steering)
