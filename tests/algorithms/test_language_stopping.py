"""The end of a run that has had enough, and its best update."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.algorithms.schedule import open_schedule
from loomrl.config import AdaptiveRate, ConstantRate, CosineRate, LinearRate, Patience, ReturnPatience
from loomrl.run.stopping import Convergence, Stopper

successes = st.floats(0, 1, allow_nan=False)
kls = st.floats(0, 20, allow_nan=False)
updates = st.lists(st.tuples(successes, kls), max_size=40)
patience = st.builds(
    Patience,
    window=st.integers(1, 6),
    target=st.none() | st.floats(0.1, 1),
    plateau=st.none() | st.integers(1, 8),
    decline=st.none() | st.floats(0.05, 1),
    kl=st.none() | st.floats(0.1, 20),
)


def reasons(settings: Patience, success: list[float], kl: float = 0.0) -> list[str | None]:
    stopper = Stopper(settings)
    return [stopper.observe(value, kl) for value in success]


def told(stopper: Stopper, rows: list[tuple[float, float]]) -> list[object]:
    return [(stopper.observe(success, kl), stopper.best, stopper.best_mean, stopper.mean) for success, kl in rows]


@given(patience, updates, st.integers(0, 40))
def test_a_resumed_stopper_equals_one_that_never_stopped(
    settings: Patience, rows: list[tuple[float, float]], cut: int
) -> None:
    whole = Stopper(settings)
    first = Stopper(settings)
    second = Stopper(settings)
    expected = told(whole, rows)
    before = told(first, rows[:cut])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert before + told(second, rows[cut:]) == expected
    assert second.state_dict() == whole.state_dict()


@given(st.lists(successes, min_size=1, max_size=40), st.integers(1, 6))
def test_best_is_the_first_update_with_the_highest_mean_over_a_full_window(values: list[float], window: int) -> None:
    stopper = Stopper(Patience(window=window))
    for value in values:
        stopper.observe(value, 0.0)
    means = {end: sum(values[end - window : end]) / window for end in range(window, len(values) + 1)}
    assert stopper.best == (max(means, key=lambda end: means[end]) if means else len(values))
    assert stopper.mean == means.get(len(values))


def test_without_rules_a_run_is_never_stopped() -> None:
    assert reasons(Patience(window=2), [0.0, 1.0, 1.0, 0.0, 0.0], kl=100.0) == [None] * 5


def test_a_target_is_reached_by_what_rounding_leaves_of_it_and_not_by_less() -> None:
    assert reasons(Patience(window=3, target=0.7), [0.7, 0.7, 0.7])[-1] is not None
    assert reasons(Patience(window=3, target=0.7), [0.7, 0.7, 0.6999])[-1] is None
    paid = float(np.float32(0.7))  # as control keeps rewards; it is less than 0.7
    assert Convergence(ReturnPatience(target=0.7)).see(paid, 1) is not None
    assert Convergence(ReturnPatience(target=0.7)).see(0.6999, 1) is None


def test_rules_by_evaluation_look_at_held_out_tasks_alone() -> None:
    stopper = Stopper(Patience(by="evaluation", target=0.8, plateau=4))
    said = [stopper.judge(0.5)]
    for update in range(1, 5):
        said.append(stopper.observe(1.0, 0.0))
        said += [stopper.judge(0.5)] if update % 2 == 0 else []
    *early, last = said
    assert early == [None] * 6
    assert last == "plateau: nothing better than success 0.500 for 4 updates"
    declining = Stopper(Patience(by="evaluation", decline=0.3))
    assert [declining.judge(value) for value in (0.6, 0.4)] == [None, None]
    assert str(declining.judge(0.2)).startswith("decline: success 0.200 on held-out tasks, 0.600")
    assert Stopper(Patience(by="training", target=0.1)).judge(1.0) is None, "training's rules do not look at it"
    assert Stopper(Patience(by="evaluation", target=0.1)).judge(None) is None, "unknown is not success"


def test_a_decline_of_just_what_is_allowed_is_allowed() -> None:
    assert reasons(Patience(window=1, decline=0.2), [0.9, 0.7, 0.69])[:2] == [None, None]
    assert reasons(Patience(window=1, decline=0.2), [0.9, 0.7, 0.69])[2] is not None


def test_a_kl_collapse_stops_at_once_and_not_only_after_a_window() -> None:
    stopper = Stopper(Patience(window=10, kl=2.0))
    assert stopper.observe(0.5, 1.0) is None
    reason = stopper.observe(0.5, 9.0)
    assert reason is not None
    assert reason.startswith("KL collapse: 5 nats")


def test_a_kl_that_is_no_number_is_a_collapse() -> None:
    assert reasons(Patience(kl=2.0), [0.5], kl=math.nan)[0] is not None


@pytest.mark.parametrize("success", [-0.1, 1.1, math.nan])
def test_a_success_outside_its_range_is_refused(success: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Stopper(Patience()).observe(success, 0.0)


PEAK = 1e-3


def test_an_update_past_the_plan_keeps_the_floor() -> None:
    schedule = open_schedule(PEAK, LinearRate(floor=0.1), 10)
    assert schedule.rate(1000) == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("kl", "factor"), [(0.016, 1 / 2), (0.0149, 1), (0.01, 1), (0.0067, 1), (0.006, 2), (math.inf, 1 / 2)]
)
def test_adaptive_rate_leaves_a_band_around_its_target_alone(kl: float, factor: float) -> None:
    schedule = open_schedule(PEAK, AdaptiveRate(target_kl=0.01, factor=2.0), 10)
    schedule.observe(kl)
    assert schedule.rate(1) == pytest.approx(PEAK * factor)


def test_adaptive_rate_resumes_as_if_it_never_stopped() -> None:
    whole, resumed = open_schedule(PEAK, AdaptiveRate(), 10), open_schedule(PEAK, AdaptiveRate(), 10)
    for kl in (0.1, 0.1, 0.001):
        whole.observe(kl)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for schedule in (whole, resumed):
        schedule.observe(0.2)
    assert whole.rate(4) == resumed.rate(4) != PEAK


@pytest.mark.parametrize(
    ("settings", "successes", "said"),
    [
        (
            Patience(window=3, target=0.9),
            [1.0, 1.0, 0.6, 0.9, 0.9, 0.9],
            "target reached: success 0.900 over 3 updates, asked for 0.9",
        ),
        (
            Patience(window=1, plateau=3),
            [0.1, 0.5, 0.5, 0.4, 0.5],
            "plateau: nothing better than success 0.500 for 3 updates",
        ),
        (
            Patience(window=1, decline=0.25),
            [0.75, 0.625, 0.5, 0.25],
            "decline: success 0.250 over 1 updates, 0.750 at update 1",
        ),
    ],
    ids=["target", "plateau", "decline"],
)
def test_a_rule_stops_the_run_at_the_update_that_it_is_about(
    settings: Patience, successes: list[float], said: str
) -> None:
    *early, last = reasons(settings, successes)
    assert early == [None] * (len(successes) - 1)
    assert last == said


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ConstantRate(warmup=3), [0.25, 0.5, 0.75, 1, 1]),
        (LinearRate(floor=0.2), [1, 0.8, 0.6, 0.4, 0.2]),
        (CosineRate(floor=0.2), [1, 0.6 + 0.4 * math.cos(math.pi / 4), 0.6, 0.6 - 0.4 * math.cos(math.pi / 4), 0.2]),
    ],
    ids=["constant", "linear", "cosine"],
)
def test_a_plan_has_its_rates(kind: ConstantRate | LinearRate | CosineRate, expected: list[float]) -> None:
    schedule = open_schedule(PEAK, kind, 5)
    assert [schedule.rate(update) / PEAK for update in range(5)] == pytest.approx(expected)


@pytest.mark.parametrize(("kl", "bound"), [(1.0, 1e-4), (0.0, 1e-2)])
def test_adaptive_rate_stays_within_its_bounds(kl: float, bound: float) -> None:
    schedule = open_schedule(PEAK, AdaptiveRate(lowest=1e-4, highest=1e-2, factor=3.0), 10)
    for _ in range(4):
        schedule.observe(kl)
    assert schedule.rate(0) == pytest.approx(bound)
