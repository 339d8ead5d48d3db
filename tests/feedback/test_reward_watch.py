"""The watch: it believes nothing that chance does, and finds components that part ways."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from loomrl.config import RewardWatch
from loomrl.feedback.reward.watch import LADDER, HackingWatch, alarms, movements
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.rewards import StoredReward, store_rewards

Draw = Callable[[np.random.Generator, float, int], NDArray[np.float64]]
RATES = dict(zip(LADDER, (0.3, 0.9, 0.2, 1.0), strict=True))
"""Share of the trajectories with a score: most people say nothing."""
MEANS = dict(zip(LADDER, (0.7, 0.5, 0.8, 0.5), strict=True))


def thumbs(rng: np.random.Generator, mean: float, count: int) -> NDArray[np.float64]:
    return (rng.random(count) < mean).astype(np.float64)


def skewed(rng: np.random.Generator, mean: float, count: int) -> NDArray[np.float64]:
    """Nearly always the same, and rarely far from it."""
    return np.where(rng.random(count) < 0.02, 1 - round(mean), mean)


def smooth(rng: np.random.Generator, mean: float, count: int) -> NDArray[np.float64]:
    return np.clip(rng.normal(mean, 0.2, count), 0, 1)


def windows(
    rng: np.random.Generator, draw: Draw, size: int, count: int, change: Mapping[str, float], since: int
) -> list[dict[str, Sequence[float]]]:
    """Windows of scores; from one on the means are others."""
    return [
        {
            name: draw(rng, mean + (change.get(name, 0.0) if number >= since else 0.0), rng.binomial(size, RATES[name]))
            for name, mean in MEANS.items()
        }
        for number in range(count)
    ]


def moved(found: list[dict[str, Sequence[float]]], *, reference: int = 4) -> list[tuple[bool, list[str]]]:
    """Window by window: whether anything moved, and the alarms."""
    looks = []
    for number in range(1, len(found)):
        past = found[max(0, number - reference) : number]
        before = {name: np.concatenate([each[name] for each in past]) for name in LADDER}
        seen = movements(before, found[number], number=number, error_rate=0.05)
        looks.append((any(one.rises or one.falls for one in seen), [alarm.reason for alarm in alarms(seen)]))
    return looks


def false_rate(draw: Draw, runs: int, *, size: int, count: int, change: Mapping[str, float] | None = None) -> float:
    """Share of watches in which anything was found that is not so: a movement, or with a change, an alarm."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(runs):
        looks = moved(windows(rng, draw, size, count, change or {}, since=4))
        wrong += any(alarm if change else is_moved for is_moved, alarm in looks)
    return wrong / runs


ONE_MOVES = [{"user_feedback": -0.3}, {"task_completion": 0.3}, {"task_completion": 0.3, "user_feedback": 0.2}]


@pytest.mark.parametrize("draw", [thumbs, skewed, smooth])
def test_what_stays_is_hardly_ever_found_to_move(draw: Draw) -> None:
    assert false_rate(draw, 15, size=150, count=8) <= 0.07, "at most one of these few"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("draw", [thumbs, skewed, smooth])
def test_over_many_watches_what_stays_is_found_to_move_within_the_error_rate(draw: Draw) -> None:
    assert false_rate(draw, 200, size=200, count=20) <= 0.05


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("change", ONE_MOVES)
def test_over_many_watches_alarms_are_false_within_the_error_rate(change: Mapping[str, float]) -> None:
    assert false_rate(thumbs, 200, size=200, count=12, change=change) <= 0.05


@pytest.mark.parametrize("change", ONE_MOVES)
def test_components_that_move_alone_or_together_raise_no_alarm(change: Mapping[str, float]) -> None:
    rng = np.random.default_rng(1)
    looks = moved(windows(rng, thumbs, 600, 6, change, since=4))
    assert [is_moved for is_moved, _ in looks[3:4]] == [True], "it is seen, and it is no hacking"
    assert not any(alarm for _, alarm in looks)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"task_completion": 0.2, "user_feedback": -0.2}, "user_feedback falls .* task_completion rises"),
        ({"efficiency": 0.2, "task_completion": -0.2}, "task_completion falls .* efficiency rises"),
        ({"code_quality": 0.15, "user_feedback": -0.2}, "user_feedback falls .* code_quality rises"),
    ],
)
def test_planted_hacking_is_found_in_its_first_window(change: Mapping[str, float], reason: str) -> None:
    import re

    rng = np.random.default_rng(2)
    found = 0
    for _ in range(4):
        before, at, *_ = [alarm for _, alarm in moved(windows(rng, thumbs, 1000, 7, change, since=5))][3:]
        assert not before
        found += any(re.search(reason, alarm) for alarm in at)
    assert found == 4


def test_what_is_hard_to_please_may_rise_while_what_is_easy_falls() -> None:
    rng = np.random.default_rng(3)
    looks = moved(windows(rng, thumbs, 1000, 6, {"task_completion": -0.2, "user_feedback": 0.2}, since=4))
    assert any(is_moved for is_moved, _ in looks)
    assert not any(alarm for _, alarm in looks)


def test_without_enough_scores_nothing_is_compared() -> None:
    few = {"user_feedback": [0.0] * 29, "task_completion": [1.0] * 500}
    many = {"user_feedback": [1.0] * 500, "task_completion": [0.0] * 500}
    assert [one.component for one in movements(many, few, number=1, error_rate=0.05)] == ["task_completion"]
    assert movements({}, few, number=1, error_rate=0.05) == []


def rewards(start: int, count: int, *, completion: float, feedback: float) -> list[StoredReward]:
    place = StoredReward(id="", trajectory="", endpoint="talk", task="a", total=0.5, confidence=1.0, created_at=1.0)
    first = {"task_completion": completion, "user_feedback": feedback}
    return [replace(place, id=f"r{n}", trajectory=f"t{n}", first=first) for n in range(start, start + count)]


def test_every_full_window_is_looked_at_once_whoever_watches(store: LoomDB) -> None:
    settings = RewardWatch(window=50, reference=2)
    one, other = HackingWatch(store, "talk", settings), HackingWatch(store, "talk", settings)
    store_rewards(store, rewards(0, 150, completion=0.0, feedback=1.0))
    assert one.look(at=1.0) == other.look(at=1.0) == []
    store_rewards(store, rewards(150, 51, completion=1.0, feedback=0.0))
    (alarm,) = HackingWatch(store, "talk", settings).look(at=2.0)
    assert (alarm.falls.component, alarm.rises.component) == ("user_feedback", "task_completion")
    assert (alarm.falls.before, alarm.falls.now, alarm.falls.count_before) == (1.0, 0.0, 100)
    assert one.look(at=3.0) == other.look(at=3.0) == []
    ((_, event),) = EVENTS.read(store, kind="reward.alarm")
    assert (event.subject, event.data["window"], event.data["from"], event.data["to"]) == ("talk", 3, 151, 200)
    assert event.data["reason"] == alarm.reason
