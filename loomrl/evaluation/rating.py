"""Ratings from games: a Bradley-Terry model, all players at once, with intervals.

The order of games does not matter, except that consecutive versions of a policy are expected near each other. The
player in the first seat may have an advantage, which is estimated with the rest. Games of a group began alike, so that
they tell less than as many independent ones: their variance is that between groups, where it is larger.

Axes: `_P` pairs that have met, `_N` parameters, which are the ratings of all players but the anchor, and the advantage.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ELO = 400 / math.log(10)
"""Points of Elo in a unit of the model: 400 points are odds of ten to one."""
DRIFT = 200 / ELO
SPREAD = 1000 / ELO
"""Standard deviations of what is expected: between consecutive versions, and of any other player."""
STEPS = 100
ENOUGH = 1e-9


@dataclass(slots=True)
class GameTally:
    """The games of a pair. `points` are the first player's: 1 for a win, 0.5 for a draw."""

    points: float = 0.0
    games: int = 0
    squares: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Sums over groups: points times points, points times games, games times games."""

    def add(self, points: float, games: int) -> None:
        """A group of games."""
        a, b, c = self.squares
        self.squares = (a + points * points, b + points * games, c + games * games)
        self.points = self.points + points
        self.games = self.games + games

    def variance(self, chance: float) -> float:
        """Variance of the points, where the expected share of points is `chance`."""
        a, b, c = self.squares
        return max(self.games * chance * (1 - chance), a - 2 * chance * b + chance * chance * c)


@dataclass(frozen=True, slots=True)
class Rating:
    """In points of Elo, with confidence bounds."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ratings:
    """Ratings of all players, the first version's being 0; `advantage` is that of the first seat."""

    players: Mapping[str, Rating] = field(default_factory=dict)
    advantage: Rating = Rating(0.0, 0.0, 0.0)


def rate(games: Mapping[tuple[str, str], GameTally], versions: Sequence[str], *, confidence: float = 0.95) -> Ratings:
    """Rate everybody who has played, and all `versions` of a policy, in the order in which they were made."""
    others = sorted({name for pair in games for name in pair} - {*versions})
    column = {name: number for number, name in enumerate([*versions[1:], *others])}
    met = [(pair, tally) for pair, tally in sorted(games.items()) if tally.games]
    seats_PN = np.zeros((len(met), len(column) + 1))
    seats_PN[:, -1] = 1
    for row, ((first, second), _) in enumerate(met):
        for name, sign in ((first, 1), (second, -1)):
            if name in column:
                seats_PN[row, column[name]] += sign
    prior_NN = _prior(len(versions) - 1, len(others))
    solution_N = _most_likely(seats_PN, [tally for _, tally in met], prior_NN)
    chance_P = _chance(seats_PN @ solution_N)
    count_P = np.array([tally.games for _, tally in met], float)
    bread_NN = np.linalg.inv(prior_NN + seats_PN.T * (count_P * chance_P * (1 - chance_P)) @ seats_PN)
    varies_P = np.array([tally.variance(float(p)) for (_, tally), p in zip(met, chance_P, strict=True)])
    covariance_NN = bread_NN @ (prior_NN + seats_PN.T * varies_P @ seats_PN) @ bread_NN
    half_N = NormalDist().inv_cdf((1 + confidence) / 2) * np.sqrt(np.diag(covariance_NN))
    rated = [Rating(ELO * m, ELO * (m - h), ELO * (m + h)) for m, h in zip(solution_N, half_N, strict=True)]
    found = {name: rated[number] for name, number in column.items()}
    return Ratings({name: Rating(0.0, 0.0, 0.0) for name in versions[:1]} | found, rated[-1])


def _prior(later: int, others: int) -> Floats:
    """Precision of what is expected before any game: a chain of versions from the anchor, and everybody else."""
    size = later + others + 1
    prior_NN = np.eye(size) / SPREAD**2
    prior_NN[:later, :later] = 0
    for number in range(later):
        prior_NN[number, number] += 1 / DRIFT**2
        if number:
            prior_NN[number - 1, number - 1] += 1 / DRIFT**2
            prior_NN[number, number - 1] = prior_NN[number - 1, number] = -1 / DRIFT**2
    return prior_NN


def _most_likely(seats_PN: Floats, tallies: Sequence[GameTally], prior_NN: Floats) -> Floats:
    """The maximum of the posterior, which is concave: by Newton's steps, halved where they lead down."""
    points_P = np.array([tally.points for tally in tallies], float)
    count_P = np.array([tally.games for tally in tallies], float)

    def height(at_N: Floats) -> float:
        lead_P = seats_PN @ at_N
        likely = points_P @ lead_P - count_P @ np.logaddexp(0, lead_P)
        return float(likely - at_N @ prior_NN @ at_N / 2)

    at_N = np.zeros(prior_NN.shape[0])
    for _ in range(STEPS):
        chance_P = _chance(seats_PN @ at_N)
        slope_N = seats_PN.T @ (points_P - count_P * chance_P) - prior_NN @ at_N
        curve_NN = prior_NN + seats_PN.T * (count_P * chance_P * (1 - chance_P)) @ seats_PN
        step_N = np.linalg.solve(curve_NN, slope_N)
        if slope_N @ step_N < ENOUGH:
            break
        here = height(at_N)
        while height(at_N + step_N) < here and np.abs(step_N).max() > ENOUGH:
            step_N = step_N / 2
        at_N = at_N + step_N
    return at_N


def _chance(lead_P: Floats) -> Floats:
    """The expected share of points."""
    return np.asarray(1 / (1 + np.exp(-lead_P)))
