"""The pool of a league: a run's past versions as opponents, how the policy does against them, and ratings of all.

A version is drawn by how often it beats the present policy, (1 - p)² with p the policy's share of points against it:
prioritised fictitious self-play, as AlphaStar's main agents do it. Games count for the version at the end of the
interval in which they were played, and until then for the present one.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loomrl.evaluation.rating import GameTally, Rating, Ratings, rate
from loomrl.gym.opponent import PRESENT, SCRIPTED, LeagueSettings
from loomrl.telemetry.metric import Metric

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


class LeaguePool:
    """The versions that are met, and the results of all games of a run."""

    def __init__(self, settings: LeagueSettings) -> None:
        self.settings = settings
        self.members: list[LeagueMember] = []
        self._left: list[int] = []
        self._versions: list[str] = []
        """All that ever joined, in order."""
        self._games: dict[tuple[str, str], GameTally] = {}

    @staticmethod
    def weight(member: LeagueMember) -> float:
        """How often it is drawn, compared with the others."""
        return (1 - member.beaten) ** 2

    def chances(self) -> dict[str, float]:
        """How likely each opponent is, by name; before any version has joined, past ones' share is the present's."""
        scripted = self.settings.scripted_share
        present = self.settings.present_share
        if not self.members:
            return {SCRIPTED: scripted, PRESENT: 1 - scripted}
        whole = sum(self.weight(member) for member in self.members)
        past = {str(each.version): (1 - scripted - present) * self.weight(each) / whole for each in self.members}
        return {SCRIPTED: scripted, PRESENT: present, **past}

    def record(self, opponent: str, points: Sequence[float], *, first: bool = True) -> None:
        """Games of a group against the opponent of this name; `points` are the policy's, which has the first seat, or
        else the second.
        """
        pair = (PRESENT, opponent) if first else (opponent, PRESENT)
        earned = sum(points) if first else len(points) - sum(points)
        self._games.setdefault(pair, GameTally()).add(earned, len(points))
        for member in self.members:
            if str(member.version) == opponent:
                member.recent.extend(points)

    def admit(self, version: int, url: str) -> None:
        """Let a version join, unless it has; what the present policy has played so far becomes its own record."""
        if str(version) in self._versions:
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

    def rating_metrics(self) -> dict[str, float]:
        """The size of the pool, and the present version's rating."""
        rating = self.ratings().players[PRESENT]
        return {
            str(Metric.LEAGUE_MEMBERS): float(len(self.members)),
            str(Metric.LEAGUE_RATING): rating.mean,
            Metric.LEAGUE_RATING.of("low"): rating.low,
            Metric.LEAGUE_RATING.of("high"): rating.high,
        }

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


def standings(state: Standing) -> dict[str, Any]:
    """The table of ratings and the matrix of results of a league in a checkpoint, as JSON."""
    league = LeaguePool(LeagueSettings())
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
