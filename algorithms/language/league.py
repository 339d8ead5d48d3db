"""The league of a run: its past versions as opponents, how it does against them, and ratings of all.

A version is drawn by how often it beats the present policy, (1 - p)² with p the policy's share of points against it:
prioritised fictitious self-play, as AlphaStar's main agents do it. Games count for the version at the end of the
interval in which they were played, and until then for the present one.
"""

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomrl.config import Experiment
from loomrl.errors import ConfigError
from loomrl.evaluation.rating import GameTally, Rating, Ratings, rate
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

RECENT = 64
"""Latest games against a member by which it is drawn."""
Standing = Mapping[str, Any]
"""The state of a league, as it is in a checkpoint."""


@dataclass(slots=True)
class LeagueMember:
    """A past version in the pool."""

    version: int
    url: str
    """Its checkpoint, below `artifact_url`."""
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """The present policy's points in the latest games against it."""

    @property
    def beaten(self) -> float:
        """The present policy's share of points, a half if nothing is known."""
        return (sum(self.recent) + 1) / (len(self.recent) + 2)


class League:
    """The pool of one environment, and the games of its families that have a second seat, by key."""

    def __init__(self, settings: LeagueSettings, families: Iterable[str]) -> None:
        self.settings = settings
        self._families = frozenset(families)
        self.members: list[LeagueMember] = []
        self._left: list[int] = []
        self._versions: list[str] = []
        """All that ever joined, in order."""
        self._games: dict[tuple[str, str], GameTally] = {}

    def draw(self, rng: random.Random, draw: TaskDraw) -> Opponent | None:
        """The opponent of a group; None if its family has no second seat."""
        if draw.family.key not in self._families:
            return None
        settings = self.settings
        chance = rng.random()
        if chance < settings.scripted_share:
            return {"kind": SCRIPTED}
        if chance < settings.scripted_share + settings.present_share or not self.members:
            return {"kind": PRESENT}
        member = rng.choices(self.members, [self.weight(member) for member in self.members])[0]
        return {"kind": PAST, "version": member.version, "url": member.url}

    @staticmethod
    def weight(member: LeagueMember) -> float:
        """How often it is drawn, compared with the others."""
        return (1 - member.beaten) ** 2

    def observe(self, groups: Iterable[Group]) -> None:
        """Learn from the games of an update; failed attempts are none."""
        by_version = {str(member.version): member for member in self.members}
        for group in groups:
            played = self._own_games(group.usable)
            if not played:
                continue
            name = self._name(played[0].task)
            points = [attempt.reward.success for attempt in played]
            self._games.setdefault((PRESENT, name), GameTally()).add(sum(points), len(points))
            if name in by_version:
                by_version[name].recent.extend(points)

    def admit(self, version: int, url: str) -> None:
        """Let a version join, if it is time; what the present policy has played so far becomes its own record."""
        if version % self.settings.every or str(version) in self._versions:
            return
        name = str(version)
        self._games = {
            (name if first == PRESENT else first, name if second == PRESENT else second): tally
            for (first, second), tally in self._games.items()
        }
        self._versions.append(name)
        self._left = []
        if len(self.members) == self.settings.members:
            easiest = max(self.members, key=lambda member: (member.beaten, -member.version))
            self.members.remove(easiest)
            self._left = [easiest.version]
        self.members.append(LeagueMember(version, url))

    def ratings(self) -> Ratings:
        """Ratings of all versions that joined, the present one and the scripted players; the first version's is 0."""
        return rate(self._games, [*self._versions, PRESENT])

    @property
    def rating(self) -> float | None:
        """The present version's rating, from its games so far; None before the first game of all.

        Success would not do to compare versions, since each has met others.
        """
        return self.ratings().players[PRESENT].mean if self._games else None

    def metrics(self, attempts: Iterable[Trajectory]) -> dict[str, float]:
        """Metrics of this update's games; the rating is that before them."""
        played = self._own_games(attempts)
        rating = self.ratings().players[PRESENT]
        found = {
            str(Metric.LEAGUE_MEMBERS): float(len(self.members)),
            str(Metric.LEAGUE_RATING): rating.mean,
            Metric.LEAGUE_RATING.of("low"): rating.low,
            Metric.LEAGUE_RATING.of("high"): rating.high,
        }
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

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {
            "members": [[member.version, member.url, list(member.recent)] for member in self.members],
            "left": self._left,
            "versions": self._versions,
            "games": [[*pair, tally.points, tally.games, *tally.squares] for pair, tally in self._games.items()],
        }

    def load_state_dict(self, state: Standing) -> None:
        """Resume from `state`."""
        self.members = [LeagueMember(version, url, deque(points, RECENT)) for version, url, points in state["members"]]
        self._left = list(state["left"])
        self._versions = list(state["versions"])
        self._games = {
            (first, second): GameTally(points, games, tuple(squares))
            for first, second, points, games, *squares in state["games"]
        }


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


def standings(state: Standing) -> dict[str, Any]:
    """The table of ratings and the matrix of results of a league in a checkpoint, as JSON."""
    league = League(LeagueSettings(), ())
    league.load_state_dict(state)
    ratings = league.ratings()
    members = {str(member.version) for member in league.members}
    games: Sequence[Sequence[Any]] = league.state_dict()["games"]
    return {
        "ratings": [
            {**_as_dict(rating), "player": name, "member": name in members, "games": _games_of(name, games)}
            for name, rating in sorted(ratings.players.items(), key=lambda pair: -pair[1].mean)
        ],
        "advantage": _as_dict(ratings.advantage),
        "results": [
            {"player": first, "opponent": second, "points": points, "games": count}
            for first, second, points, count, *_ in games
        ],
    }


def _as_dict(rating: Rating) -> dict[str, float]:
    return {"rating": rating.mean, "low": rating.low, "high": rating.high}


def _games_of(player: str, games: Iterable[Sequence[Any]]) -> int:
    return sum(count for first, second, _, count, *_ in games if player in (first, second))
