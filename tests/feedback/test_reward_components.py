"""Each component alone: what it says, on what evidence, and when it says nothing."""

import math
from dataclasses import replace
from statistics import fmean, pstdev

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
    task_type,
    user_feedback,
    worth,
)
from loomrl.types import End, Failure, Reward, Source, Steps, Task, Tokens, Trajectory, Turn
from tests.feedback.support import said, served, turn

shares = st.floats(0, 1)
CALL = '<tool_call>\n{"name": "find", "arguments": {"q": "a", "n": 1}}\n</tool_call>'
SAME = '<tool_call>{"arguments": {"n": 1, "q": "a"}, "name": "find"}</tool_call>'


# -- completion -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fraction", "value"), [(1.0, 1.0), (0.5, 0.75), (0.001, 0.5005), (0.0, 0.0), (0.1 * 10, 1.0)])
def test_completion_is_one_half_and_more_in_part_and_zero_if_not_begun(fraction: float, value: float) -> None:
    assert own_completion(served("a", success=fraction)).value == value


def test_a_reward_told_at_the_end_tells_completion_only_within_its_range() -> None:
    assert own_completion(served("a", outcome=0.5)).value == 0.75
    beyond = own_completion(served("a", outcome=3.0))
    assert beyond.value is None
    assert "3" in beyond.reasoning
    assert own_completion(served("a", success=0.0, outcome=0.9)).value == 0.0


def test_silence_about_the_end_is_unknown_and_an_environment_always_knows() -> None:
    assert own_completion(served("a")).value is None
    assert own_completion(served("a", source=Source.ROLLOUT, extra={}, reward=Reward(9.0, {}, 0.0))).value == 0.0


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


@given(shares, shares)
def test_more_of_a_task_is_never_worth_less(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= worth(low) <= worth(high) <= 1


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


@given(st.lists(shares, min_size=1, max_size=8), st.data())
def test_better_feedback_never_makes_a_lower_score(values: list[float], data: st.DataObject) -> None:
    given_ = [said(f"f{n}", "a", value=value, call=str(n)) for n, value in enumerate(values)]
    place = data.draw(st.integers(0, len(values) - 1))
    better = list(given_)
    better[place] = replace(better[place], value=data.draw(st.floats(values[place], 1)))
    before, after = user_feedback(given_).value, user_feedback(better).value
    assert before is not None
    assert after is not None
    assert 0 <= before <= after <= 1


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
    assert slightly is not None
    assert 0.4 < slightly < 0.5
    assert efficiency(taken | {"repeats": 1}, habits, least=30).evidence.keys() == {"words", "repeats"}


def test_equal_calls_of_a_tool_are_repeats_however_they_are_written() -> None:
    calls = served("a", f"first {CALL}", f"again {SAME} and {CALL}", '<tool_call>{"name": "find"}</tool_call>', "done")
    assert measures(calls) == {"turns": 4, "repeats": 2, "words": 31}


def test_tokens_are_those_that_were_sampled_and_words_where_some_are_lost() -> None:
    tokens = Tokens.of([1, 2, 3], [False, True, True], [0, 0, 0], [-1, 4, 4])
    whole = served("a", turns=(Turn((), "x y z", tokens=tokens),) * 2, seconds=1.25)
    assert measures(whole) == {"turns": 2, "repeats": 0, "tokens": 4, "ms": 1250}
    assert "words" in measures(served("a", turns=(Turn((), "x", tokens=tokens), turn("y"))))


def test_the_time_in_which_people_think_is_not_the_policys() -> None:
    assert "ms" not in measures(served("a"))
    assert measures(served("a", source=Source.ROLLOUT))["ms"] == 490_000


def test_of_somebody_elses_agent_tokens_and_time_are_as_it_reports() -> None:
    assert measures(foreign(True, True, tokens=77)) == {"turns": 2, "repeats": 0, "tokens": 77, "ms": 500}
    assert measures(foreign(True)) == {"turns": 1, "repeats": 0, "words": 2, "ms": 250}


def test_control_steps_count_as_turns() -> None:
    import numpy as np

    columns = {name: np.zeros(3, np.float32) for name in ("logprobs_T", "times_T")}
    more = {name: np.zeros(3, np.int32) for name in ("versions_T", "lanes_T", "sampled_T")}
    steps = Steps(observations=np.zeros((3, 2)), actions=np.zeros(3), **columns, **more)  # type: ignore[arg-type]
    assert measures(served("a", turns=(), steps=steps)) == {"turns": 3}


def test_tasks_of_one_type_share_environment_family_and_level() -> None:
    assert task_type(Task("Code", "2.0", "bugfix", 3, 17)) == "Code/bugfix/3"


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
