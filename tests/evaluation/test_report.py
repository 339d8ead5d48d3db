import itertools
import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.config.monitor import BlockedRule, SecretsRule
from loomrl.evaluation.report import judge, pass_at
from loomrl.evaluation.statistics import wilson, wilson_of_groups, wilson_of_shares
from loomrl.safety.open import open_text_rules
from loomrl.types import End, Failure, Message, Reward, Task, Trajectory, Turn

_alone = itertools.count()


def attempt(
    success,
    *,
    family="a",
    level=1,
    failed=False,
    turns=1,
    group=None,
    said="x",
):
    return Trajectory(
        id="t",
        task=Task("Math", "1.0.0", family, level, 0),
        turns=(Turn((), said),) * turns,
        end=End.FAILED if failed else End.TERMINATED,
        reward=Reward() if failed else Reward(success + 0.1, {"correctness": success, "format": 0.1}, success),
        group=group or f"g{next(_alone)}",
        failure=Failure("environment", "TimeoutError", "hung") if failed else None,
    )


@given(st.integers(1, 500), st.data())
def test_interval_contains_the_mean_and_tightens_with_more_evidence(count, data):
    total = data.draw(st.integers(0, count))
    few = wilson(total, count)
    many = wilson(100 * total, 100 * count)
    assert few.mean is not None
    assert 0 <= few.low <= few.mean <= few.high <= 1
    assert many.high - many.low < few.high - few.low


def test_wilson_interval_is_the_published_one():
    interval = wilson(8, 10)  # Agresti & Coull (1998) give 0.490 to 0.943
    assert (interval.low, interval.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = random.Random(0)
    covered = 0
    for _ in range(2000):
        interval = wilson(sum(rng.random() < 0.3 for _ in range(60)), 60)
        covered += interval.low <= 0.3 <= interval.high
    assert 0.93 < covered / 2000 < 0.975


def test_failed_attempts_are_counted_and_never_averaged():
    report = judge("p", [attempt(1.0), attempt(0.0), attempt(0.0, failed=True)])
    assert report.overall.success.mean == 0.5
    assert (report.overall.success.count, report.overall.failures) == (2, 1)
    assert report.overall.parts == {"correctness": 0.5, "format": pytest.approx(0.1)}
    assert report.failures == {"environment: TimeoutError": 1}


def test_success_is_told_by_turns():
    attempts = [attempt(1.0), attempt(1.0, turns=3), attempt(0.0, turns=5), attempt(0.5), attempt(0.0, failed=True)]
    assert judge("p", attempts).solved_within == (0.25, 0.25, 0.5)
    assert judge("p", [attempt(0.0, turns=2)]).solved_within == ()


def test_without_a_single_valid_attempt_nothing_is_claimed():
    overall = judge("p", [attempt(0.0, failed=True)]).overall
    assert (overall.success.mean, overall.success.low, overall.success.high) == (None, 0.0, 1.0)
    assert overall.reward is None


def test_report_tells_families_and_levels_apart_and_is_json():
    report = judge("p", [attempt(1.0, family="a", level=2), attempt(0.0, family="b", level=10)])
    assert {name: s.success.mean for name, s in report.by_family.items()} == {"Math/a": 1.0, "Math/b": 0.0}
    assert list(report.by_level) == ["Math/02", "Math/10"]
    assert json.loads(json.dumps(report.as_dict()))["overall"]["success"]["mean"] == 0.5


def test_attempts_at_one_task_are_worth_less_than_those_at_many():
    alike = [[1.0] * 8] * 20 + [[0.0] * 8] * 20
    chance = [[1.0, 0.0] * 4] * 40
    single = wilson(20, 40)
    lone = wilson_of_groups([[1.0]] * 20 + [[0.0]] * 20)
    assert lone == single
    whole = wilson_of_groups(alike)
    free = wilson_of_groups(chance)
    assert whole.count == free.count == 320
    assert whole.low == pytest.approx(single.low, abs=0.003)
    assert free.high - free.low == pytest.approx(single.high - single.low)  # nothing between tasks tells how they vary
    mixed = wilson_of_groups([[1.0] * n + [0.0] * (8 - n) for n in (3, 4, 5) * 13])
    assert mixed.high - mixed.low < 0.6 * (single.high - single.low)
    assert wilson_of_groups([[1.0], [], [1.0, 1.0]]).mean == 1.0
    assert wilson_of_groups([]).mean is None


def test_interval_of_groups_covers_the_truth_about_as_often_as_it_says():
    rng = random.Random(0)
    covered = 0
    for _ in range(2000):
        interval = wilson_of_groups([[float(rng.random() < chance) for _ in range(8)] for chance in chances(rng)])
        covered += interval.low <= 0.3 <= interval.high
    assert 0.93 < covered / 2000 < 0.975


@pytest.mark.parametrize(("count", "right"), [(4, 0), (4, 1), (5, 2), (6, 6)])
def test_pass_at_k_is_the_share_of_draws_with_a_right_attempt(count, right):
    attempts = [1] * right + [0] * (count - right)
    for k in range(1, count + 1):
        draws = list(itertools.combinations(attempts, k))
        assert pass_at(k, count, right) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize("k", [1, 2, 8])
def test_interval_of_pass_at_k_covers_the_truth_about_as_often_as_it_says(k):
    rng = random.Random(k)
    truth = 1 - math.prod((1.4 + index) / (2 + index) for index in range(k))  # of Beta(0.6, 1.4)
    covered = 0
    for _ in range(1000):
        rights = [sum(rng.random() < chance for _ in range(8)) for chance in chances(rng)]
        interval = wilson_of_shares([pass_at(k, 8, right) for right in rights], 8 // k)
        covered += interval.low <= truth <= interval.high
    assert 0.925 < covered / 1000 < 0.98


def chances(rng):
    """Chances to be right at sixty tasks, 0.3 on average."""
    return [rng.betavariate(0.6, 1.4) for _ in range(60)]


def test_several_attempts_at_a_task_are_judged_together():
    def task(group, *outcomes):
        return [attempt(right, group=group, said=f"<answer>{said}</answer>") for right, said in outcomes]

    attempts = [
        *task("often", (1.0, "7"), (1.0, "7"), (0.0, "8"), (0.0, "9")),
        *task("rarely", (0.0, "1"), (0.0, "1"), (0.0, "2"), (1.0, "3")),
        *task("tie", (1.0, "4"), (0.0, "5"), (1.0, "4"), (0.0, "5")),
        *task("fewer", (1.0, "6"), (1.0, "6")),
        attempt(0.0, group="fewer", failed=True),
        *(attempt(0.0, group="silent") for _ in range(4)),
    ]
    several = judge("p", attempts).several
    assert [each.count for each in several.pass_at] == [5, 5, 4, 4]
    first, second, _, last = (each.mean for each in several.pass_at)
    assert first == pytest.approx((0.5 + 0.25 + 0.5 + 1 + 0) / 5)
    assert second == pytest.approx((5 / 6 + 1 / 2 + 5 / 6 + 1 + 0) / 5)
    assert last == 0.75
    assert several.majority.mean == pytest.approx((1 + 0 + 0.5 + 1 + 0) / 5)
    assert judge("p", [attempt(1.0), attempt(0.0)]).several is None
    silent = judge("p", [attempt(1.0, group="a"), attempt(0.0, group="a")]).several
    assert silent.majority is None
    json.dumps(judge("p", attempts).as_dict())


def said(number, text):
    turn = Turn((Message("user", "?"),), text)
    task = Task("Math", "1", "sum", 1, number)
    return Trajectory(id=str(number), task=task, turns=(turn,), end=End.TERMINATED, reward=Reward(), group="g")


def test_a_report_has_the_share_of_attempts_that_break_each_rule():
    rules = open_text_rules([BlockedRule(words=("darn",)), SecretsRule()])
    attempts = [said(number, "darn" if number < 3 else "well") for number in range(10)]
    report = judge("p", attempts, rules=rules)
    assert report.violations["blocked"].mean == 0.3
    assert report.violations["blocked"].low > 0.05
    assert report.violations["secrets"].mean == 0.0
    assert judge("p", attempts).violations == {}
