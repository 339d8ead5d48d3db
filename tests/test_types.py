import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.canonical import canonical_json, content_hash
from loomrl.errors import EpisodeError, failure_from
from loomrl.types import NO_VERSION, End, Failure, Group, Reward, Task, Tokens, Trajectory, Turn

TASK = Task("Math", "1.0.0", "algebra.linear", 3, 7, {"b": 2, "a": [1, "x"]})


def trajectory(*turns: Turn, end: End = End.TERMINATED, failure: Failure | None = None) -> Trajectory:
    return Trajectory(id="t", task=TASK, turns=turns, end=end, reward=Reward(), group="g", failure=failure)


def span(*ids: int) -> Tokens:
    return Tokens.of(ids, [i > 5 for i in ids], [-0.5 * i for i in ids], [NO_VERSION] * len(ids))


def test_entropies_are_joined_where_every_turn_has_them() -> None:
    told = [
        replace(span(*ids), entropies_T=np.full(len(ids), number, np.float32))
        for number, ids in enumerate([[9], [7, 8]])
    ]
    whole = trajectory(*(Turn((), "a", tokens=tokens) for tokens in told)).tokens
    assert whole == replace(span(9, 7, 8), entropies_T=np.array([0, 1, 1], np.float32))
    assert whole != span(9, 7, 8)
    assert trajectory(Turn((), "a", tokens=told[0]), Turn((), "a", tokens=span(7))).tokens == span(9, 7)


def test_shifts_are_zero_in_turns_without_any() -> None:
    shifted = replace(span(7, 8), shifts_T=np.array([0.5, np.inf], np.float32))
    turns = [Turn((), "a", tokens=tokens) for tokens in (span(9), shifted)]
    assert trajectory(*turns).tokens == replace(span(9, 7, 8), shifts_T=np.array([0, 0.5, np.inf], np.float32))
    assert span(7, 8) != shifted


def test_equal_tasks_have_equal_keys_whatever_the_order_of_their_parameters() -> None:
    assert TASK.key == Task("Math", "1.0.0", "algebra.linear", 3, 7, {"a": [1, "x"], "b": 2}).key
    assert TASK.key != Task("Math", "1.0.0", "algebra.linear", 3, 8, {"a": [1, "x"], "b": 2}).key
    assert pickle.loads(pickle.dumps(TASK)).key == TASK.key


def test_task_key_is_the_same_on_every_machine() -> None:
    assert TASK.key == "d7cc65477f0bfb4b858a3fe7b3e4b5859fd2e031c935fe244535959e28f166e8"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3)))
def test_canonical_json_has_one_form(value: object) -> None:
    assert canonical_json(value) == canonical_json(value)
    assert content_hash({"a": value, "b": 1}) == content_hash({"b": 1, "a": value})


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"x": float("nan")})


@given(st.lists(st.lists(st.integers(0, 10), min_size=1, max_size=4), min_size=1, max_size=4))
def test_tokens_of_the_turns_joined_are_the_sequence_as_sampled(turns: list[list[int]]) -> None:
    joined = trajectory(*(Turn((), "a", tokens=span(*ids)) for ids in turns)).tokens
    assert joined == span(*(i for ids in turns for i in ids))
    assert joined.ids_T.dtype == np.int32


def test_trajectory_of_a_scripted_policy_has_no_tokens() -> None:
    assert trajectory(Turn((), "a"), Turn((), "b")).tokens is None


def test_what_is_pickled_is_what_was_there_and_what_an_earlier_version_pickled_too() -> None:
    task = Task("Math", "1", "calculus", 2, 7, {"a": [1]})
    there = trajectory(Turn((), "x", Reward(0.5, {"brevity": 0.5}), span(1, 2)))
    read = pickle.loads(pickle.dumps((task, there)))
    assert read[0] == task
    assert content_hash(read[1].turns[0].reward.parts) == content_hash(there.turns[0].reward.parts)
    assert replace(read[1], turns=()) == replace(there, turns=())
    assert read[1].tokens.ids_T.tolist() == [1, 2]
    earlier = object.__new__(Task)
    earlier.__setstate__(["Math", "1", "calculus", 2, 7, {"a": [1]}])
    assert earlier == task


def test_token_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        Tokens.of([1, 2], [True], [0.0, 0.0], [0, 0])


def test_only_a_failed_trajectory_carries_a_failure() -> None:
    failure = Failure("environment", "EpisodeError", "hung")
    assert trajectory(end=End.FAILED, failure=failure).failure == failure
    with pytest.raises(ValueError, match="failure"):
        trajectory(end=End.FAILED)
    with pytest.raises(ValueError, match="failure"):
        trajectory(end=End.TERMINATED, failure=failure)


def test_learning_never_sees_a_failed_attempt() -> None:
    good, bad = trajectory(), trajectory(end=End.FAILED, failure=Failure("engine", "E", "m"))
    assert Group("g", (good, bad, good)).usable == (good, good)


def test_failure_keeps_the_boundary_that_the_error_names() -> None:
    assert failure_from(EpisodeError("hung"), boundary="pool") == Failure("environment", "EpisodeError", "hung")
    assert failure_from(KeyError("x"), boundary="policy") == Failure("policy", "KeyError", "'x'")
