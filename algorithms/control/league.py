"""The league of a control run: past versions and the present policy are seated at the tables of all runners."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import torch

from loomrl.algorithms.control.probe import make_environment
from loomrl.algorithms.league import LeaguePool
from loomrl.control.policy import ControlPolicy
from loomrl.control.turns import GameResult, TurnVector
from loomrl.errors import ConfigError
from loomrl.gym.opponent import PAST, PRESENT, SCRIPTED, LeagueSettings
from loomrl.telemetry.metric import Metric


class ControlLeague:
    """The pool, with the frozen policies of its members. A version joins every so many updates."""

    def __init__(self, settings: LeagueSettings) -> None:
        self.pool = LeaguePool(settings)
        self._policies: dict[str, ControlPolicy] = {}
        self._latest: list[GameResult] = []
        """Games that ended in the latest update."""

    def seat(self, algo: Any) -> None:
        """Let the present version join if it is time, and give every runner the opponents of its next games."""
        present = algo.policy()
        if algo.updates % self.pool.settings.every == 0:
            self.pool.admit(algo.env_steps, "")
            self._policies[str(algo.env_steps)] = present
        members = {str(member.version) for member in self.pool.members}
        self._policies = {name: policy for name, policy in self._policies.items() if name in members}
        _each_runner(algo, partial(_seat, {PRESENT: present, **self._policies}, self.pool.chances()))

    def observe(self, algo: Any) -> None:
        """Count the games that have ended."""
        self._latest = [result for told in _each_runner(algo, _take_results) for result in told]
        for result in self._latest:
            self.pool.record(result.opponent, [result.points], first=result.is_first)

    @property
    def rating(self) -> float:
        """The present version's, from its games so far; the first version's is 0."""
        return self.pool.ratings().players[PRESENT].mean

    def metrics(self) -> dict[str, float]:
        """The rating, and mean points of the latest games by kind of opponent."""
        found = self.pool.rating_metrics()
        if self._latest:
            found[Metric.LEAGUE_POINTS] = _mean(self._latest)
        for kind in (PAST, PRESENT, SCRIPTED):
            played = [each for each in self._latest if (each.opponent if each.opponent in ALIKE else PAST) == kind]
            if played:
                found[Metric.LEAGUE_POINTS.of(kind)] = _mean(played)
        return found

    def state_dict(self) -> dict[str, Any]:
        """The pool, and its members' weights."""
        return {
            "pool": self.pool.state_dict(),
            "weights": {name: deepcopy(policy.net.state_dict()) for name, policy in self._policies.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any], present: ControlPolicy) -> None:
        """Resume; members have the network of the present policy."""
        self.pool.load_state_dict(state["pool"])
        self._policies = {name: _with_weights(present, weights) for name, weights in state["weights"].items()}


ALIKE = (PRESENT, SCRIPTED)
"""Opponents whose name is their kind."""


def open_league(config: Any) -> ControlLeague | None:
    """The league that the environment's settings ask for; None without any."""
    if "opponent" not in (config.env_config or {}):
        return None
    one = make_environment(config.env, dict(config.env_config))
    one.close()
    tables = one.unwrapped
    if not isinstance(tables, TurnVector) or tables.league is None:
        return None
    if config.settings.network.memory is not None:
        raise ConfigError(
            f"algorithm.network.memory={config.settings.network.memory.kind}: opponents of a league have no memory. "
            "Leave it out, or choose opponent.kind=random or policy."
        )
    return ControlLeague(tables.league)


def _each_runner(algo: Any, call: Any) -> list[Any]:
    found: list[Any] = algo.env_runner_group.foreach_env_runner(call, local_env_runner=algo.config.num_env_runners == 0)
    return found


def _seat(policies: Mapping[str, ControlPolicy], chances: Mapping[str, float], runner: Any) -> None:
    runner.env.unwrapped.seat(policies, chances)


def _take_results(runner: Any) -> list[GameResult]:
    found: list[GameResult] = runner.env.unwrapped.take_results()
    return found


def _with_weights(like: ControlPolicy, weights: Mapping[str, torch.Tensor]) -> ControlPolicy:
    net = deepcopy(like.net)
    net.load_state_dict(weights)
    return ControlPolicy(net, like.observation_space, like.action_space, like.network)


def _mean(results: Sequence[GameResult]) -> float:
    return sum(result.points for result in results) / len(results)
