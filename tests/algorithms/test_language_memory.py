"""Memories in a training run: one for each group, committed once, and part of the checkpoint."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loomrl.config import EvaluationConfig
from loomrl.types import Trajectory
from tests.algorithms.language_support import ASCII, ENVIRONMENTS, RAY, build, finish, same, stored, train, weights
from tests.algorithms.late_envs import no_pauses

pytestmark = RAY

DIARY = {
    "environments": [{"id": f"{ENVIRONMENTS}DiaryEnvironment"}],
    "rollout.groups_per_update": 4,
    "train.updates": 4,
}


def test_run_that_was_resumed_remembers_what_one_remembers_that_never_stopped(tmp_path: Path) -> None:
    whole = build(tmp_path / "whole", "ppo", **DIARY)
    train(whole)
    finish(build(tmp_path / "parts", "ppo", **DIARY), 3)
    again = build(tmp_path / "parts", "ppo", **DIARY)
    train(again)
    memories = again.source.memories.state_dict()
    assert memories == whole.source.memories.state_dict()
    assert memories["Diary/plain"]["day"] == 4
    assert same(weights(whole), weights(again))


def test_attempts_of_a_group_begin_with_one_memory_that_the_update_before_has_left(tmp_path: Path) -> None:
    finish(build(tmp_path, "ppo", **DIARY))
    updates: dict[int, list[Trajectory]] = {}
    for attempt in stored(tmp_path):
        updates.setdefault(int(attempt.group.split("/")[1]), []).append(attempt)
    begun = {number: [t.task.parameters.get("memory") for t in attempts] for number, attempts in updates.items()}
    assert begun[0] == [None] * 32
    for number in (1, 2):
        assert begun[number] == [begun[number][0]] * 32
        last = [t for t in updates[number - 1] if t.group.endswith("/3")]
        best = max(last, key=lambda t: (t.reward.success, -int(t.id.rpartition("/")[2])))
        assert begun[number][0] == best.extra["memory"]


def test_an_evaluation_begins_without_training_s_memory_goes_on_with_its_own_and_leaves_none(tmp_path: Path) -> None:
    algo = build(tmp_path, "ppo", **DIARY)
    train(algo, 2)
    kept = algo.source.memories.state_dict()
    for _ in range(2):
        attempts = algo.trial("judged", EvaluationConfig(episodes=5, levels=(1,)))
        begun = [attempt.task.parameters.get("memory") for attempt in attempts]
        left: list[Any] = [None]
        for attempt in attempts:
            left.append(attempt.extra["memory"] if attempt.reward.success > 0 else left[-1])
        assert begun == left[:-1]
        assert begun[-1] is not None
    assert algo.source.memories.state_dict() == kept


LATE, LATE_AWAITING = (f"tests.algorithms.late_envs:{name}Environment" for name in ("Late", "LateAwaiting"))
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "functions, two turns": ("ppo", (LATE,)),
    "coroutines that wait": ("ppo", (LATE_AWAITING,)),
    "mixed": ("ppo", (LATE, LATE_AWAITING, ASCII)),
    "groups": ("grpo", (LATE, ASCII)),
}


def trained(folder: Path, kind: str, environments: tuple[str, ...]) -> str:
    """Hash of the weights after two updates."""
    changes: dict[str, Any] = {"train.updates": 2, "algorithm.warm_start.steps": 0}
    with no_pauses():
        algo = build(folder, kind, environments=[{"id": id} for id in environments], **changes)
    found = finish(algo)
    return hashlib.sha256(b"".join(name.encode() + found[name].tobytes() for name in sorted(found))).hexdigest()


def test_weights_do_not_depend_on_how_long_functions_take(tmp_path: Path) -> None:
    kind, environments = KINDS["groups"]
    assert len({trained(tmp_path / f"{run}", kind, environments) for run in range(2)}) == 1


@pytest.fixture
def load() -> Iterator[None]:
    """Eight processes that are busy all the time, behind everything else."""
    busy = [subprocess.Popen(["nice", "-n", "15", sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_ten_runs_beside_a_load_of_eight_end_with_equal_weights(name: str, tmp_path: Path, load: None) -> None:
    assert len({trained(tmp_path / f"{run}", *KINDS[name]) for run in range(10)}) == 1
