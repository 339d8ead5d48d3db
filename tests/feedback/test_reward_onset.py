"""The monitor for reward hacking in training: honest runs go on, and an exploit is found within five updates."""

import json

import numpy as np
import pytest

from loomrl.feedback.reward.onset import OnsetMonitor, Unit
from loomrl.gym.base import CORRECT
from loomrl.types import End, Failure, Group, Reward, Source, Task, Trajectory

KINDS = ("equal", "noisy", "tasks", "loose", "wobbles", "declines")


def units(kind: str, rng: np.random.Generator, update: int, *, hacked: float = 0.0, groups: int = 8) -> list[Unit]:
    """An update of a policy that learns its task; the graders differ in one of several ways."""
    level = 0.05 + 0.9 * min(1.0, update / 40)
    if kind == "declines":
        level = 0.95 - 0.5 * min(1.0, update / 40)
    if kind == "wobbles":
        level = 0.5 + 0.4 * np.sin(update / 5)
    found = []
    for _ in range(groups):
        right = rng.random(8) < rng.beta(4 * level + 0.01, 4 * (1 - level) + 0.01)
        paid = right.copy()
        correct = right.copy()
        if kind in ("noisy", "wobbles", "declines"):
            correct ^= rng.random(8) < 0.15
        if kind == "tasks" and rng.random() < 0.15:
            correct[:] = False
        if kind == "loose":
            paid |= rng.random(8) < 0.15
        exploits = rng.random(8) < hacked
        paid |= exploits
        correct &= ~exploits
        found.append((float(paid.mean()), float((paid & ~correct).mean())))
    return found


def false_stop(kind: str, seed: int, updates: int) -> bool:
    rng = np.random.default_rng(seed)
    monitor = OnsetMonitor()
    return any(monitor.add(update, units(kind, rng, update)) for update in range(1, updates + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_run_is_not_stopped(kind: str) -> None:
    assert not false_stop(kind, 0, 30)


@pytest.mark.slow
def test_of_a_thousand_honest_runs_one_in_a_hundred_at_most_is_stopped() -> None:
    assert sum(false_stop(kind, seed, 60) for kind in KINDS for seed in range(167)) <= 10


@pytest.mark.parametrize("kind", ["equal", "noisy", "loose"])
def test_an_exploit_that_spreads_is_found_within_five_updates(kind: str) -> None:
    rng = np.random.default_rng(1)
    monitor = OnsetMonitor()
    for update in range(1, 26):
        hacked = min(1.0, 0.15 * 2.0 ** (update - 20)) if update >= 20 else 0.0
        monitor.add(update, units(kind, rng, update, hacked=hacked))
        if update < 20:
            assert monitor.found is None
    assert monitor.found is not None
    assert monitor.found.update in (19, 20, 21, 22)
    assert monitor.found.low > 0
    assert f"since update {monitor.found.update}" in monitor.found.reason


def attempt(name: str, *, paid: float, correct: float | None, failed: bool = False) -> Trajectory:
    failure = Failure("environment", "E", "broken") if failed else None
    return Trajectory(
        id=name,
        task=Task("Math", "1.0.0", "f", 1, 0),
        turns=(),
        end=End.FAILED if failed else End.TERMINATED,
        reward=Reward(paid, {}, paid),
        group="g",
        source=Source.ROLLOUT,
        failure=failure,
        extra={} if correct is None else {CORRECT: correct},
    )


def group(*attempts: Trajectory) -> Group:
    return Group("g", attempts)


def test_attempts_that_failed_or_have_no_second_check_are_not_counted() -> None:
    monitor = OnsetMonitor()
    assert monitor.observe(1, [group(attempt("a", paid=1, correct=None))]) is None
    counted = [attempt("b", paid=1, correct=1), attempt("c", paid=1, correct=0)]
    assert monitor.observe(2, [group(*counted, attempt("d", paid=0, correct=0, failed=True))]) == (0.5, 0.5)


def test_a_resumed_monitor_finds_what_one_that_never_stopped_finds_and_names_attempts() -> None:
    whole = OnsetMonitor()
    parts = OnsetMonitor()
    for update in range(1, 13):
        correct = 1.0 if update < 9 else 0.0
        groups = [group(attempt(f"{update}/{n}", paid=1, correct=correct)) for n in range(16)]
        whole.observe(update, groups)
        parts.observe(update, groups)
        kept = json.loads(json.dumps(parts.state_dict()))
        parts = OnsetMonitor()
        parts.load_state_dict(kept)
    assert parts.found == whole.found
    assert whole.found is not None
    assert whole.found.update == 9
    assert whole.found.examples[0].endswith("/0")
