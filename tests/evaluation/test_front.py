"""Fronts against what can be counted by hand, and by brute force."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from loomrl.config.weave import Objectives
from loomrl.errors import ConfigError, EpisodeError
from loomrl.evaluation.front import (
    ParetoFront,
    PreferenceEpisodes,
    collect_returns,
    expected_utility,
    hypervolume,
    judge_front,
    pareto_front,
    sparsity,
)
from loomrl.gym.preference import with_preference
from loomrl.types import Reward
from tests.hub.hub_samples import attempt

TREASURES = np.array(
    [[1, -1], [2, -3], [3, -5], [5, -7], [8, -8], [16, -9], [24, -13], [50, -14], [74, -17], [124, -19]]
)
points = arrays(np.float64, st.tuples(st.integers(1, 12), st.just(3)), elements=st.integers(-3, 3).map(float))


@given(points)
def test_the_front_is_what_nothing_dominates(every):
    front = pareto_front(every)
    for point in every:
        dominated = any((other >= point).all() and (other > point).any() for other in every)
        assert dominated != any((point == kept).all() for kept in front)
    assert len(np.unique(front, axis=0)) == len(front)


def test_hypervolume_of_the_concave_treasures_is_the_known_one():
    assert hypervolume(TREASURES, [0, -50]) == pytest.approx(4255.0)
    assert hypervolume([[1.0, 1.0], [-1.0, 5.0]], [0, 0]) == pytest.approx(1.0)
    assert hypervolume([[-1.0, -1.0]], [0, 0]) == 0.0
    with pytest.raises(ConfigError, match="reference"):
        hypervolume(TREASURES, [0])


@given(points)
def test_an_archive_is_the_front_of_all_it_saw(every):
    archive = ParetoFront(None)
    half = len(every) // 2
    archive.observe(every[:half])
    archive.observe(every[half:])
    assert archive.points.tolist() == pareto_front(every).tolist()
    again = ParetoFront(None)
    again.load_state_dict(archive.state_dict())
    assert again.span(3)[0].tolist() == every.max(0).tolist()


def test_what_is_not_above_the_reference_is_not_kept():
    archive = ParetoFront([0, -50])
    archive.observe([[50, -60], [0, -1]])
    assert archive.points is None
    assert archive.span(2)[1].tolist() == [1, 1]
    archive.observe([[1, -1], [2, -3]])
    assert [edge.tolist() for edge in archive.span(2)] == [[2, -1], [1, 2]]


def test_expected_utility_and_sparsity_are_those_by_hand():
    assert expected_utility([[1, 0], [0, 1]], [[1, 0], [0, 1], [0.5, 0.5]]) == pytest.approx(2.5 / 3)
    assert sparsity([[0, 3], [1, 1], [3, 0]]) == pytest.approx((1 + 4 + 4 + 1) / 2)
    assert sparsity([[1, 1]]) == 0


def test_a_report_weighs_returns_by_their_preferences():
    preferences = np.array([[1, 0], [0, 1]], np.float32)
    returns = np.array([[[2.0, 0.0], [4.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    played = PreferenceEpisodes(preferences, returns, np.full((2, 2), 3))
    report = judge_front("p", played, objectives=("a", "b"), reference=(0.0, 0.0), confidence=0.9)
    assert report.overall.reward.mean == pytest.approx((2 + 4 + 1 + 1) / 4)
    assert report.front == ((0.0, 1.0), (3.0, 0.0))
    assert report.as_dict()["by_preference"][0]["returns"][0]["mean"] == 3.0
    assert report.hypervolume == 0.0  # each is 0 in one objective
    assert all(steered.is_on_front for steered in report.by_preference)


def test_what_is_on_the_front_is_told_by_preference():
    preferences = np.array([[1, 0], [0.5, 0.5], [0, 1]], np.float32)
    returns = np.array([[[3.0, 0.0]], [[1.0, 1.0]], [[2.0, 2.0]]])
    played = PreferenceEpisodes(preferences, returns, np.ones((3, 1), np.int64))
    report = judge_front("p", played, objectives=("a", "b"), reference=None, confidence=0.9)
    assert [steered.is_on_front for steered in report.by_preference] == [True, False, True]


def test_a_return_that_is_no_number_is_named():
    returns = np.array([[[2.0, 0.0], [4.0, np.nan]]])
    played = PreferenceEpisodes(np.array([[0.25, 0.75]], np.float32), returns, np.ones((1, 2), np.int64))
    with pytest.raises(EpisodeError, match=r"'b' returned nan in episode 2 by preference \[0.25, 0.75\]"):
        judge_front("p", played, objectives=("a", "b"), reference=None, confidence=0.9)


def attempted_by(preference, *, failed=False, **parts):
    one = attempt("a", failed=failed)
    return replace(one, task=with_preference(one.task, preference), reward=Reward(0.0, parts))


def test_attempts_of_a_language_policy_are_judged_by_preference_without_those_that_failed():
    objectives = Objectives.of([{"right": [{"sum": 0.5}, {"sign": 0.5}]}, "short"])
    one, other = {"right": 1.0, "short": 0.0}, {"right": 0.0, "short": 1.0}
    attempts = [
        attempted_by(one, sum=1, sign=0, short=0.25),
        attempted_by(other, sum=0, sign=0, short=1),
        attempted_by(one, sum=1, sign=1, short=0),
        attempted_by(other, failed=True, sum=9, sign=9, short=9),
    ]
    played = collect_returns(attempts, objectives)
    np.testing.assert_array_equal(played.preferences_PH, [[1, 0], [0, 1]])
    assert [returns_EH.tolist() for returns_EH in played.returns_PEH] == [[[0.5, 0.25], [1, 0]], [[0, 1]]]
    report = judge_front("p", played, objectives=objectives.names, reference=[0, 0], confidence=0.95)
    assert report.hypervolume == pytest.approx(0.75 * 0.125)
    with pytest.raises(EpisodeError, match=r"all attempts by preference \[0.0, 1.0\] failed"):
        collect_returns(attempts[:1] + attempts[3:], objectives)
    assert collect_returns([attempted_by(one)], objectives).returns_PEH[0].tolist() == [[0, 0]]
