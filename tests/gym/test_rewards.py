import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomrl.errors import ConfigError, ScorerError
from loomrl.gym.rewards import NORMALIZATIONS, Normalization, RewardComponent, RewardComposition, RunningStatistics

SCORES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


def composition(*weights: float, **options: object) -> RewardComposition[dict[str, float]]:
    def part(name: str) -> Callable[[dict[str, float]], float]:
        return lambda attempt: attempt[name]

    components = [RewardComponent(f"c{i}", weight, part(f"c{i}")) for i, weight in enumerate(weights)]
    return RewardComposition(components, **options)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.floats(-10, 10), st.floats(-10, 10)), min_size=1, max_size=5))
def test_parts_sum_to_the_total(pairs: list[tuple[float, float]]) -> None:
    compose = composition(*(weight for weight, _ in pairs))
    reward = compose({f"c{i}": score for i, (_, score) in enumerate(pairs)}, success=1.0)
    assert reward.total == pytest.approx(math.fsum(reward.parts.values()))
    assert reward.total == pytest.approx(math.fsum(w * s for w, s in pairs), abs=1e-9)
    assert reward.success == 1.0


@given(st.floats(-1e3, 1e3))
def test_clipping_bounds_the_total_and_leaves_the_parts(score: float) -> None:
    reward = composition(2.0, clip=(-1.0, 1.0))({"c0": score})
    assert -1 <= reward.total <= 1
    assert reward.parts == {"c0": 2 * score}


@given(SCORES)
def test_running_statistics_equal_those_of_the_whole_stream(values: list[float]) -> None:
    stream = RunningStatistics()
    for value in values:
        stream.add(value)
    mean = math.fsum(values) / len(values)
    assert stream.mean == pytest.approx(mean, abs=1e-6)
    assert stream.std == pytest.approx(math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values)), abs=1e-3)
    assert (stream.low, stream.high) == (min(values), max(values))


@given(SCORES)
def test_min_max_stays_between_zero_and_one_and_z_scores_average_to_zero(values: list[float]) -> None:
    stream = RunningStatistics()
    for value in values:
        stream.add(value)
    assert all(0 <= stream.normalised(v, "min-max") <= 1 for v in values)
    assert math.fsum(stream.normalised(v, "z-score") for v in values) / len(values) == pytest.approx(0, abs=1e-3)


@given(SCORES, st.integers(0, 30), st.sampled_from(NORMALIZATIONS))
def test_resuming_equals_never_stopping(values: list[float], stop: int, method: Normalization) -> None:
    whole, first, second = (composition(1.0, 0.5, normalization=method, adaptation=0.3) for _ in range(3))
    attempts = [{"c0": v, "c1": v * v} for v in values]

    def go(compose: RewardComposition[dict[str, float]], part: list[dict[str, float]]) -> list[float]:
        totals = []
        for attempt in part:
            totals.append(compose(attempt).total)
            compose.adapt()
        return totals

    expected = go(whole, attempts)
    got = go(first, attempts[:stop])
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert got + go(second, attempts[stop:]) == expected
    assert second.weights == whole.weights


@given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_adapting_keeps_the_sum_of_the_weights_and_favours_what_lags(leading: list[float]) -> None:
    compose = composition(0.6, 0.4, adaptation=1.0)
    for value in [*leading, 1.0]:
        compose({"c0": 1 - value * 0.01, "c1": value * 0.01})
    before = dict(compose.weights)
    lag = {name: s.normalised(s.mean, "min-max") for name, s in compose.statistics.items()}
    compose.adapt()
    assert math.fsum(compose.weights.values()) == pytest.approx(1.0)
    if abs(lag["c0"] - lag["c1"]) > 1e-9:
        behind = min(lag, key=lambda name: lag[name])
        assert compose.weights[behind] > before[behind]


@pytest.mark.parametrize("answer", [math.nan, math.inf, "high", None])
def test_component_without_a_number_is_a_failure_and_never_a_zero(answer: object) -> None:
    good, bad = RewardComponent("good", 1.0, lambda _: 1.0), RewardComponent("bad", 1.0, lambda _: answer)
    compose = RewardComposition([good, bad])  # type: ignore[list-item]
    with pytest.raises(ScorerError, match="'bad'"):
        compose(None)
    assert compose.statistics["good"].count == 0


@pytest.mark.parametrize(
    "options", [{"normalization": "zscore"}, {"clip": (1.0, 0.0)}, {"adaptation": 1.0, "weight": 0.0}]
)
def test_composition_that_cannot_work_is_refused_at_once(options: dict[str, object]) -> None:
    weight = options.pop("weight", 1.0)
    with pytest.raises(ConfigError):
        composition(weight, **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="each name once"):
        RewardComposition([RewardComponent("a", 1.0, float), RewardComponent("a", 1.0, float)])


def test_state_of_other_components_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        composition(1.0).load_state_dict(composition(1.0, 2.0).state_dict())
