"""Simulated releases: the error rates that the comparison promises, and that a test without its correction fails."""

import math
from dataclasses import replace

import numpy as np
import pytest

from loomrl.experiments.bench.release import (
    ERROR_RATE,
    SHIPPED,
    Metric,
    against_the_day,
    assigned,
    day,
    evidence,
    fine_now,
    first,
    peeking,
    steps,
)
from loomrl.release.betting import Floats
from loomrl.release.comparison import ArmComparison, Mean, Mismatch, score
from loomrl.release.guard import Better, Guard
from loomrl.release.paired import compare_pairs
from tests.release.release_support import observed

RELEASES = 200
RAMP = steps([(200, 0.1), (200, 0.25), (400, 0.5)])
NOTHING_ACCEPTED = Metric(guard=Guard(metric="success", better=Better.HIGHER), mean=0.7)
ALLOWED = 0.09
"""Of 200 releases at a rate of 0.05: exceeded with a chance of 0.006."""


def rolled_back(metric: Metric, chance: Floats, *, releases: int = RELEASES) -> tuple[float, float]:
    """The shares of releases that ours rolls back, and that a z-test does that is looked at all the time."""
    rng = np.random.default_rng(0)
    taken = assigned(rng, releases, chance)
    harm = metric.draw(rng, taken)
    ours, naive = evidence(harm, taken, chance).worse_at(ERROR_RATE), peeking(harm.plain_RN, taken, ERROR_RATE)
    return float((ours < len(chance)).mean()), float((naive < len(chance)).mean())


@pytest.mark.parametrize(("mean", "deviation"), [(0.05, None), (0.7, None), (0.95, None), (0.7, 0.1)])
def test_an_equal_version_rarely_comes_back_at_any_look_and_often_by_peeking(
    mean: float, deviation: float | None
) -> None:
    ours, naive = rolled_back(replace(NOTHING_ACCEPTED, mean=mean, deviation=deviation), RAMP)
    assert ours <= ALLOWED < naive


def test_an_equal_latency_rarely_comes_back() -> None:
    metric = Metric(guard=Guard(metric="latency_s", better=Better.LOWER, quantile=0.95), mean=0.0, deviation=0.5)
    ours, _ = rolled_back(metric, RAMP)
    assert ours <= ALLOWED


def test_a_day_that_shares_follow_does_not_decide_but_fools_pooled_means() -> None:
    units = 4800
    metric = replace(NOTHING_ACCEPTED, mean=0.6, drift_N=day(units, 0.3))
    ours, naive = rolled_back(metric, against_the_day(units), releases=40)
    assert ours <= 0.15
    assert naive > 0.9


@pytest.mark.parametrize("metric", [SHIPPED[0], SHIPPED[2], SHIPPED[4], SHIPPED[5]])
def test_a_version_worse_than_accepted_is_rarely_found_fine(metric: Metric) -> None:
    fault = {"success": -0.05, "error": 0.05, "violation": 0.02, "negative": 0.05}[metric.guard.metric]
    rng = np.random.default_rng(0)
    taken = assigned(rng, RELEASES, RAMP)
    harm = replace(metric, fault=fault).draw(rng, taken)
    assert (first(fine_now(harm, taken, RAMP)) < len(RAMP)).mean() <= ALLOWED


def test_a_version_that_is_toxic_in_2_percent_rarely_passes_even_where_only_the_least_units_come() -> None:
    least = 1600
    chance = steps([(1000, 0.1), (400, 0.25), (2200, 0.5)])
    metric = replace(SHIPPED[4], mean=0.0, fault=0.02)
    rng = np.random.default_rng(0)
    taken = assigned(rng, RELEASES, chance)
    harm = metric.draw(rng, taken)
    fine = least + first(fine_now(harm, taken, chance)[:, least:])
    strict = replace(harm, guard=replace(harm.guard, margin=0.0))  # the plan's limit of 0: worse at all is too much
    worse = evidence(strict, taken, chance).worse_at(ERROR_RATE / len(SHIPPED))
    by_time, by_proof = float((worse >= least).mean()), float((fine < np.minimum(worse, len(chance))).mean())
    print(f"passed by time {by_time:.3f}, by proof {by_proof:.3f}")
    assert by_proof <= ALLOWED < by_time


def test_a_good_version_is_proved_free_of_violations_within_the_least_units() -> None:
    chance = steps([(1000, 0.1), (400, 0.25), (200, 0.5)])
    rng = np.random.default_rng(0)
    taken = assigned(rng, RELEASES, chance)
    harm = replace(SHIPPED[4], mean=0.0).draw(rng, taken)
    assert fine_now(harm, taken, chance)[:, -1].mean() > 0.95


def test_a_fifth_fewer_successes_are_found_within_150_canary_units_in_the_median() -> None:
    chance = steps([(3000, 0.1)])
    rng = np.random.default_rng(0)
    taken = assigned(rng, 100, chance)
    harm = replace(SHIPPED[0], fault=-0.2).draw(rng, taken)
    ends = evidence(harm, taken, chance).worse_at(ERROR_RATE / len(SHIPPED))
    met = np.cumsum(taken, axis=1)[np.arange(100), np.minimum(ends, 2999)]
    assert np.median(np.where(ends < 3000, met, math.inf)) <= 150


def test_the_bounds_cover_the_true_difference_at_every_look() -> None:
    """8 looks of 40 releases; both sides fail with a chance of 0.05 each."""
    true, chance, missed = -0.1, np.full(600, 0.25), 0
    guard = Guard(metric="success", better=Better.HIGHER)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        taken = rng.random(600) < chance
        values = rng.random(600) < 0.7 + true * taken
        comparison = ArmComparison([guard], baseline="old", challenger="new")
        misses = False
        for begin in range(0, 600, 75):
            batch = [
                observed("new" if taken[unit] else "old", unit, "success", values[unit])
                for unit in range(begin, begin + 75)
            ]
            comparison.observe(batch, lambda _: {"old": 0.75, "new": 0.25})
            finding = comparison.findings()[0]
            misses |= not finding.low <= true <= finding.high
        missed += misses
    assert missed <= 9
    assert finding.high - finding.low < 0.3


def test_the_simulation_decides_at_the_same_unit_as_the_comparison() -> None:
    metric = replace(SHIPPED[5], fault=0.15)
    rng = np.random.default_rng(3)
    chance = np.full(600, 0.25)
    taken = assigned(rng, 1, chance)
    harm = metric.draw(rng, taken)
    end = int(evidence(harm, taken, chance).worse_at(0.05)[0])
    assert 20 < end < 600
    comparison, verdicts = ArmComparison([metric.guard], baseline="old", challenger="new"), []
    for unit in range(end + 1):
        seen = observed("new" if taken[0, unit] else "old", unit, "negative", harm.plain_RN[0, unit])
        comparison.observe([seen], lambda _: {"old": 0.75, "new": 0.25})
        if unit >= end - 1:
            verdicts.append(comparison.findings()[0].is_worse)
    assert verdicts == [False, True]


def test_scores_have_the_difference_as_their_mean_whatever_the_time_and_the_shares() -> None:
    rng = np.random.default_rng(0)
    chance = np.linspace(0.02, 0.6, 500)
    base = np.linspace(0.1, 0.7, 500)
    taken = assigned(rng, 2000, chance)
    harm = (rng.random(taken.shape) < base + 0.2 * taken).astype(np.float64)
    found, _ = score(harm, taken, chance, Mean())
    assert found.score.sum() / (found.weight.sum() * 2000) == pytest.approx(0.2, abs=0.004)
    assert (found.score >= -found.below - 1e-12).all()
    assert (found.score <= found.above + 1e-12).all()


def test_pairs_of_equal_policies_are_rarely_found_worse_and_clear_losses_mostly() -> None:
    rng = np.random.default_rng(0)
    guard = Guard(metric="success", better=Better.HIGHER, margin=0.05)
    solved = rng.beta(2.1, 0.9, (40, 400))
    old = (rng.random(solved.shape) < solved).astype(float)
    for kind in (400, None):
        for fault, most, least in ((0.0, 0.15, 0.0), (0.2, 1.0, 0.8)):
            new = (rng.random(solved.shape) < solved * (1 - fault)).astype(float)
            found = np.mean(
                [
                    compare_pairs(guard, list(zip(a, b, strict=True)), planned=kind).is_worse
                    for a, b in zip(old, new, strict=True)
                ]
            )
            assert least <= found <= most


def test_shares_that_are_kept_are_rarely_called_a_mismatch_and_broken_ones_are() -> None:
    before, after = {"old": 0.9, "new": 0.1}, {"old": 0.5, "new": 0.4, "third": 0.1}
    false = 0
    for seed in range(40):
        rng, test = np.random.default_rng(seed), Mismatch(error_rate=0.05)
        for unit in range(300):
            shares = before if unit < 150 else after
            test.observe(str(rng.choice(list(shares), p=list(shares.values()))), shares)
        false += test.is_mismatched
    assert false <= 6
    broken = Mismatch(error_rate=0.05)
    for _ in range(60):
        broken.observe("new", after)
    assert broken.is_mismatched


def test_a_unit_of_an_arm_without_a_share_is_a_mismatch_at_once() -> None:
    test = Mismatch()
    test.observe("third", {"old": 0.9, "new": 0.1})
    assert test.p_value == 0
    assert test.is_mismatched


def tail(values: Floats, taken: Floats, guard: Guard) -> ArmComparison:
    """A comparison of units with these values."""
    comparison = ArmComparison([guard], baseline="old", challenger="new")
    seen = [
        observed("new" if is_new else "old", unit, guard.metric, value)
        for unit, (value, is_new) in enumerate(zip(values.tolist(), taken.tolist(), strict=True))
    ]
    comparison.observe(seen, lambda _: {"old": 0.5, "new": 0.5})
    return comparison


WORST_TENTH = Guard(metric="reward", better=Better.HIGHER, quantile=0.1, share=0.05)


def test_a_version_that_fails_a_tenth_of_the_units_is_worse_in_the_low_quantile_though_not_in_the_mean() -> None:
    rng = np.random.default_rng(0)
    taken = rng.random(3000) < 0.5
    values = rng.beta(4.2, 1.8, 3000)
    values[taken] = np.where(rng.random(taken.sum()) < 0.1, 0.0, np.minimum(1.0, values[taken] / 0.9))
    mean = Guard(metric="reward", better=Better.HIGHER, margin=0.05)
    assert tail(values, taken, mean).findings()[0].is_fine
    finding = tail(values, taken, WORST_TENTH).findings()[0]
    assert (finding.is_worse, finding.is_fine) == (True, False)
    assert finding.reason.startswith("p10 of reward: ")
    assert 0 < finding.low < 0.1 < finding.high, "the difference of the shares beyond the quantile"


@pytest.mark.parametrize("binary", [True, False])
def test_an_equal_version_rarely_comes_back_by_the_low_quantile_and_is_found_fine(binary: bool) -> None:
    worse = fine = 0
    strict = replace(WORST_TENTH, share=0.0)
    for seed in range(60):
        rng = np.random.default_rng(seed)
        taken, values = rng.random(1500) < 0.5, rng.beta(4.2, 1.8, 1500)
        values = (values < 0.9).astype(np.float64) if binary else values
        worse += tail(values, taken, strict).findings()[0].is_proved
        fine += tail(values, taken, WORST_TENTH).findings()[0].is_fine
    assert worse <= 9
    assert fine >= (50 if binary else 15), "it takes some 1,500 units of both where values differ"


def test_only_units_with_long_prompts_count_for_a_guard_of_those() -> None:
    guard = Guard(metric="tokens", better=Better.HIGHER, quantile=0.25, times=2.0, share=0.15, longest=0.1)
    comparison, rng = ArmComparison([guard], baseline="old", challenger="new"), np.random.default_rng(0)
    for unit in range(1500):
        arm, length = "new" if rng.random() < 0.5 else "old", float(rng.integers(1000))
        tokens = 2.0 if arm == "new" and length > 900 else float(rng.integers(50, 90))
        seen = [observed(arm, unit, "prompt_chars", length), observed(arm, unit, "tokens", tokens)]
        comparison.observe(seen, lambda _: {"old": 0.5, "new": 0.5})
    finding = comparison.findings()[0]
    assert finding.is_worse
    assert 100 < finding.baseline.count + finding.challenger.count < 200
    assert finding.challenger.value == 2.0
