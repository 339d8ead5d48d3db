"""The pipeline: weights, normalisation, what is missing, and judging again."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.config import RewardPipeline
from loomrl.errors import ConfigError
from loomrl.feedback.reward.component import known_score
from loomrl.feedback.reward.pipeline import COMPLETION, FEEDBACK, QUALITY, Pipeline, Trails, case_of
from loomrl.gym.rewards import RewardComponent
from loomrl.store.rewards import StoredReward
from loomrl.types import End, Failure, Feedback, Trajectory
from tests.feedback.support import said, served

PIPELINE = Pipeline(RewardPipeline())
shares = st.floats(0, 1)
ratings = st.lists(shares, max_size=4)

POLITE = RewardComponent[Trajectory]("polite", 0.5, lambda attempt: float("please" in attempt.turns[-1].action))
WILD = RewardComponent[Trajectory]("wild", 1.0, lambda attempt: 3.0)
BROKEN = RewardComponent[Trajectory]("broken", 1.0, lambda attempt: 1 / 0)
NAMESAKE = RewardComponent[Trajectory]("efficiency", 1.0, lambda attempt: 1.0)


def opened(**settings: object) -> Pipeline:
    return Pipeline(RewardPipeline.parse(settings))


def judged(
    trajectory: Trajectory,
    feedback: Sequence[Feedback] = (),
    *,
    pipeline: Pipeline = PIPELINE,
    trails: Trails | None = None,
) -> StoredReward:
    trails = trails or Trails(pipeline.settings.window)
    return pipeline.reward(pipeline.case(trajectory), feedback, trails, endpoint="talk", at=1.0)


def seen(pipeline: Pipeline, *, count: int = 60) -> Trails:
    """Trails of trajectories whose completion and feedback vary."""
    trails = Trails(pipeline.settings.window)
    for n in range(count):
        told = [said(f"f{n}", f"b{n}", "stars", (n % 5 + 1) / 5)]
        judged(served(f"b{n}", "x " * (n % 3 + 1), success=(n % 4) / 3), told, pipeline=pipeline, trails=trails)
    return trails


def test_the_default_weights_are_those_of_the_contract_and_are_divided_by_their_sum() -> None:
    weights = {"task_completion": 0.40, "efficiency": 0.20, "code_quality": 0.15, "user_feedback": 0.25}
    assert PIPELINE.weights == pytest.approx(weights)
    halved = opened(weights={name: weight / 2 for name, weight in weights.items()})
    assert halved.weights == pytest.approx(weights)


@settings(max_examples=30)
@given(shares, shares, ratings, st.dictionaries(st.sampled_from([*PIPELINE.weights]), st.floats(0, 9), min_size=1))
def test_totals_are_the_weighted_sum_and_stay_within_bounds(
    success: float, outcome: float, told: list[float], weights: dict[str, float]
) -> None:
    if not sum((RewardPipeline().weights.plain | weights).values()):
        return
    pipeline = opened(weights=weights)
    assert sum(pipeline.weights.values()) == pytest.approx(1)
    feedback = [said(f"f{n}", "a", value=value, call=str(n)) for n, value in enumerate(told)]
    one = judged(
        served("a", success=success, outcome=outcome), feedback, pipeline=pipeline, trails=seen(pipeline, count=31)
    )
    parts = one.content["components"]
    assert 0 <= one.total <= 1
    assert 0 <= one.confidence <= 1
    assert one.total == pytest.approx(sum(part["weight"] * part["normalized"] for part in parts.values()), abs=1e-5)
    assert one.content["raw"] == pytest.approx(
        sum(part["weight"] * (0.5 if part["value"] is None else part["value"]) for part in parts.values()), abs=1e-5
    )


def test_nothing_known_is_neutral_and_not_believed() -> None:
    one = judged(served("a"))
    assert (one.total, one.confidence, one.first) == (0.5, 0.0, {})
    assert {name: part["value"] for name, part in one.content["components"].items()} == dict.fromkeys(PIPELINE.weights)
    failed = served("a", success=None, end=End.FAILED, failure=Failure("engine", "Timeout", "late"))
    assert (judged(failed).total, judged(failed).confidence) == (0.5, 0.0)


def test_what_is_missing_lowers_the_confidence_and_what_does_not_apply_does_not() -> None:
    told = judged(served("a", success=1.0))
    assert told.confidence == pytest.approx(0.40 / 0.85, abs=1e-6), "without code its weight is nobody's"
    both = judged(served("a", success=1.0), [said("f", "a")])
    assert both.confidence == pytest.approx(0.65 / 0.85, abs=1e-6)
    code = PIPELINE.case(served("a"), found={QUALITY: known_score(0.8, "clean")})
    one = PIPELINE.reward(code, [], Trails(9), endpoint="talk", at=1.0)
    assert one.confidence == pytest.approx(0.15)
    assert one.first == {"code_quality": 0.8}


@pytest.mark.parametrize("normalization", ["z_score", "min_max", "none"])
@settings(max_examples=30)
@given(values=st.lists(shares, min_size=2, max_size=2))
def test_better_feedback_never_makes_a_lower_reward(normalization: str, values: list[float]) -> None:
    pipeline = opened(normalization=normalization)
    trails = seen(pipeline, count=31)
    low, high = sorted(values)
    worse, better = (
        judged(served("a", success=0.5), [said("f", "a", value=value)], pipeline=pipeline, trails=trails)
        for value in (low, high)
    )
    assert worse.total <= better.total
    assert worse.confidence == better.confidence


@pytest.mark.parametrize(
    ("normalization", "value"), [("z_score", 0.5 + 0.4 / (4 * 0.08**0.5)), ("min_max", 1.0), ("none", 1.0)]
)
def test_scores_count_by_how_they_compare_with_those_before(normalization: str, value: float) -> None:
    pipeline = opened(normalization=normalization)
    one = judged(served("a"), [said("f", "a")], pipeline=pipeline, trails=seen(pipeline, count=50))
    assert one.content["components"][FEEDBACK]["normalized"] == pytest.approx(value, abs=1e-5)
    few = judged(served("a"), [said("f", "a")], pipeline=pipeline, trails=seen(pipeline, count=29))
    assert few.content["components"][FEEDBACK]["normalized"] == 1.0, "too few to be normalised"


def test_a_trajectory_is_not_compared_with_itself() -> None:
    trails = seen(PIPELINE)
    first = judged(served("a", success=1.0), trails=trails)
    again = PIPELINE.reward(case_of(first), [said("f", "a")], trails, endpoint="talk", at=2.0)
    completions = [one.content["components"][COMPLETION] for one in (first, again)]
    assert completions[0] == completions[1]


def test_judging_again_changes_what_feedback_tells_and_nothing_else() -> None:
    trails = seen(PIPELINE)
    first = judged(served("a", "x", success=1.0), [said("f1", "a", "stars", 0.4)], trails=trails)
    told = [said("f1", "a", "stars", 0.4), said("f2", "a", "outcome", 0.0), said("f3", "a", "correction", 0.2)]
    again = PIPELINE.reward(case_of(first), told, trails, endpoint="talk", at=9.0)
    parts = again.content["components"]
    assert again.content["supersedes"] == first.id != again.id
    assert parts["efficiency"] == first.content["components"]["efficiency"]
    assert (parts[COMPLETION]["value"], parts[FEEDBACK]["value"]) == (0.0, 0.3)
    assert again.first == {}, "every component had a score before"
    back = PIPELINE.reward(case_of(again), told[:1], trails, endpoint="talk", at=9.0)
    assert back.content["components"][COMPLETION]["value"] == 1.0, "what the trajectory tells is still known"


def test_ids_follow_from_the_grounds_alone() -> None:
    one = judged(served("a", success=1.0), [said("f1", "a"), said("f2", "a")])
    same = judged(served("a", success=1.0), [said("f2", "a"), said("f1", "a")], trails=seen(PIPELINE))
    assert one.id == same.id
    others = [
        judged(served("b", success=1.0), [said("f1", "a"), said("f2", "a")]),
        judged(served("a", success=1.0), [said("f1", "a")]),
        judged(served("a", success=1.0), [said("f1", "a"), said("f2", "a")], pipeline=opened(window=900)),
    ]
    assert len({one.id, *(other.id for other in others)}) == 4
    watched = opened(watch={"window": 77})
    assert judged(served("a", success=1.0), [said("f1", "a"), said("f2", "a")], pipeline=watched).id == one.id


def test_components_of_ones_own_count_and_what_goes_wrong_in_them_is_no_zero() -> None:
    parts = [{"entry_point": f"{__name__}:{name}"} for name in ("POLITE", "WILD", "BROKEN")]
    pipeline = opened(parts=parts)
    one = judged(served("a", "yes please"), pipeline=pipeline)
    found = one.content["components"]
    assert pipeline.weights["polite"] == pytest.approx(0.5 / 3.5)
    assert found["polite"]["value"] == 1.0
    assert (found["wild"]["value"], found["broken"]["value"]) == (None, None)
    assert "ZeroDivisionError" in found["broken"]["reasoning"]
    assert one.first == {"polite": 1.0}


def test_settings_that_contradict_themselves_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'efficiency' is the name of another component"):
        opened(parts=[{"entry_point": f"{__name__}:NAMESAKE"}])
    nothing = dict.fromkeys(PIPELINE.weights, 0)
    with pytest.raises(ConfigError, match="all are 0"):
        opened(weights=nothing)
    with pytest.raises(ConfigError, match="least=50 must not be above window=20"):
        opened(least=50, window=20)
    with pytest.raises(ConfigError, match=r"weights.completion=1.*no such setting.*task_completion"):
        opened(weights={"completion": 1})


def test_a_component_that_came_after_the_judgement_is_missing_when_judged_again() -> None:
    pipeline = opened(parts=[{"entry_point": f"{__name__}:POLITE"}])
    again = pipeline.reward(case_of(judged(served("a"))), [], Trails(9), endpoint="talk", at=1.0)
    assert again.content["components"]["polite"]["value"] is None
    assert replace(again, content={}).confidence == 0.0
