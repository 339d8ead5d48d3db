"""The comparison of two arms: invariances, bad input, and that guards find what was planted."""

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loomrl.release.comparison import Comparison
from loomrl.release.guard import Better, Finding, Guard
from loomrl.store.observations import Observation

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
        for metric, value in values.items():
            found.append(Observation(revision=revision, arm=arm, unit=unit, metric=metric, value=value, at=unit))
    return found


def compared(observations: Sequence[Observation], *, cuts: Sequence[int] = ()) -> tuple[Finding, ...]:
    comparison = Comparison(GUARDS, baseline="stable", challenger="canary")
    edges = [0, *sorted(cuts), len(observations)]
    for begin, end in itertools.pairwise(edges):
        comparison.observe(observations[begin:end], SHARES.__getitem__)
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


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 1500), max_size=6), st.integers(0, 5))
def test_results_do_not_depend_on_how_observations_are_cut_into_batches(cuts: list[int], seed: int) -> None:
    observations = made(seed, 300, harm=0.05)
    assert compared(observations, cuts=cuts) == compared(observations)
