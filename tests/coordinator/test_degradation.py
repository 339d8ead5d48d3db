"""A policy that earns less than it did is found; one that does not is hardly ever."""

import random

import pytest

from loomrl.config.loop import Degradation
from loomrl.coordinator.degradation import DegradationWatch, fall_of
from loomrl.store import LoomDB
from loomrl.store.rewards import StoredReward, store_rewards

SETTINGS = Degradation(window=60)


def rewards(rng: random.Random, mean: float, count: int) -> list[float]:
    return [min(1.0, max(0.0, rng.gauss(mean, 0.2))) for _ in range(count)]


def test_fall_beyond_the_margin_is_found_and_a_smaller_one_is_none() -> None:
    rng = random.Random(0)
    baseline = rewards(rng, 0.7, 300)
    found = fall_of("r/1", baseline, rewards(rng, 0.5, 300), Degradation(), window=1, position=9)
    assert (found.policy, found.position) == ("r/1", 9)
    assert found.high < 0
    assert found.before - found.now == pytest.approx(0.2, abs=0.05)
    assert fall_of("r/1", baseline, rewards(rng, 0.64, 300), Degradation(), window=1, position=9) is None
    assert fall_of("r/1", baseline, rewards(rng, 0.85, 300), Degradation(), window=1, position=9) is None


def test_few_rewards_that_happen_to_be_low_prove_nothing() -> None:
    rng = random.Random(1)
    alarms = 0
    for _ in range(100):
        values = [rewards(rng, 0.5, 30) for _ in range(4)]
        found = [fall_of("r/1", values[0], late, Degradation(window=30, margin=0.01), window=k, position=0)
                 for k, late in enumerate(values[1:], 1)]  # fmt: skip
        alarms += any(found)
    assert alarms <= 5


def made(policy: str, value: float, number: int, *, again: int = 0) -> StoredReward:
    return StoredReward(
        id=f"{policy}-{number}-{again}",
        trajectory=f"{policy}-{number}",
        endpoint="e",
        task="",
        total=0.5,
        confidence=1.0,
        content={"raw": value, "versions": [policy]},
        created_at=float(number),
    )


def test_watch_follows_the_policy_in_production_alone_and_waits_for_late_feedback(store: LoomDB) -> None:
    rng = random.Random(2)
    watch = DegradationWatch(store, "e", SETTINGS)
    store_rewards(store, [made("r/1", value, at) for at, value in enumerate(rewards(rng, 0.8, 60))])
    store_rewards(store, [made("r/2", value, at) for at, value in enumerate(rewards(rng, 0.1, 200))])
    assert watch.look("r/1", after=0) is None
    assert watch.means == []
    store_rewards(store, [made("r/1", value, 60 + at) for at, value in enumerate(rewards(rng, 0.5, 120))])
    assert watch.means == []
    found = watch.look("r/1", after=0)
    assert len(watch.means) == 2
    assert found.now == pytest.approx(0.5, abs=0.1)
    liked = [made("r/1", 1.0, 120 + at, again=1) for at in range(60)]
    store_rewards(store, liked)
    store_rewards(store, [made("r/1", 0.5, 180 + at) for at in range(60)])
    watch.look("r/1", after=0)
    assert watch.means[2] == pytest.approx(1.0)
    assert watch.look("r/2", after=0) is None
    assert watch.means[0] == pytest.approx(0.1, abs=0.1)
