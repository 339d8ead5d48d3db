"""The training doctor: names each trouble when it is there, and no other, and none in a healthy run."""

import math
import random
from collections.abc import Mapping

import pytest

from loomrl.telemetry.diagnosis import DRIFT, EXAMINATIONS, KL_EXPLODED, WINDOW, diagnose, too_few
from loomrl.telemetry.metric import Metric
from tests.telemetry.control_history import Course, History, simulated


def history(over: Mapping[Metric, Course] | None = None, *, updates: int = 100, seed: int = 0) -> History:
    """A healthy, noisy run that goes from 0.15 to about 0.85 on ever harder tasks; `over` replaces metrics."""
    courses: dict[Metric, Course] = {
        Metric.SUCCESS: lambda x, r: min(1.0, max(0.0, 0.15 + 0.7 * x + r.gauss(0, 0.08))),
        Metric.LEVEL: lambda x, _: 1 + x,
        Metric.REWARD_TOTAL: lambda x, r: 0.2 + 0.7 * x + r.gauss(0, 0.08),
        Metric.POLICY_LOSS: lambda _, r: r.gauss(0, 0.02),
        Metric.POLICY_KL: lambda x, r: 0.5 * x + abs(r.gauss(0, 0.02)),
        Metric.POLICY_ENTROPY: lambda x, r: 0.6 * math.exp(-2 * x) + abs(r.gauss(0, 0.01)),
        Metric.POLICY_DRIFT: lambda _, r: abs(r.gauss(0, 1e-5)),
        Metric.VALUE_EXPLAINED_VARIANCE: lambda x, r: 0.6 * x + r.gauss(0.1, 0.1),
        Metric.GRADIENT_NORM: lambda _, r: 0.5 + abs(r.gauss(0, 0.4)),
        Metric.GROUPS_WITHOUT_SIGNAL: lambda x, _: 0.1 + 0.4 * x,
        **(over or {}),
    }
    return simulated(courses, updates, seed)


def falls(x: float, r: random.Random) -> float:
    return (0.2 + x if x < 0.5 else max(0.02, 0.7 - 2 * (x - 0.5))) + r.uniform(0, 0.02)


def slowly(x: float, r: random.Random) -> float:
    return 0.1 + 0.4 * x + r.uniform(0, 0.1)


TROUBLES: dict[str, dict[Metric, Course]] = {
    "not a number": {Metric.POLICY_LOSS: lambda x, _: math.nan if x > 0.9 else 0.0},
    "nothing is rewarded": {
        Metric.SUCCESS: lambda *_: 0.0,
        Metric.REWARD_TOTAL: lambda *_: 0.0,
        Metric.GROUPS_WITHOUT_SIGNAL: lambda *_: 1.0,
        Metric.GRADIENT_NORM: lambda *_: 0.0,
    },
    "reward hacking": {Metric.REWARD_UNEARNED: lambda x, _: x, Metric.REWARD_HACKED: lambda x, _: float(x > 0.9)},
    "policy collapse": {Metric.SUCCESS: falls, Metric.LEVEL: lambda *_: 1.0},
    "exploding gradients": {Metric.GRADIENT_NORM: lambda x, r: math.exp(8 * x) * (1 + 0.1 * r.random())},
    "engine-learner drift": {Metric.POLICY_DRIFT: lambda *_: 3 * DRIFT},
    "entropy collapse": {Metric.POLICY_ENTROPY: lambda x, _: 0.8 * math.exp(-8 * x), Metric.SUCCESS: slowly},
    "vanishing gradients": {Metric.GRADIENT_NORM: lambda x, _: math.exp(-30 * x)},
    "groups without signal": {Metric.GROUPS_WITHOUT_SIGNAL: lambda *_: 0.9},
    "flat learning": {Metric.SUCCESS: lambda _, r: 0.2 + r.gauss(0, 0.05), Metric.LEVEL: lambda *_: 1.0},
    "value function explains nothing": {
        Metric.VALUE_EXPLAINED_VARIANCE: lambda _, r: r.gauss(0, 0.02),
        Metric.SUCCESS: slowly,
    },
    "starvation": {
        Metric.OVERLAP: lambda *_: 0.3,
        Metric.TIME_ROLLOUT: lambda *_: 0.6,
        Metric.TIME_LEARN: lambda *_: 0.4,
        Metric.TIME_ENGINE_IDLE: lambda *_: 0.1,
    },
    "high variance": {Metric.SUCCESS: lambda x, r: min(1.0, 0.15 + 0.65 * x + r.choice((-0.3, 0.3)))},
}


def names(rows: History) -> list[str]:
    return [finding.name for finding in diagnose(rows)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("trouble", TROUBLES)
def test_each_trouble_is_found_and_no_other(trouble: str, seed: int) -> None:
    assert names(history(TROUBLES[trouble], seed=seed)) == [trouble]


def test_graders_that_disagree_all_along_are_a_finding() -> None:
    assert names(history({Metric.REWARD_UNEARNED: lambda *_: 0.2, Metric.REWARD_HACKED: lambda *_: 0.0})) == [
        "graders disagree"
    ]
    assert names(history({Metric.REWARD_UNEARNED: lambda *_: 0.05, Metric.REWARD_HACKED: lambda *_: 0.0})) == []


def test_every_examination_has_its_trouble_here() -> None:
    assert len(TROUBLES) == len(EXAMINATIONS)


@pytest.mark.parametrize("updates", [1, 2, 5, WINDOW, 100])
def test_nothing_rewarded_is_found_from_the_first_update_on(updates: int) -> None:
    rows = history(TROUBLES["nothing is rewarded"], updates=updates)
    assert names(rows) == ["nothing is rewarded"]
    assert "algorithm.warm_start" in diagnose(rows)[0].remedy
    assert names([{**row, Metric.REWARD_DEVIATION: 0.2} for row in rows[: WINDOW - 1]]) == [], "some earned more"


def test_the_doctor_says_when_it_has_seen_too_little_to_judge() -> None:
    assert "2 rows" in str(too_few(history(updates=2)))
    assert too_few(history(updates=WINDOW)) is None
    data_set = {str(Metric.SUCCESS): lambda *_: math.nan}
    assert too_few(history({Metric(name): course for name, course in data_set.items()}, updates=WINDOW)) is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("updates", [1, 5, WINDOW, 30, 100, 400])
def test_a_noisy_run_that_improves_is_healthy(updates: int, seed: int) -> None:
    assert names(history(updates=updates, seed=seed)) == []


SOLVED: dict[Metric, Course] = {
    Metric.SUCCESS: lambda _, r: min(1.0, 0.97 + r.gauss(0, 0.02)),
    Metric.POLICY_ENTROPY: lambda x, _: 0.1 * math.exp(-10 * x),
    Metric.GRADIENT_NORM: lambda *_: 0.0,
    Metric.GROUPS_WITHOUT_SIGNAL: lambda *_: 0.98,
    Metric.VALUE_EXPLAINED_VARIANCE: lambda *_: math.nan,
}


def test_a_run_that_had_solved_its_tasks_already_is_healthy() -> None:
    assert names(history(SOLVED)) == []


def test_success_that_gives_way_to_harder_tasks_is_no_collapse_and_not_flat() -> None:
    course: dict[Metric, Course] = {
        Metric.SUCCESS: lambda x, r: 0.5 + 0.45 * math.exp(-4 * x) + r.gauss(0, 0.03),
        Metric.LEVEL: lambda x, _: 1 + 6 * x,
    }
    assert names(history(course)) == []


@pytest.mark.parametrize(
    ("rollout_s", "idle_s", "told"),
    [(0.6, 0.1, ["the learner waits", "rollout.runners"]), (0.1, 0.6, ["engines have nothing", "learners.count"])],
)
def test_whoever_starves_is_named_with_what_to_change(rollout_s: float, idle_s: float, told: list[str]) -> None:
    rows = history(
        {
            Metric.OVERLAP: lambda *_: 0.3,
            Metric.TIME_ROLLOUT: lambda *_: rollout_s,
            Metric.TIME_LEARN: lambda *_: 1 - rollout_s,
            Metric.TIME_ENGINE_IDLE: lambda *_: idle_s,
        }
    )
    (finding,) = diagnose(rows)
    assert told[0] in finding.evidence
    assert told[1] in finding.remedy
    assert names([{k: v for k, v in row.items() if k != Metric.OVERLAP} for row in rows]) == []


def test_a_kl_beyond_reason_is_a_collapse_whatever_success_says() -> None:
    (finding,) = diagnose(history({Metric.POLICY_KL: lambda x, _: 3 * KL_EXPLODED * x}))
    assert finding.name == "policy collapse"
    assert "nats per token" in finding.evidence


def test_continuous_actions_may_have_a_negative_entropy() -> None:
    assert names(history({Metric.POLICY_ENTROPY: lambda x, _: -3 - x, Metric.SUCCESS: slowly})) == []


def test_a_finding_gives_its_evidence_in_numbers_and_something_to_try() -> None:
    (finding,) = diagnose(history({Metric.POLICY_LOSS: lambda x, _: math.inf if x > 0.9 else 0.0}))
    assert finding.evidence == "policy/loss at update 91"
    assert "optimizer.learning_rate" in finding.remedy


def test_no_history_and_unknown_metrics_are_no_trouble() -> None:
    assert diagnose([]) == []
    assert diagnose([{"step": step, "coins": math.nan} for step in range(100)]) == []


def test_gaps_in_the_metrics_are_no_trouble() -> None:
    rows = history()
    assert (
        diagnose([{k: v for k, v in row.items() if (len(k) + row["step"]) % 3} | {"step": row["step"]} for row in rows])
        == []
    )


def test_a_drift_alarm_is_found_below_the_doctors_own_threshold() -> None:
    raised: dict[Metric, Course] = {
        Metric.POLICY_DRIFT: lambda *_: 0.02,
        Metric.POLICY_DRIFT_ALARM: lambda x, _: float(x > 0.95),
    }
    (finding,) = diagnose(history(raised))
    assert finding.name == "engine-learner drift"
    assert "beyond engine.checks.drift in" in finding.evidence
    assert names(history({**raised, Metric.POLICY_DRIFT_ALARM: lambda x, _: float(x < 0.1)})) == []
