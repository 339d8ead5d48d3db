"""Each component alone: what it says, on what evidence, and when it says nothing."""

import math
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.feedback.reward.component import (
    NumberLog,
    before_outcomes,
    completion,
    efficiency,
    is_told,
    measures,
    own_completion,
    user_feedback,
)
from loomrl.types import End, Failure, Reward, Source, Steps, Tokens, Trajectory, Turn
from tests.feedback.support import said, served, turn

shares = st.floats(0, 1)
CALL = '<tool_call>\n{"name": "find", "arguments": {"q": "a", "n": 1}}\n</tool_call>'
SAME = '<tool_call>{"arguments": {"n": 1, "q": "a"}, "name": "find"}</tool_call>'


# -- completion -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "value"),
    [
        *(({"success": done}, value) for done, value in ((1.0, 1.0), (0.5, 0.75), (0.001, 0.5005), (0.0, 0.0))),
        ({"success": 0.1 * 10}, 1.0),
        ({"outcome": 0.5}, 0.75),
        ({"outcome": 3.0}, None),
        ({"success": 0.0, "outcome": 0.9}, 0.0),
        ({}, None),
        ({"source": Source.ROLLOUT, "extra": {}, "reward": Reward(9.0, {}, 0.0)}, 0.0),
    ],
)
def test_completion_is_half_and_more_in_part_zero_if_not_begun_and_unknown_if_nobody_told(
    told: dict[str, Any], value: float | None
) -> None:
    own = own_completion(served("a", **told))
    assert own.value == value
    assert "3" in own.reasoning or told.get("outcome") != 3.0


def foreign(*succeeded: bool, tokens: int | None = None) -> Trajectory:
    """Somebody else's agent's trajectory, as the sink takes it in."""
    turns = [{"success": each, "action": "response", "ms": 250} for each in succeeded]
    metadata = {"model": "m"} if tokens is None else {"model": "m", "total_tokens": tokens}
    extra = {"foreign": {"turns": turns, "metadata": metadata}}
    return served("a", *["say it"] * len(succeeded), source=Source.FOREIGN, extra=extra)


@pytest.mark.parametrize(
    ("succeeded", "value"), [((True,), 1.0), ((False, True), 1.0), ((True, False), 0.75), ((False, False), 0.0)]
)
def test_somebody_elses_agent_reports_its_own_completion(succeeded: tuple[bool, ...], value: float) -> None:
    own = own_completion(foreign(*succeeded))
    assert own.value == value
    assert not is_told(own), "a judge may know better"
    assert is_told(own_completion(served("a", success=0.0)))
    assert own_completion(served("a", source=Source.FOREIGN, extra={})).value is None


def test_an_infrastructure_failure_says_nothing_of_the_policy() -> None:
    failed = served("a", end=End.FAILED, failure=Failure("engine", "Timeout", "late"), source=Source.ROLLOUT)
    assert own_completion(failed).value is None
    assert "engine" in own_completion(failed).reasoning
    assert measures(failed) == {}


def test_the_newest_outcome_that_was_told_later_holds_and_what_was_known_stays_in_the_evidence() -> None:
    own = own_completion(served("a", success=1.0))
    later = completion(own, [said("f1", "a", "outcome", 0.5), said("f2", "a"), said("f3", "a", "outcome", 0.0)])
    assert (later.value, later.evidence["feedback"]) == (0.0, "f3")
    assert before_outcomes(later) == own == completion(own, [said("f2", "a", "thumb", 0.0)])


# -- user feedback --------------------------------------------------------------------------------------------------


def test_what_people_say_goes_before_signals_and_signals_before_silence() -> None:
    left = said("f1", "a", "left", 0.0)
    assert user_feedback([]).value is None
    assert user_feedback([said("c", "a", "comment", 0.5), said("o", "a", "outcome", 0.0)]).value is None
    assert (user_feedback([left]).value, user_feedback([left]).source) == (0.0, "automated")
    told = user_feedback([left, said("f2", "a", "stars", 0.8)])
    assert (told.value, told.source) == (0.8, "human")
    assert told.evidence["signals"] == [{"id": "f2", "kind": "stars", "value": 0.8}]


def test_of_each_kind_about_each_answer_the_newest_counts() -> None:
    thumbs = [said("f1", "a", value=0.0), said("f2", "a", value=1.0), said("f3", "a", value=0.0, call="call-2")]
    assert user_feedback(thumbs).value == 0.5
    choices = [
        said("f1", "a", "choice", 1.0, data={"over": "b"}),
        said("f2", "a", "choice", 0.0, data={"under": "c"}),
        said("f3", "a", "correction", 0.2, data={"text": "secret"}),
    ]
    assert user_feedback(choices).value == 0.4
    assert "secret" not in str(user_feedback(choices))


# -- efficiency -----------------------------------------------------------------------------------------------------


def habits_of(*turns: int) -> NumberLog:
    habits = NumberLog(1000)
    for number, each in enumerate(turns):
        habits.add(str(number), {"turns": each})
    return habits


def test_efficiency_is_how_far_from_usual_in_deviations() -> None:
    usual = habits_of(*[4, 6] * 20)
    for taken, value in ((5, 0.5), (4, 0.75), (3, 1.0), (1, 1.0), (7, 0.0), (90, 0.0)):
        assert efficiency({"turns": taken}, usual, least=30).value == value
    told = efficiency({"turns": 4, "words": 9}, usual, least=30)
    assert told.evidence == {"turns": [4, 5.0, 1.0]}, "nothing is known of words"


def test_without_enough_of_the_same_type_efficiency_is_unknown() -> None:
    assert efficiency({"turns": 4}, habits_of(*range(29)), least=30).value is None
    assert efficiency({}, habits_of(*range(99)), least=30).value is None


def test_what_is_always_the_same_says_nothing_and_a_little_more_is_no_outlier() -> None:
    habits = NumberLog(100)
    for number in range(40):
        habits.add(str(number), {"turns": 1, "words": 100 + number % 2, "repeats": 0})
    taken = {"turns": 1, "words": 100, "repeats": 0}
    assert efficiency(taken, habits, least=30).evidence.keys() == {"words"}
    slightly = efficiency(taken | {"words": 103}, habits, least=30).value
    assert 0.4 < slightly < 0.5
    assert efficiency(taken | {"repeats": 1}, habits, least=30).evidence.keys() == {"words", "repeats"}


SAMPLED = Turn((), "x y z", tokens=Tokens.of([1, 2, 3], [False, True, True], [0, 0, 0], [-1, 4, 4]))
COLUMNS = dict.fromkeys(("logprobs_T", "times_T", "versions_T", "lanes_T", "sampled_T"), np.zeros(3))
STEPS = Steps(observations=np.zeros((3, 2)), actions=np.zeros(3), **COLUMNS)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            served("a", f"1 {CALL}", f"2 {SAME} and {CALL}", "<tool_call>{}</tool_call>", "done"),
            {"turns": 4, "repeats": 2, "words": 30},
        ),
        (served("a", turns=(SAMPLED, SAMPLED), seconds=1.25), {"turns": 2, "repeats": 0, "tokens": 4, "ms": 1250}),
        (served("a", turns=(SAMPLED, turn("y"))), {"turns": 2, "repeats": 0, "words": 4}),
        (served("a", source=Source.ROLLOUT), {"turns": 1, "repeats": 0, "words": 1, "ms": 490_000}),
        (foreign(True, True, tokens=77), {"turns": 2, "repeats": 0, "tokens": 77, "ms": 500}),
        (foreign(True), {"turns": 1, "repeats": 0, "words": 2, "ms": 250}),
        (
            served("a", turns=(), steps=Steps(observations=np.zeros((3, 2)), actions=np.zeros(3), **COLUMNS)),
            {"turns": 3},
        ),
    ],
)
def test_turns_equal_calls_sampled_tokens_or_words_and_the_policys_own_time_are_measured(
    made: Trajectory, expected: dict[str, float]
) -> None:
    assert measures(made) == expected


# -- trail ----------------------------------------------------------------------------------------------------------

moves = st.lists(st.tuples(st.integers(0, 6), st.dictionaries(st.sampled_from("xy"), st.integers(-9, 9))), max_size=40)


@given(moves, st.integers(1, 5))
def test_a_trail_is_equal_to_the_trajectories_judged_last_and_to_itself_read_anew(
    made: list[tuple[int, dict[str, int]]], limit: int
) -> None:
    trail = NumberLog(limit)
    for id, numbers in made:
        trail.add(str(id), numbers)
    newest = dict(made)
    order = list(dict.fromkeys(id for id, _ in reversed(made)))[:limit][::-1]
    again = NumberLog(limit)
    for id in order:
        again.add(str(id), newest[id])
    for name in "xy":
        kept = [newest[id][name] for id in order if name in newest[id]]
        spread = trail.spread(name)
        assert spread.count == len(kept)
        if kept:
            assert spread == again.spread(name), "to the last bit"
            assert math.isclose(spread.mean, fmean(kept), abs_tol=1e-12)
            assert math.isclose(spread.deviation, pstdev(kept), abs_tol=1e-7)
            assert trail.bounds(name) == (min(kept), max(kept))
