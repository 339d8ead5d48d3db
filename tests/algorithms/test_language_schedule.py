import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.algorithms.schedule import open_schedule
from loomrl.config import AdaptiveRate, ConstantRate, CosineRate, LinearRate

PEAK = 1e-3


def rates(kind: ConstantRate | LinearRate | CosineRate, updates: int) -> list[float]:
    schedule = open_schedule(PEAK, kind, updates)
    return [schedule.rate(update) for update in range(updates)]


def test_constant_rate_is_constant() -> None:
    assert rates(ConstantRate(), 5) == [PEAK] * 5


def test_linear_rate_falls_evenly_to_its_floor_at_the_last_update() -> None:
    assert rates(LinearRate(floor=0.2), 5) == pytest.approx([1e-3, 0.8e-3, 0.6e-3, 0.4e-3, 0.2e-3])


def test_cosine_rate_is_halfway_in_the_middle() -> None:
    assert rates(CosineRate(floor=0.2), 5)[::2] == pytest.approx([1e-3, 0.6e-3, 0.2e-3])
    assert rates(CosineRate(), 5)[1] == pytest.approx(PEAK * (1 + math.cos(math.pi / 4)) / 2)


def test_warmup_rises_and_the_first_update_already_moves() -> None:
    assert rates(ConstantRate(warmup=3), 5) == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3])


@given(
    kind=st.sampled_from([ConstantRate, LinearRate, CosineRate]), warmup=st.integers(0, 20), updates=st.integers(1, 50)
)
def test_a_plan_rises_to_its_peak_then_never_rises_again(
    kind: type[ConstantRate | LinearRate | CosineRate], warmup: int, updates: int
) -> None:
    plan = rates(kind(warmup=warmup), updates)
    assert all(0 <= rate <= PEAK for rate in plan)
    assert plan[:warmup] == sorted(plan[:warmup])
    assert plan[warmup:] == sorted(plan[warmup:], reverse=True)


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


@given(st.lists(st.floats(0, 1), max_size=60))
def test_adaptive_rate_stays_within_its_bounds(observed: list[float]) -> None:
    kind = AdaptiveRate(lowest=1e-4, highest=1e-2, factor=3.0)
    schedule = open_schedule(PEAK, kind, 10)
    for kl in observed:
        schedule.observe(kl)
        assert 1e-4 <= schedule.rate(0) <= 1e-2


def test_adaptive_rate_resumes_as_if_it_never_stopped() -> None:
    whole, resumed = open_schedule(PEAK, AdaptiveRate(), 10), open_schedule(PEAK, AdaptiveRate(), 10)
    for kl in (0.1, 0.1, 0.001):
        whole.observe(kl)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for schedule in (whole, resumed):
        schedule.observe(0.2)
    assert whole.rate(4) == resumed.rate(4) != PEAK
