"""The league of a language run: opponents are part of the tasks, and attempts at them are the games."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import override

from loomrl.algorithms.league import LeaguePool
from loomrl.config import Experiment
from loomrl.errors import ConfigError
from loomrl.gym.curriculum import TaskDraw, family_key
from loomrl.gym.opponent import (
    PAST,
    PRESENT,
    SCRIPTED,
    SLIPS,
    LeagueSettings,
    Opponent,
    opponent_of,
)
from loomrl.gym.task_mixture import TaskMixture
from loomrl.telemetry.metric import Metric
from loomrl.types import Group, Task, Trajectory


class League(LeaguePool):
    """The pool of one environment, and the games of its families that have a second seat, by key."""

    def __init__(self, settings: LeagueSettings, families: Iterable[str]) -> None:
        super().__init__(settings)
        self._families = frozenset(families)

    def draw(self, rng: random.Random, draw: TaskDraw) -> Opponent | None:
        """The opponent of a group; None if its family has no second seat."""
        if draw.family.key not in self._families:
            return None
        chances = self.chances()
        name = rng.choices([*chances], [*chances.values()])[0]
        for member in self.members:
            if str(member.version) == name:
                return {"kind": PAST, "version": member.version, "url": member.url}
        return {"kind": name}

    def observe(self, groups: Iterable[Group]) -> None:
        """Learn from the games of an update; failed attempts are none."""
        for group in groups:
            played = self._own_games(group.usable)
            if played:
                self.record(self._name(played[0].task), [attempt.reward.success for attempt in played])

    @override
    def admit(self, version: int, url: str) -> None:
        """Let a version join, if it is time."""
        if version % self.settings.every == 0:
            super().admit(version, url)

    def metrics(self, attempts: Iterable[Trajectory]) -> dict[str, float]:
        """Metrics of this update's games; the rating is that before them."""
        played = self._own_games(attempts)
        found = self.rating_metrics()
        for kind in (PAST, PRESENT, SCRIPTED):
            points = [each.reward.success for each in played if (opponent_of(each.task) or {}).get("kind") == kind]
            if points:
                found[Metric.LEAGUE_POINTS.of(kind)] = sum(points) / len(points)
        if played:
            found[Metric.LEAGUE_POINTS] = sum(each.reward.success for each in played) / len(played)
            found[Metric.LEAGUE_ILLEGAL] = sum(each.extra.get(SLIPS, 0) for each in played) / len(played)
        return found

    def _own_games(self, attempts: Iterable[Trajectory]) -> list[Trajectory]:
        return [attempt for attempt in attempts if family_key(attempt.task) in self._families]

    def _name(self, task: Task) -> str:
        """The opponent's name among the ratings."""
        opponent = opponent_of(task) or {"kind": SCRIPTED}
        if opponent["kind"] == SCRIPTED:
            return self.settings.rating_name(task)
        return PRESENT if opponent["kind"] == PRESENT else str(opponent["version"])


def needed_versions(state: Mapping[str, Any]) -> set[int]:
    """The versions whose checkpoints the league in a run's state needs.

    The one that left last may still have the second seat of a game that began before.
    """
    league = state.get("league")
    return set() if league is None else {member[0] for member in league["members"]} | {*league["left"]}


def open_league(experiment: Experiment, mixture: TaskMixture) -> League | None:
    """The league that an environment's settings ask for; None without any. A ConfigError if it could not be kept."""
    asked = {name: league for name, m in mixture.members.items() if (league := m.environment.league) is not None}
    if not asked:
        return None
    if len(asked) > 1:
        raise ConfigError(
            f"environments {', '.join(asked)} have a league each, and a run has one: give all but one of them another "
            "opponent."
        )
    (name, settings), *_ = asked.items()
    member = mixture.members[name]
    families = [family.key for family in member.families if member.has_opponent(family)]
    where = f"environment {name}, opponent.kind=league"
    if not families:
        raise ConfigError(f"{where}: none of its families has a second seat: leave the league out, or name others.")
    if experiment.data is not None:
        raise ConfigError(f"{where} has no effect with data.dataset, which plays no games: name another opponent.")
    _refuse_times(f"{where}, every={settings.every}", settings.every, experiment)
    return League(settings, families)


def _refuse_times(where: str, every: int, experiment: Experiment) -> None:
    keeps = experiment.train.checkpoint_every
    stale = experiment.hub.max_staleness
    if every % keeps:
        raise ConfigError(
            f"{where} is no multiple of train.checkpoint_every={keeps}: a version joins with its checkpoint. Set it to "
            f"{keeps * -(-every // keeps)}."
        )
    if every <= stale:
        raise ConfigError(
            f"{where} is not above hub.max_staleness={stale}: games may still be played against a version whose "
            "checkpoint is gone. Raise it."
        )
