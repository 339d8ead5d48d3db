"""The training doctor on control runs: names each trouble when it is there, and no other, and none in a healthy run."""

import math
import random
import re
from collections.abc import Mapping

import pytest

from loomrl.config.control import DQN, SAC, ControlPPO
from loomrl.telemetry.diagnosis import diagnose
from loomrl.telemetry.diagnosis_control import CLIPPED, EXAMINATIONS, FAR, return_trend
from loomrl.telemetry.metric import Metric
from tests.telemetry.control_history import Course, History, made, played, recorded, rising


def names(rows: History) -> list[str]:
    return [finding.name for finding in diagnose(rows)]


@pytest.mark.parametrize("name", ["ppo_cartpole", "ppo_acrobot", "sac_pendulum"])
def test_real_runs_that_learn_are_healthy_from_the_first_row_to_the_last(name: str) -> None:
    history = recorded(name)
    assert [names(history[:rows]) for rows in range(len(history) + 1)] == [[]] * (len(history) + 1)


def test_a_real_run_that_learns_slowly_is_not_flat() -> None:
    assert names(recorded("ppo_pendulum")) == []


@pytest.mark.parametrize(
    ("name", "troubles"),
    [
        ("ppo_flat", ["flat learning", "value function explains nothing"]),
        ("ppo_certain", ["entropy collapse", "flat learning"]),
        ("ppo_too_far", ["updates too far"]),
        ("ppo_collapse", ["policy collapse", "updates too far"]),
        ("sac_idle", ["has learnt to do nothing"]),
    ],
)
def test_real_runs_that_fail_have_their_troubles_named(name: str, troubles: list[str]) -> None:
    assert names(recorded(name)) == troubles


def stuck(_: float, r: random.Random) -> float:
    return -1300 + r.gauss(0, 8)


def falls(x: float, r: random.Random) -> float:
    return rising(min(x, 0.5)) - (1800 * max(0.0, x - 0.5)) + r.gauss(0, 8)


def jumps(x: float, r: random.Random) -> float:
    return r.choice((-1300.0, -150.0)) if x > 0.2 else rising(x)


TROUBLES: dict[str, dict[Metric, Course]] = {
    "not a number": {Metric.RETURN: lambda x, r: math.nan if x > 0.9 else rising(x) + r.gauss(0, 8)},
    "policy collapse": {Metric.RETURN: falls},
    "updates too far": {Metric.POLICY_STEP_KL: lambda _, r: 3 * FAR + r.random()},
    "exploding gradients": {Metric.GRADIENT_NORM: lambda x, r: math.exp(8 * x) * (1 + 0.1 * r.random())},
    "nothing is rewarded": {Metric.RETURN: lambda *_: 0.0, Metric.RETURN_EVALUATED: lambda *_: 0.0},
    "flat learning": {Metric.RETURN: stuck},
    "has learnt to do nothing": {
        Metric.RETURN: lambda x, r: -34 * (1 - x) - 2 + r.gauss(0, 0.5),
        Metric.RETURN_EVALUATED: lambda _, r: -abs(r.gauss(0, 0.02)),
        Metric.RETURN_IDLE: lambda *_: 0.0,
    },
    "greedy actions earn less": {
        Metric.RETURN_EVALUATED: lambda x, r: rising(x) - 600 * x + r.gauss(0, 60),
        Metric.RETURN_AHEAD: lambda x, r: -600 * x + r.gauss(0, 60),
    },
    "high variance": {Metric.RETURN_EVALUATED: lambda x, r: -1300.0 if round(20 * x) % 2 else -150.0},
}
BESIDE_FLATNESS: dict[str, dict[Metric, Course]] = {
    "entropy collapse": {Metric.POLICY_ENTROPY: lambda x, _: 0.8 * math.exp(-20 * x), Metric.RETURN: stuck},
    "saturated actions": {Metric.POLICY_SATURATED: lambda x, r: 0.9 + r.uniform(-0.05, 0.05), Metric.RETURN: stuck},
    "value function explains nothing": {
        Metric.VALUE_EXPLAINED_VARIANCE: lambda _, r: r.gauss(0, 0.02),
        Metric.RETURN: stuck,
    },
}
"""Troubles only of a run that does not learn: one that does may be sure of itself, or have returns without variance."""


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("trouble", TROUBLES)
def test_each_trouble_is_found_and_no_other(trouble: str, seed: int) -> None:
    assert names(made(TROUBLES[trouble], seed=seed)) == [trouble]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("trouble", BESIDE_FLATNESS)
def test_what_may_keep_a_flat_run_from_learning_is_named_beside_it(trouble: str, seed: int) -> None:
    assert set(names(made(BESIDE_FLATNESS[trouble], seed=seed))) == {trouble, "flat learning"}
    learning = {metric: course for metric, course in BESIDE_FLATNESS[trouble].items() if metric is not Metric.RETURN}
    assert names(made(learning, seed=seed)) == []


@pytest.mark.parametrize("seed", range(5))
def test_exploration_by_real_numbers_is_dead_where_their_deviation_is_gone(seed: int) -> None:
    courses: dict[Metric, Course] = {Metric.POLICY_ENTROPY: lambda x, _: 1.4 - 5 * x, Metric.RETURN: stuck}
    shrunken = courses | {Metric.POLICY_DEVIATION: lambda x, _: 0.5 * math.exp(-20 * x)}
    wide = courses | {Metric.POLICY_DEVIATION: lambda x, _: 0.5 - 0.3 * x}
    assert set(names(made(shrunken, seed=seed))) == {"entropy collapse", "flat learning"}
    assert names(made(wide, seed=seed)) == ["flat learning"]


def test_greedy_actions_that_earn_more_or_once_less_are_no_trouble() -> None:
    better: Course = lambda x, r: 600 + r.gauss(0, 60)  # noqa: E731
    once: Course = lambda x, r: -900 if x >= 1 else 0.0  # noqa: E731
    assert names(made({Metric.RETURN_AHEAD: better})) == []
    assert names(made({Metric.RETURN_AHEAD: once})) == []


@pytest.mark.parametrize("idle", [-1300.0, -1200.0, -150.0, 0.0])
@pytest.mark.parametrize("seed", range(5))
def test_who_earns_more_or_less_than_nothing_does_something(seed: int, idle: float) -> None:
    nothing: dict[Metric, Course] = {Metric.RETURN_IDLE: lambda *_: idle}
    assert names(made(nothing, seed=seed)) == []
    flat: dict[Metric, Course] = {Metric.RETURN: stuck, Metric.RETURN_EVALUATED: lambda _, r: -1300 + r.gauss(0, 60)}
    assert "has learnt to do nothing" not in names(made(nothing | flat, seed=seed))


def test_a_run_in_which_nothing_is_ever_paid_or_paid_for_has_not_learnt_that() -> None:
    silent: Course = lambda *_: 0.0  # noqa: E731
    history = made({Metric.RETURN: silent, Metric.RETURN_EVALUATED: silent, Metric.RETURN_IDLE: silent})
    assert "has learnt to do nothing" not in names(history)


def test_every_examination_has_its_trouble_here() -> None:
    assert len(TROUBLES) + len(BESIDE_FLATNESS) == len(EXAMINATIONS)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [1, 5, 10, 30, 100, 400])
def test_a_noisy_run_that_improves_is_healthy(rows: int, seed: int) -> None:
    assert names(made(rows=rows, seed=seed)) == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("episodes_per_row", [2, 5, 45, 150])
def test_chance_alone_is_neither_learning_nor_collapse(episodes_per_row: int, seed: int) -> None:
    history = played(lambda *_: -1200.0, 300.0, episodes_per_row=episodes_per_row, seed=seed)
    assert names(history) == ["flat learning"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("episodes_per_row", [2, 5, 45, 150])
def test_learning_is_seen_through_episodes_that_differ(episodes_per_row: int, seed: int) -> None:
    history = played(lambda x, _: rising(x), 300.0, episodes_per_row=episodes_per_row, seed=seed)
    assert names(history) == []


@pytest.mark.parametrize("seed", range(6))
def test_of_too_few_episodes_nothing_is_said(seed: int) -> None:
    for mean in (lambda *_: -1200.0, lambda x, _: rising(x)):
        assert names(played(mean, 300.0, episodes_per_row=2, rows=60, seed=seed)) == []


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lost", [50.0, 150.0])
def test_a_policy_that_learnt_at_once_may_lose_a_little(seed: int, lost: float) -> None:
    def quick(x: float, _: random.Random) -> float:
        return min(500.0, 50 + 4500 * x) - lost * (x > 0.8)

    assert names(played(quick, 20.0, episodes_per_row=45, seed=seed)) == []


def test_the_first_episodes_of_a_stage_are_few_and_prove_little() -> None:
    history = played(lambda *_: -1200.0, 300.0, episodes_per_row=5)
    first = [row | {Metric.STAGE: 1.0} for row in history]
    second = [row | {Metric.STAGE: 2.0, "step": row["step"] + history[-1]["step"]} for row in history]
    assert names(first + second) == []
    went = return_trend(first + second)
    assert went is not None
    assert went.begun.deviation > 1.5 * went.now.deviation


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("offset", [-1.0, 0.0, 1.0])
def test_the_scale_of_rewards_makes_no_difference_to_collapse(scale: float, offset: float) -> None:
    def scaled(history: History) -> History:
        of = (Metric.RETURN, Metric.RETURN_EVALUATED)
        return [{name: scale * (v + 2000 * offset) if name in of else v for name, v in row.items()} for row in history]

    assert names(scaled(made(TROUBLES["policy collapse"]))) == ["policy collapse"]
    assert names(scaled(made())) == []


def climbing(over: Mapping[Metric, Course] | None = None) -> History:
    """Ever harder stages: the return falls at the beginning of each."""
    stages: dict[Metric, Course] = {
        Metric.STAGE: lambda x, _: 1.0 + math.floor(2.999 * x),
        Metric.RETURN: lambda x, r: 400 * (3 * x % 1) + 50 - 100 * math.floor(2.999 * x) + r.gauss(0, 5),
        Metric.RETURN_EVALUATED: lambda x, r: 500 * x + r.gauss(0, 20),
    }
    return made({**stages, **(over or {})})


def test_a_return_that_falls_because_the_stage_is_harder_is_no_collapse() -> None:
    history = climbing()
    assert [names(history[:rows]) for rows in range(len(history))] == [[]] * len(history)


def test_a_run_that_climbed_has_learnt_even_if_its_last_stage_is_level() -> None:
    level = {Metric.RETURN: lambda x, r: 300 + r.gauss(0, 5), Metric.POLICY_ENTROPY: lambda x, _: 0.6 * (1 - x) ** 6}
    assert names(climbing(level)) == []


def test_a_collapse_within_a_stage_is_one() -> None:
    falling: dict[Metric, Course] = {Metric.RETURN: lambda x, r: (400 if x < 0.85 else 30) + 300 * x + r.gauss(0, 5)}
    assert names(climbing(falling)) == ["policy collapse"]


def test_real_valued_actions_may_have_a_negative_entropy() -> None:
    assert names(made({Metric.POLICY_ENTROPY: lambda x, _: 0.5 - 2 * x, Metric.RETURN: stuck})) == ["flat learning"]


def test_a_clip_that_cuts_off_most_is_too_far_whatever_the_distance() -> None:
    (finding,) = diagnose(made({Metric.POLICY_CLIP_FRACTION: lambda *_: 1.5 * CLIPPED}))
    assert finding.name == "updates too far"
    assert "60%" in finding.evidence


def test_a_single_update_that_went_too_far_is_no_trouble() -> None:
    assert names(made({Metric.POLICY_STEP_KL: lambda x, _: 50.0 if 0.95 <= x < 0.98 else 0.01})) == []


def test_large_returns_may_have_long_gradients_and_short_ones_may_grow() -> None:
    assert names(made({Metric.GRADIENT_NORM: lambda _, r: 3000 + 500 * r.random()})) == []
    assert names(made({Metric.GRADIENT_NORM: lambda x, _: 1e-3 * math.exp(7 * x)})) == []


def test_evaluations_of_a_policy_that_learns_nothing_may_differ() -> None:
    apart: Course = lambda x, _: -1000.0 if round(20 * x) % 2 else -1600.0  # noqa: E731
    assert names(made({Metric.RETURN: stuck, Metric.RETURN_EVALUATED: apart})) == ["flat learning"]


@pytest.mark.parametrize("metric", [Metric.RETURN_EVALUATED, Metric.VALUE_LOSS])
def test_evidence_names_metric_and_step(metric: Metric) -> None:
    history = made()
    history[89][metric] = math.inf
    (finding,) = diagnose(history)
    assert finding.evidence == f"{metric} at step 92,160"


def test_evidence_of_a_collapse_is_in_returns() -> None:
    (finding,) = diagnose(recorded("ppo_collapse")[:30])[:1]
    assert finding.name == "policy collapse"
    assert re.fullmatch(r"return [\d.]+ now, [\d.]+ at its best, [\d.]+ at the start", finding.evidence)


def remedies(history: History) -> str:
    return " ".join(finding.remedy for finding in diagnose(history))


def every_remedy(*, only: set[Metric] | None = None) -> str:
    """All remedies ever named for a run that has only these metrics."""
    histories = [made({Metric.POLICY_RANDOM: lambda *_: 0.1} | over) for over in (TROUBLES | BESIDE_FLATNESS).values()]
    kept = [
        [{name: v for name, v in row.items() if only is None or name in only or name == "step"} for row in history]
        for history in histories
    ]
    return " ".join(map(remedies, kept))


def test_remedies_name_settings_of_the_algorithm_that_was_used() -> None:
    of_sac = {Metric.RETURN, Metric.RETURN_EVALUATED, Metric.EPISODE_STEPS, Metric.GRADIENT_NORM, Metric.POLICY_ENTROPY}
    of_sac |= {Metric.RETURN_AHEAD, Metric.POLICY_SATURATED, Metric.VALUE_EXPLAINED_VARIANCE}
    of_dqn = of_sac | {Metric.POLICY_RANDOM}
    by_kind = {ControlPPO: every_remedy(), SAC: every_remedy(only=of_sac), DQN: every_remedy(only=of_dqn)}
    for settings, text in by_kind.items():
        named = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text)) - {"clip_norm"}
        assert len(named) >= 5
        assert named <= set(settings.model_fields)


def test_settings_outside_the_algorithm_exist() -> None:
    from loomrl.config import ControlExperiment

    named = set(re.findall(r"\b(?:rollout|train|evaluation|network)(?:\.[a-z]+)+", every_remedy()))
    assert {"train.stop.decline", "rollout.steps", "evaluation.episodes", "network.shared"} <= named
    for path in named:
        of = ControlPPO() if path.startswith("network") else ControlExperiment(name="test")
        for part in path.split("."):
            of = getattr(of, part)


def test_no_rows_and_gaps_are_no_trouble() -> None:
    assert diagnose([]) == []
    rows = [
        {name: v for name, v in row.items() if (len(name) + row["step"] // 1024) % 3 or name == "step"}
        for row in made()
    ]
    assert diagnose(rows) == []
