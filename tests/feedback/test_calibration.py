"""A judge against people: statistics, planted biases, ratings on record, and maps that are refused."""

import random
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr  # type: ignore[import-untyped,unused-ignore]

from loomrl.config import HubConfig
from loomrl.config.rewards import ClassifierPart, RubricPart
from loomrl.errors import ConfigError, DataError
from loomrl.feedback.calibrate import (
    LEAST,
    CalibrationReport,
    bootstrap,
    compare,
    errors,
    isotonic,
    kappa,
    rank_correlation,
)
from loomrl.feedback.rating import PeopleRatings, Rated, ask_people, from_feedback, from_inbox
from loomrl.gym.classifier import ClassifierJudge
from loomrl.gym.rubric import Calibration
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_endpoint_hub
from loomrl.store import LoomDB, open_store
from loomrl.store.feedback import append_feedback
from loomrl.store.judgements import answer, waiting
from loomrl.types import Message
from tests.feedback.support import said, served
from tests.gym.classifier_support import counting
from tests.gym.rubric_support import NO, PARTLY, YES, Asked, Rule, ScriptedJudge, serve_judge

pytestmark = pytest.mark.system
SCORES = st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.floats(0, 1)), min_size=2, max_size=40)


@given(SCORES)
def test_the_map_never_falls_and_no_change_of_a_knot_that_keeps_this_is_nearer(rows: list[tuple[float, float]]) -> None:
    scores, values = zip(*rows, strict=True)
    knots, heights = isotonic(scores, values)
    assert all(a < b for a, b in pairwise(knots))
    assert all(a <= b for a, b in pairwise(heights))
    assert float(np.interp(scores, knots, heights).mean()) == pytest.approx(float(np.mean(values)))

    def error(levels: Sequence[float]) -> float:
        return float(np.mean((np.interp(scores, sorted(set(scores)), levels) - np.asarray(values)) ** 2))

    best = np.interp(sorted(set(scores)), knots, heights)
    rng = np.random.default_rng(0)
    for step in rng.normal(0, 0.1, (50, len(best))):
        assert error(best) <= error(np.sort(best + step)) + 1e-9


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_rank_correlation_is_spearmans(rows: list[tuple[int, int]]) -> None:
    left, right = (np.asarray(column, np.float64) for column in zip(*rows, strict=True))
    if len(set(left)) == 1 or len(set(right)) == 1:
        assert np.isnan(rank_correlation(left, right))
    else:
        assert rank_correlation(left, right) == pytest.approx(float(spearmanr(left, right).statistic))


def test_kappa_is_that_of_the_textbook() -> None:
    both, first, second, neither = 20, 5, 10, 15  # Cohen's kappa of this table is 0.4
    left = np.repeat([1.0, 1.0, 0.0, 0.0], [both, first, second, neither])
    right = np.repeat([1.0, 0.0, 1.0, 0.0], [both, first, second, neither])
    assert kappa(left, right) == pytest.approx(0.4)
    assert kappa(left, left) == 1.0
    assert np.isnan(kappa(np.ones(3), np.ones(3)))


def test_the_bootstrap_covers_the_true_correlation_as_often_as_it_says() -> None:
    hits, widths = 0, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        left = rng.normal(size=60)
        found = bootstrap(rank_correlation, left, left + rng.normal(size=60), seed=seed)
        hits += found.low <= 0.690 <= found.high  # Spearman's of a Pearson correlation of 1/√2
        widths.append(found.high - found.low)
    assert hits >= 16
    assert max(widths) < 0.5


def test_the_error_of_the_map_is_measured_on_rows_that_it_has_not_seen() -> None:
    rng = np.random.default_rng(1)
    scores = rng.uniform(size=100)
    noise = errors(scores.tolist(), rng.integers(0, 2, 100).astype(float).tolist())
    assert noise["map"] > 0.26 > noise["constant"]  # on the rows that it was fitted to it is 0.249
    bent = errors(scores.tolist(), (scores**3).tolist())
    assert bent["map"] < 0.001 < bent["judge"]


# -- a judge with faults that are known --------------------------------------------------------------------------------


def rated(count: int = 60, *, seed: int = 0) -> list[Rated]:
    """Answers of which people think as well as they deserve: `good` of ten words are good ones."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        good, length = rng.randint(0, 10), rng.randint(10, 120)
        text = " ".join(["good"] * good + ["word"] * length)
        conversation = (Message("user", f"Question {number}"), Message("assistant", text))
        rating = min(max(good / 10 + rng.gauss(0, 0.1), 0.0), 1.0)
        found.append(Rated(id=f"t{number}", conversation=conversation, rating=rating))
    return found


def honest(asked: Asked, criterion: str) -> str:
    good = asked.answer.split().count("good")
    return YES if good >= 7 else PARTLY if good >= 4 else NO


def compared(
    rule: Rule, ratings: PeopleRatings | None = None, *criteria: str, votes: int = 1
) -> tuple[CalibrationReport, Calibration | None, RubricPart]:
    with serve_judge(rule) as judge:
        part = judge.part(*criteria or ("good",), votes=votes)
        report, made = compare(part, ratings or PeopleRatings(rated=rated()), by="feedback", at=1.0)
    return report, made, part


def test_an_honest_judge_agrees_and_its_score_becomes_peoples() -> None:
    report, made, _ = compared(honest, PeopleRatings(rated=rated(120)))
    assert report.rank.low > 0.8
    assert (report.changed.mean, report.shift.mean, report.failed) == (0.0, 0.0, ())
    assert report.length.low < 0 < report.length.high
    assert report.errors["map"] < report.errors["judge"] < report.errors["constant"]
    assert [made.of(score) for score in (0.0, 0.5, 1.0)] == pytest.approx([0.15, 0.5, 0.85], abs=0.07)


def test_a_judge_that_likes_long_answers_is_found_out() -> None:
    report, _, _ = compared(lambda asked, _: YES if len(asked.answer) > 325 else honest(asked, ""))
    assert report.length.low > 0.2


def test_a_judge_that_likes_what_stands_first_is_found_out() -> None:
    def first(asked: Asked, criterion: str) -> str:
        good = asked.answer.split().count("good")
        return asked.verdicts[0] if 3 <= good <= 6 else honest(asked, criterion)

    report, _, _ = compared(first)
    assert report.changed.low > 0.2
    assert report.shift.low > 0.2
    thrice, _, _ = compared(first, votes=3)
    assert thrice.changed == report.changed  # the median of an order, its mirror image and another such order


def test_a_judge_that_knows_nothing_or_the_opposite_gets_no_map() -> None:
    rng = random.Random(0)
    for rule in (
        lambda *_: rng.choice((YES, PARTLY, NO)),
        lambda asked, _: {YES: NO, NO: YES}.get(honest(asked, ""), PARTLY),
        lambda *_: YES,
    ):
        report, made, _ = compared(rule)  # type: ignore[arg-type]
        assert made is None
        assert not report.agrees


def test_too_few_ratings_and_ratings_that_are_all_alike_are_refused_with_what_is_needed() -> None:
    with pytest.raises(DataError, match=rf"rated 29 trajectories.* at least {LEAST} are needed, and 5 of each"):
        compared(honest, PeopleRatings(rated=rated(29)))
    content = [Rated(id=one.id, conversation=one.conversation, rating=1.0) for one in rated()]
    with pytest.raises(DataError, match=r"0 of them below 0\.5 and 60 not"):
        compared(honest, PeopleRatings(rated=content))


def test_a_judge_that_fails_is_counted_and_too_many_failures_are_refused() -> None:
    def moody(asked: Asked, criterion: str) -> str:
        number = int(asked.said[0][1].split()[1])
        return "perhaps" if number % 10 == 0 else honest(asked, criterion)

    report, made, _ = compared(moody)
    assert (report.ratings, len(report.failed), report.data()["failed"]) == (54, 6, 6)
    assert "perhaps" not in made.model_dump_json()
    with pytest.raises(DataError, match=r"no verdict on 60 of 60 trajectories.*first: t0: .*perhaps"):
        compared(lambda *_: "perhaps")


# -- what is on record -------------------------------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path) -> Iterator[LoomDB]:
    with open_store(f"sqlite:///{tmp_path}/loom.db") as found:
        yield found


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with open_endpoint_hub(f"sqlite:///{tmp_path}/loom.db", "talk", HubConfig()) as found:
        yield found


def test_thumbs_stars_outcomes_and_choices_are_ratings(db: LoomDB, hub: Hub) -> None:
    hub.append([served(id, f"said by {id}") for id in ("a", "b", "c", "d")])
    append_feedback(
        db,
        [
            said("1", "a", value=0.0),
            said("2", "a", value=1.0),  # the same person thought again
            said("3", "a", "stars", 0.6),
            said("4", "b", "outcome", 0.25),
            said("5", "c", "comment", 0.5),
            said("6", "c", "asked_again", 0.2),
            said("7", "b", "choice", 1.0, data={"over": "d", "trajectory": "d"}),
            said("7-under", "d", "choice", 0.0, data={"under": "b", "trajectory": "b"}),
            said("8", "gone"),
        ],
    )
    found = from_feedback(db, hub)
    assert {one.id: one.rating for one in found.rated} == {"a": 0.8, "b": 0.25, "d": None}
    assert (found.pairs, found.gone) == ([("b", "d")], 1)
    assert {one.length for one in found.rated} == {len("said by a")}
    assert len(found.some(2).rated) == 2


def test_choices_of_people_are_compared_with_the_judges() -> None:
    ratings = rated(120)
    good = {one.id: one.conversation[-1].content.split().count("good") for one in ratings}
    order = sorted(good, key=good.__getitem__)
    pairs = list(zip(reversed(order), order, strict=True))[:30]
    report, _, _ = compared(honest, PeopleRatings(rated=ratings, pairs=pairs))
    assert (report.pairs.mean, report.pairs.count) == (1.0, 30)


def test_people_are_asked_once_by_every_criterion_and_their_answers_are_kappa(
    db: LoomDB, hub: Hub, scripted_judge: ScriptedJudge
) -> None:
    hub.append([served(f"t{number}", "good " * (number % 11)) for number in range(40)])
    part = scripted_judge.part("good", "kind")
    assert ask_people(db, hub, part.criteria, count=36, days=1.0) == 36
    assert ask_people(db, hub, part.criteria, count=36, days=1.0) == 36
    questions = waiting(db, now=time.time(), limit=1000)
    assert len(questions) == 72
    assert {one.question for one in questions} == {
        "Is this true of what the assistant said? The answer is good.",
        "Is this true of what the assistant said? The answer is kind.",
    }
    for number, one in enumerate(questions):
        good = one.conversation[-1].content.split().count("good")
        choice = YES if good >= 7 else PARTLY if good >= 4 else NO
        if number:  # one question stays open: that trajectory has no rating
            answer(db, one.id, choice, who="ann", at=2.0)
    ratings = from_inbox(db, part.criteria, hub)
    assert sum(one.rating is not None for one in ratings.rated) == 35
    report, made = compare(part, ratings, by="inbox", at=3.0)
    assert report.criteria["kind"].measure == "kappa"
    assert report.criteria["kind"].found.mean == 1.0
    assert made is not None


@pytest.fixture
def scripted_judge() -> Iterator[ScriptedJudge]:
    with serve_judge(honest) as found:
        yield found


def test_a_classifier_is_compared_with_people_and_its_map_belongs_to_its_files(tmp_path: Path) -> None:
    part = ClassifierPart(path=str(counting(tmp_path / "m", "g")))
    report, made = compare(part, PeopleRatings(rated=rated()), by="feedback", at=1.0)
    assert report.agrees
    assert made is not None
    assert (report.criteria, report.changed.count, report.ratings, made.model) == ({}, 0, 60, "m")
    made.write(tmp_path / "map.json")
    mapped = ClassifierJudge(part.override({"calibration": str(tmp_path / "map.json")}))
    plain = ClassifierJudge(part)
    said = served("t", "good good word")
    assert mapped(said) == pytest.approx(made.of(plain(said)))
    assert mapped.sha256 != plain.sha256
    other = part.override({"path": str(counting(tmp_path / "o", "w")), "calibration": str(tmp_path / "map.json")})
    with pytest.raises(ConfigError, match="was made for model 'm', not 'o'"):
        ClassifierJudge(other)
    disliked, none = compare(ClassifierPart(path=other.path), PeopleRatings(rated=rated()), by="feedback", at=1.0)
    assert not disliked.agrees
    assert none is None
