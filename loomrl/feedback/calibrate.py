"""A judge compared with people on rated trajectories; where they agree, a map between their scores is fitted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loomrl.config.rewards import ClassifierPart, Criterion, RubricPart
from loomrl.errors import DataError, ScorerError
from loomrl.evaluation.statistics import Interval
from loomrl.feedback.rating import PeopleRatings, Rated
from loomrl.gym.classifier import ClassifierJudge
from loomrl.gym.rubric import Calibration, fingerprint
from loomrl.gym.rubric_judge import RubricGrade, RubricJudge

Numbers = NDArray[np.float64]
RESAMPLES = 1000
CONFIDENCE = 0.95


def rank_correlation(left: Numbers, right: Numbers) -> float:
    """Spearman's, with mean ranks for ties; NaN where all of one are alike."""
    return _correlation(ranks(left), ranks(right))


def ranks(values: Numbers) -> Numbers:
    """From 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray(((last - counts + 1 + last) / 2)[inverse], np.float64)


def kappa(left: Numbers, right: Numbers) -> float:
    """Cohen's kappa with squared weights: 1 for the same, 0 for chance; NaN where all of both are alike.

    Of two values it is the plain one.
    """
    observed = float(np.mean((left - right) ** 2))
    expected = float(left.var() + right.var() + (left.mean() - right.mean()) ** 2)  # of independent rows
    return 1 - observed / expected if expected else float("nan")


def mean(values: Numbers) -> float:
    """The mean."""
    return float(np.mean(values))


def bootstrap(statistic: Callable[..., float], *columns: Sequence[float], seed: int = 0) -> Interval:
    """A statistic of rows with the percentile interval of the bootstrap; a mean of None where it is not defined."""
    arrays = [np.asarray(column, np.float64) for column in columns]
    count = len(arrays[0])
    found = statistic(*arrays) if count else float("nan")
    if not np.isfinite(found):
        return Interval(None, -1.0, 1.0, count)
    rng = np.random.default_rng(seed)
    drawn = [statistic(*(array[rows] for array in arrays)) for rows in rng.integers(0, count, (RESAMPLES, count))]
    defined = [value for value in drawn if np.isfinite(value)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Interval(float(found), float(low), float(high), count)


def _correlation(left: Numbers, right: Numbers) -> float:
    left, right = left - left.mean(), right - right.mean()
    scale = float(np.sqrt((left**2).sum() * (right**2).sum()))
    return float((left * right).sum()) / scale if scale else float("nan")


FOLDS = 5


def isotonic(scores: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Knots of the map from scores to values with the least squared error among all that never fall."""
    levels, inverse, counts = np.unique(np.asarray(scores, np.float64), return_inverse=True, return_counts=True)
    sums = np.bincount(inverse, weights=np.asarray(values, np.float64))
    pools: list[tuple[float, int, int, int]] = []
    """Pools of levels with one value: sum, count, first and last level."""
    for place in range(len(levels)):
        pool = (float(sums[place]), int(counts[place]), place, place)
        while pools and pools[-1][0] * pool[1] >= pool[0] * pools[-1][1]:
            total, count, first, _ = pools.pop()
            pool = (total + pool[0], count + pool[1], first, pool[3])
        pools.append(pool)
    knots = [(float(levels[end]), total / count) for total, count, *ends in pools for end in sorted(set(ends))]
    return [score for score, _ in knots], [min(max(value, 0.0), 1.0) for _, value in knots]


def errors(scores: Sequence[float], values: Sequence[float], *, seed: int = 0) -> dict[str, float]:
    """Mean squared error of the score itself, of the map, and of the mean value; the last two on rows left out."""
    score = np.asarray(scores, np.float64)
    value = np.asarray(values, np.float64)
    fold = np.random.default_rng(seed).permutation(len(score)) % FOLDS
    mapped = np.empty_like(value)
    constant = np.empty_like(value)
    for number in range(FOLDS):
        out = fold == number
        rest = fold != number
        mapped[out] = np.interp(score[out], *isotonic(score[rest].tolist(), value[rest].tolist()))
        constant[out] = value[rest].mean()
    return {name: _error(each, value) for name, each in (("judge", score), ("map", mapped), ("constant", constant))}


def _error(found: Numbers, value: Numbers) -> float:
    return float(np.mean((found - value) ** 2))


LEAST = 30
"""Minimum number of rated trajectories."""
LEAST_EACH = 5
"""Minimum number in each half of people's scale."""
By = Literal["feedback", "inbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Agreement of a judge and people on one criterion: kappa if they answered the same question, else rank
    correlation."""

    measure: Literal["kappa", "rank"]
    found: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """A judge against people. Intervals are of the bootstrap, at 95 %."""

    ratings: int
    failed: tuple[str, ...]
    """Reasons for missing verdicts of the judge, one per trajectory."""
    gone: int
    """Rated trajectories that are no longer in the hub."""
    rank: Interval
    """Spearman's correlation of the judge's score with people's."""
    kappa: Interval
    """Cohen's kappa on whether an answer is in the upper half."""
    pairs: Interval | None
    """Share of people's choices between two answers that the judge would make; half of one where it sees none."""
    criteria: Mapping[str, Agreement]
    changed: Interval
    """Share of a rubric's verdicts that change when criteria and verdicts are listed in the opposite order."""
    shift: Interval
    """Mean increase of a rubric's score in the opposite order."""
    length: Interval
    """By how much more the judge's score goes with an answer's length than people's does: a difference of ranks'
    correlations.
    """
    errors: Mapping[str, float]
    """Mean squared distance to people's ratings: of the judge's score; of the map and a constant, on rows left out."""

    @property
    def agrees(self) -> bool:
        """True if it is proved that the judge's score rises with people's."""
        return self.rank.mean is not None and self.rank.low > 0

    def data(self) -> dict[str, Any]:
        """The report as JSON, without quotations."""
        return asdict(self) | {"failed": len(self.failed)}


@dataclass(frozen=True, slots=True)
class _Graded:
    """A rated trajectory with the judge's score; with a rubric's grade, and that with every order turned round."""

    rated: Rated
    score: float
    orders: tuple[RubricGrade, RubricGrade] | None = None

    @property
    def changed(self) -> list[float]:
        """By criterion: 1 where the order made another verdict."""
        if self.orders is None:
            return []
        grade, mirrored = self.orders
        return [float(mirrored.shares[name] != share) for name, share in grade.shares.items()]


def compare(
    part: RubricPart | ClassifierPart, ratings: PeopleRatings, *, by: By, at: float
) -> tuple[CalibrationReport, Calibration | None]:
    """Ask the judge about all rated trajectories.

    There is no map where nothing is proved; with too few ratings, or verdicts, there is a DataError.
    """
    _check_enough(ratings.rated)
    judged = part.model_copy(update={"calibration": None})
    criteria: tuple[Criterion, ...] = ()
    if isinstance(judged, RubricPart):
        name = judged.judge.model
        made_for = fingerprint(judged)
        graded, failed = _grade_all(RubricJudge(judged), ratings.rated)
        criteria = judged.criteria
    else:
        classifier = ClassifierJudge(judged)
        name = classifier.name
        made_for = classifier.fingerprint
        graded, failed = _score_all(classifier, ratings.rated)
    whole = [one for one in graded if one.rated.rating is not None]
    if len(whole) < LEAST:
        raise DataError(
            f"the judge gave no verdict on {len(failed)} of {len(ratings.rated)} trajectories, and verdicts on {LEAST} "
            f"rated ones are needed. The first: {failed[0]}"
        )
    people = [one.rated.rating or 0.0 for one in whole]
    judge = [one.score for one in whole]
    report = CalibrationReport(
        ratings=len(whole),
        failed=failed,
        gone=ratings.gone,
        rank=bootstrap(rank_correlation, judge, people),
        kappa=bootstrap(_halves, judge, people),
        pairs=_pairs(graded, ratings.pairs),
        criteria={criterion.name: _by_criterion(criterion.name, graded) for criterion in criteria},
        changed=bootstrap(mean, [changed for one in graded for changed in one.changed]),
        shift=bootstrap(mean, [one.orders[1].raw - one.score for one in graded if one.orders]),
        length=bootstrap(_favour, judge, people, [one.rated.length for one in whole]),
        errors=errors(judge, people),
    )
    knots, values = isotonic(judge, people)
    if not report.agrees or values[0] == values[-1]:
        return report, None
    return report, Calibration(
        fingerprint=made_for,
        model=name,
        judge=tuple(knots),
        people=tuple(values),
        ratings=report.ratings,
        by=by,
        report=report.data(),
        created_at=at,
    )


def _check_enough(rated: Sequence[Rated]) -> None:
    ratings = [one.rating for one in rated if one.rating is not None]
    high = sum(rating >= 0.5 for rating in ratings)
    low = len(ratings) - high
    if len(ratings) < LEAST or min(low, high) < LEAST_EACH:
        raise DataError(
            f"people rated {len(ratings)} trajectories, {low} of them below 0.5 and {high} not: at least {LEAST} are "
            f"needed, and {LEAST_EACH} of each. Give feedback (thumb, stars, outcome), or ask people with "
            "`loomrl rewards ask` and calibrate `--by inbox`."
        )


def _grade_all(judge: RubricJudge, rated: Sequence[Rated]) -> tuple[list[_Graded], tuple[str, ...]]:
    """The judge's grades in both orders, and the reasons for those that failed."""
    begun = [
        (one, judge.begin(one.conversation), judge.begin(one.conversation, mirrored=True)) for one in rated
    ]  # all of them before the first is waited for
    found = []
    failed = []
    for one, grade, mirrored in begun:
        try:
            found.append(_Graded(one, grade.result().score, (grade.result(), mirrored.result())))
        except ScorerError as error:
            failed.append(f"{one.id}: {error!s:.300}")
    return found, tuple(failed)


def _score_all(judge: ClassifierJudge, rated: Sequence[Rated]) -> tuple[list[_Graded], tuple[str, ...]]:
    scores = judge.score_all([one.conversation for one in rated])
    pairs = list(zip(rated, scores, strict=True))
    found = [_Graded(one, score) for one, score in pairs if isinstance(score, float)]
    return found, tuple(f"{one.id}: {score!s:.300}" for one, score in pairs if not isinstance(score, float))


def _by_criterion(name: str, graded: Sequence[_Graded]) -> Agreement:
    shares = [(one.orders[0].shares[name], one.rated) for one in graded if one.orders]
    asked = [(share, rated.verdicts[name]) for share, rated in shares if name in rated.verdicts]
    if asked:
        return Agreement(measure="kappa", found=bootstrap(kappa, *zip(*asked, strict=True)))
    whole = [(share, rated.rating) for share, rated in shares if rated.rating is not None]
    return Agreement(measure="rank", found=bootstrap(rank_correlation, *zip(*whole, strict=True)))


def _pairs(graded: Sequence[_Graded], pairs: Sequence[tuple[str, str]]) -> Interval | None:
    scores = {one.rated.id: one.score for one in graded}
    won = [
        0.5 + 0.5 * float(np.sign(scores[better] - scores[worse]))
        for better, worse in pairs
        if better in scores and worse in scores
    ]
    return bootstrap(mean, won) if won else None


def _halves(judge: Numbers, people: Numbers) -> float:
    return kappa((judge >= 0.5).astype(np.float64), (people >= 0.5).astype(np.float64))


def _favour(judge: Numbers, people: Numbers, length: Numbers) -> float:
    return rank_correlation(judge, length) - rank_correlation(people, length)
