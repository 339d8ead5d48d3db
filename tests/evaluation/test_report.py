import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.evaluation.report import judge
from loomrl.evaluation.statistics import wilson
from loomrl.types import End, Failure, Reward, Task, Trajectory, Turn


def attempt(success: float, *, family: str = "a", level: int = 1, failed: bool = False, turns: int = 1) -> Trajectory:
    return Trajectory(
        id="t",
        task=Task("Math", "1.0.0", family, level, 0),
        turns=(Turn((), "x"),) * turns,
        end=End.FAILED if failed else End.TERMINATED,
        reward=Reward() if failed else Reward(success + 0.1, {"correctness": success, "format": 0.1}, success),
        group="g",
        failure=Failure("environment", "TimeoutError", "hung") if failed else None,
    )


@given(st.integers(1, 500), st.data())
def test_interval_contains_the_mean_and_tightens_with_more_evidence(count: int, data: st.DataObject) -> None:
    total = data.draw(st.integers(0, count))
    few, many = wilson(total, count), wilson(100 * total, 100 * count)
    assert few.mean is not None
    assert 0 <= few.low <= few.mean <= few.high <= 1
    assert many.high - many.low < few.high - few.low


def test_wilson_interval_is_the_published_one() -> None:
    interval = wilson(8, 10)  # Agresti & Coull (1998) give 0.490 to 0.943
    assert (interval.low, interval.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = random.Random(0)
    covered = 0
    for _ in range(2000):
        interval = wilson(sum(rng.random() < 0.3 for _ in range(60)), 60)
        covered += interval.low <= 0.3 <= interval.high
    assert 0.93 < covered / 2000 < 0.975


def test_failed_attempts_are_counted_and_never_averaged() -> None:
    report = judge("p", [attempt(1.0), attempt(0.0), attempt(0.0, failed=True)])
    assert report.overall.success.mean == 0.5
    assert (report.overall.success.count, report.overall.failures) == (2, 1)
    assert report.overall.parts == {"correctness": 0.5, "format": pytest.approx(0.1)}
    assert report.failures == {"environment: TimeoutError": 1}


def test_success_is_told_by_turns() -> None:
    attempts = [attempt(1.0), attempt(1.0, turns=3), attempt(0.0, turns=5), attempt(0.5), attempt(0.0, failed=True)]
    assert judge("p", attempts).solved_within == (0.25, 0.25, 0.5)
    assert judge("p", [attempt(0.0, turns=2)]).solved_within == ()


def test_without_a_single_valid_attempt_nothing_is_claimed() -> None:
    overall = judge("p", [attempt(0.0, failed=True)]).overall
    assert (overall.success.mean, overall.success.low, overall.success.high) == (None, 0.0, 1.0)
    assert overall.reward is None


def test_report_tells_families_and_levels_apart_and_is_json() -> None:
    report = judge("p", [attempt(1.0, family="a", level=2), attempt(0.0, family="b", level=10)])
    assert {name: s.success.mean for name, s in report.by_family.items()} == {"Math/a": 1.0, "Math/b": 0.0}
    assert list(report.by_level) == ["Math/02", "Math/10"]
    assert json.loads(json.dumps(report.as_dict()))["overall"]["success"]["mean"] == 0.5
