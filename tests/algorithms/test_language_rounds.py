"""The same seed gives the same weights, however long each environment takes."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.algorithms.language_support import ASCII, build, weights
from tests.algorithms.late_envs import no_pauses

pytestmark = [
    pytest.mark.system,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning"),
]

LATE, LATE_ONCE, LATE_AWAITING = (
    f"tests.algorithms.late_envs:{name}Environment" for name in ("Late", "LateOnce", "LateAwaiting")
)
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "functions, one turn": ("ppo", (LATE_ONCE,)),
    "functions, two turns": ("ppo", (LATE,)),
    "coroutines that wait": ("ppo", (LATE_AWAITING,)),
    "mixed": ("ppo", (LATE_ONCE, LATE, LATE_AWAITING, ASCII)),
    "groups": ("grpo", (LATE, ASCII)),
}


def trained(folder: Path, kind: str, environments: tuple[str, ...]) -> str:
    """Hash of the weights after two updates."""
    changes: dict[str, Any] = {"train.updates": 2, "algorithm.warm_start.steps": 0}
    with no_pauses():
        algo = build(folder, kind, environments=[{"id": id} for id in environments], **changes)
    while algo.stopped is None:
        algo.train()
    found = weights(algo)
    algo.stop()
    return hashlib.sha256(b"".join(name.encode() + found[name].tobytes() for name in sorted(found))).hexdigest()


def test_weights_do_not_depend_on_how_long_functions_take(tmp_path: Path) -> None:
    kind, environments = KINDS["groups"]
    assert len({trained(tmp_path / f"{run}", kind, environments) for run in range(3)}) == 1


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
