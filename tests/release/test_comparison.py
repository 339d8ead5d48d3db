"""The comparison of two arms: invariances, bad input, and that guards find what was planted."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.config.release import ReleasePlan
from loomrl.errors import ConfigError
from loomrl.release.comparison import ArmComparison
from loomrl.release.controller import ReleaseEvidenceLog
from loomrl.release.guard import MEANINGS, OUTCOMES, USERS, WORDS, Better, Finding, Guard, silences, unobserved
from loomrl.release.paired import compare_pairs
from loomrl.release.passage import guards_of
from loomrl.release.planning import Effect, plan_size
from loomrl.store.observations import Observation
from tests.release.release_support import observed

GUARDS = (
    Guard(metric="success", better=Better.HIGHER, margin=0.05),
    Guard(metric="error", better=Better.LOWER, margin=0.03),
    Guard(metric="latency_s", better=Better.LOWER, quantile=0.95, times=1.25),
    Guard(metric="negative", better=Better.LOWER, times=2.0),
    Guard(metric="reward", better=Better.HIGHER, low=-1.0, high=3.0, margin=0.2),
)
SHARES = {1: {"stable": 0.9, "canary": 0.1}, 2: {"stable": 0.75, "canary": 0.25}, 3: {"stable": 0.5, "canary": 0.5}}


def made(seed: int, count: int, *, harm: float = 0.0) -> list[Observation]:
    """A ramp of `count` units; `harm` makes the canary worse in everything."""
    rng = np.random.default_rng(seed)
    found = []
    for unit in range(count):
        revision = 1 + 3 * unit // count
        arm = "canary" if rng.random() < SHARES[revision]["canary"] else "stable"
        loss = harm if arm == "canary" else 0.0
        values = {
            "success": float(rng.random() < 0.7 - loss),
            "error": float(rng.random() < 0.02 + loss),
            "latency_s": float(rng.lognormal(5 * loss, 0.5)),
            "negative": float(rng.random() < 0.05 + loss),
            "reward": float(rng.normal(1 - 4 * loss, 0.5)),
        }
        found += [observed(arm, unit, metric, value, revision=revision) for metric, value in values.items()]
    return found


def compared(
    observations: Sequence[Observation],
    *,
    guards: Sequence[Guard] = GUARDS,
    shares: Mapping[int, Mapping[str, float]] = SHARES,
    cuts: Sequence[int] = (),
) -> tuple[Finding, ...]:
    comparison = ArmComparison(guards, baseline="stable", challenger="canary")
    edges = [0, *sorted(cuts), len(observations)]
    for begin, end in itertools.pairwise(edges):
        comparison.observe(observations[begin:end], shares.__getitem__)
        comparison.findings()
    return comparison.findings()


def test_a_canary_worse_in_everything_is_found_worse_in_everything() -> None:
    findings = compared(made(0, 3000, harm=0.15))
    assert all(each.is_worse and not each.is_fine for each in findings)
    assert all((each.high < 0) if each.guard.better is Better.HIGHER else (each.low > 0) for each in findings)


def test_an_equal_canary_is_found_fine_and_not_worse() -> None:
    findings = compared(made(1, 12000))
    assert all(each.is_fine and not each.is_worse for each in findings)
    assert all(each.low < 0 < each.high for each in findings)


@pytest.mark.parametrize(
    ("unit_s", "margin", "is_worse"), [(0.005, 0.0, True), (0.005, 0.01, False), (0.5, 0.01, True)]
)
def test_a_quantile_may_be_a_little_higher_however_many_times_that_is(
    unit_s: float, margin: float, is_worse: bool
) -> None:
    """A hop to another host is half of a call of five milliseconds, and nothing to one of half a second."""
    rng, found = np.random.default_rng(5), []
    for unit in range(3000):
        arm = "canary" if rng.random() < 0.1 else "stable"
        found.append(observed(arm, unit, "latency_s", unit_s * rng.lognormal(0.5 if arm == "canary" else 0.0, 0.1)))
    guard = Guard(metric="latency_s", better=Better.LOWER, high=120.0, quantile=0.95, times=1.25, margin=margin)
    (finding,) = compared(found, guards=[guard])
    assert finding.is_proved
    assert finding.is_worse is is_worse


@settings(max_examples=8)
@given(st.lists(st.integers(0, 1500), max_size=6), st.integers(0, 5))
def test_results_do_not_depend_on_how_observations_are_cut_into_batches(cuts: list[int], seed: int) -> None:
    observations = made(seed, 300, harm=0.05)
    assert compared(observations, cuts=cuts) == compared(observations)


def test_a_swap_of_the_arms_mirrors_the_difference_and_its_bounds() -> None:
    observations = made(2, 1500, harm=0.05)
    swapped = ArmComparison(GUARDS[:1], baseline="canary", challenger="stable")
    swapped.observe(observations, SHARES.__getitem__)
    here, there = compared(observations, guards=GUARDS[:1])[0], swapped.findings()[0]
    assert (there.difference, there.low, there.high) == pytest.approx(
        (-here.difference, -here.high, -here.low), abs=1e-6
    )
    assert (there.baseline, there.challenger) == (here.challenger, here.baseline)


def test_other_arms_metrics_and_revisions_without_one_of_the_arms_change_nothing() -> None:
    observations = made(3, 300)
    strange = [replace(each, arm="third") for each in observations[:50]]
    strange += [replace(each, metric="unknown", unit=each.unit + 10**6) for each in observations[:50]]
    strange += [replace(each, revision=9, unit=each.unit + 10**6) for each in observations[:50]]
    shares = SHARES | {9: {"stable": 1.0, "canary": 0.0}}
    assert compared([*strange, *observations], shares=shares) == compared(observations)


def test_a_third_arm_does_not_change_the_chances_of_the_two() -> None:
    thirds = {number: {**{a: s / 2 for a, s in each.items()}, "third": 0.5} for number, each in SHARES.items()}
    assert compared(made(4, 300), shares=thirds) == compared(made(4, 300))


def test_a_unit_counts_once_in_each_metric_whatever_it_does_later() -> None:
    observations = made(5, 200)
    again = [replace(each, value=1.0 - each.value, arm="canary", revision=3) for each in observations]
    assert compared([*observations, *again]) == compared(observations)


def test_values_that_are_not_finite_are_counted_aside_and_those_beyond_the_bounds_as_the_bound() -> None:
    observations = made(6, 100)
    reward = next(each for each in observations if each.metric == "reward")
    odd = [replace(reward, unit=10**6 + place, value=value) for place, value in enumerate((math.nan, math.inf, 99.0))]
    comparison = ArmComparison(GUARDS, baseline="stable", challenger="canary")
    comparison.observe([*observations, *odd], SHARES.__getitem__)
    assert comparison.not_finite == {"reward": 2}
    assert comparison.clipped["reward"] == 1 + sum(
        not -1 <= each.value <= 3 for each in observations if each.metric == "reward"
    )
    bound = [*observations, replace(odd[2], value=3.0)]
    assert comparison.findings() == compared(bound)


def test_equal_values_and_no_values_end_in_no_verdict_too_early() -> None:
    assert all(not each.is_worse and not each.is_fine and each.low < 0 < each.high for each in compared([]))
    ones = [replace(each, value=1.0) for each in made(7, 60) if each.metric == "success"]
    finding = compared(ones)[0]
    assert not finding.is_worse
    assert not finding.is_fine
    assert finding.low < 0 < finding.high
    assert finding.difference == pytest.approx(0, abs=0.05)


def test_a_share_of_a_thousandth_is_compared_without_a_false_verdict() -> None:
    rng = np.random.default_rng(0)
    found = [
        observed("canary" if rng.random() < 0.001 else "stable", unit, "error", rng.random() < 0.02)
        for unit in range(4000)
    ]
    (finding,) = compared(found, guards=GUARDS[1:2], shares={1: {"stable": 0.999, "canary": 0.001}})
    assert not finding.is_worse
    assert not finding.is_fine


@pytest.mark.parametrize(
    ("guard", "said"),
    [
        (Guard(metric="reward", better=Better.HIGHER, low=1.0), "low=1.0 must be below"),
        (Guard(metric="reward", better=Better.HIGHER, margin=-1.0), "margin=-1.0"),
        (Guard(metric="reward", better=Better.HIGHER, times=2.0), "lower is better"),
        (Guard(metric="error", better=Better.LOWER, times=0.5), "times=0.5"),
        (Guard(metric="error", better=Better.LOWER, times=2.0, margin=0.1), "instead of margin=0.1"),
        (Guard(metric="error", better=Better.LOWER, times=2.0, low=-1.0), "low=0"),
        (Guard(metric="latency_s", better=Better.LOWER, quantile=95.0), "quantile=95.0"),
    ],
)
def test_a_guard_that_contradicts_itself_is_named(guard: Guard, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ArmComparison([guard], baseline="stable", challenger="canary")


def test_an_arm_is_not_compared_with_itself_and_an_error_rate_is_a_share() -> None:
    with pytest.raises(ConfigError, match="same arm"):
        ArmComparison(GUARDS, baseline="stable", challenger="stable")
    with pytest.raises(ConfigError, match="error_rate=5"):
        ArmComparison(GUARDS, baseline="stable", challenger="canary", error_rate=5)


def test_pairs_know_no_quantile_and_no_value_that_is_not_finite() -> None:
    with pytest.raises(ConfigError, match=r"quantile=0\.95"):
        compare_pairs(GUARDS[2], [(0.1, 0.2)])
    with pytest.raises(ConfigError, match="pair 1 is"):
        compare_pairs(GUARDS[0], [(1.0, 0.0), (math.nan, 1.0)])
    with pytest.raises(ConfigError, match="planned=0"):
        compare_pairs(GUARDS[0], [(1.0, 0.0)], planned=0)
    assert not compare_pairs(GUARDS[0], []).is_fine


def test_a_plan_grows_with_the_square_of_a_smaller_effect_and_says_what_it_cannot_find() -> None:
    large, small = (plan_size(Effect(mean=0.7, difference=-each)) for each in (0.2, 0.1))
    assert 3 < small.challenger / large.challenger < 5.5
    assert plan_size(Effect(mean=0.7, difference=0.2), share=0.1).challenger < large.challenger
    assert plan_size(Effect(mean=0.7, difference=-0.1, deviation=0.1)).challenger < small.challenger / 4
    with pytest.raises(ConfigError, match="both means"):
        plan_size(Effect(mean=0.7, difference=0.4))
    with pytest.raises(ConfigError, match=r"share=1\.5"):
        plan_size(Effect(mean=0.7, difference=0.1), share=1.5)


# -- guards without observations ---------------------------------------------------------------------------------------

PLAN = ReleasePlan()


def observed_in(*metrics: str) -> ReleaseEvidenceLog:
    """A release whose two versions were observed in these."""
    trail = ReleaseEvidenceLog(PLAN, first_revision=1, shares={1: {"stable": 0.5, "canary": 0.5}})
    for metric in metrics:
        trail.take([observed(arm, unit, metric, unit) for unit, arm in enumerate(("stable", "canary") * 30)])
    return trail


def test_metrics_that_nobody_reports_are_named_by_what_goes_unseen() -> None:
    words = ("prompt_chars", "tokens", "empty", "refusal", "entropy")
    found = silences(observed_in("error", "latency_s", "violation", "later", *words).findings())
    assert [(each.metrics, each.meaning) for each in found] == [
        (("reward", "success", "negative"), OUTCOMES),
        (("unearned",), MEANINGS["unearned"]),
        (("reward_of_user", "success_of_user"), USERS),
    ]
    assert str(found[0]).startswith("reward, success, negative: neither outcomes nor feedback")


def test_one_kind_of_outcome_is_enough_to_know_how_good_answers_are() -> None:
    found = silences(observed_in("error", "latency_s", "violation", "later", "success", "success_of_user").findings())
    assert [each.metrics for each in found] == [("empty", "tokens", "refusal", "entropy"), ("unearned",)]
    assert found[0].meaning == WORDS


def test_prompts_of_one_length_leave_answers_to_long_ones_unseen() -> None:
    trail = observed_in("tokens")
    trail.take([observed(arm, unit, "prompt_chars", 9.0) for unit, arm in enumerate(("stable", "canary") * 30)])
    assert "p25 of tokens, longest 10 % of prompts" in [each.metrics[0] for each in silences(trail.findings())]


def test_before_anything_was_observed_every_guard_is_named_once() -> None:
    guards = guards_of(PLAN)
    named = [metric for each in unobserved(guards, set()) for metric in each.metrics]
    assert sorted(named) == sorted({guard.metric for guard in guards})
