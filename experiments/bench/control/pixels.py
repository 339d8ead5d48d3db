"""PPO on a game of Atari at equal work: LoomRL's, and CleanRL's with envpool.

Both play eight games of Breakout, 128 steps of each an update, four passes in minibatches of 256, with the same
convolutions and 512 features, one torch thread. CleanRL's script is run as it is, twice: the CPU time of a short run is
taken off that of a longer one, so that neither pays for imports.
"""

import importlib.util
import os
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.bench.control.contender import BATCH, EPOCHS, FRAGMENT
from loomrl.experiments.bench.control.measure import contend
from loomrl.telemetry.progress import progress

GAMES = 8


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work."""

    rounds: int
    updates: int
    """Measured ones, after a first that is not."""


FULL = Size(rounds=5, updates=4)
QUICK = Size(rounds=1, updates=1)


def measure(size: Size, cleanrl: Path | None = None) -> dict[str, Any]:
    """Steps per second of CPU time, medians over the rounds; ours over theirs if there is their script."""
    if importlib.util.find_spec("ale_py") is None:
        raise ConfigError("ale_py is missing: pip install ale-py")
    ours: list[float] = []
    theirs: list[float] = []
    with progress("bench pixels", size.rounds) as report:
        for done in range(1, size.rounds + 1):
            steps = size.updates * GAMES * FRAGMENT
            told = contend("ours_pixels", environments=GAMES, before=GAMES * FRAGMENT, steps=steps)
            ours.append(told["steps"] / told["cpu_s"])
            if cleanrl is not None:
                theirs.append(_cleanrl_rate(cleanrl, size.updates))
            report(done, f"{ours[-1]:.0f} steps per CPU second")
    figures: dict[str, Any] = {"ours_steps_per_cpu_s": statistics.median(ours)}
    if theirs:
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        figures["cleanrl_steps_per_cpu_s"] = statistics.median(theirs)
        figures |= {
            "pixels_vs_cleanrl": statistics.median(ratios),
            "pixels_vs_cleanrl_range": [min(ratios), max(ratios)],
        }
    return figures


def _cleanrl_rate(script: Path, updates: int) -> float:
    steps = GAMES * FRAGMENT
    return updates * steps / (_cleanrl_cpu_s(script, (1 + updates) * steps) - _cleanrl_cpu_s(script, steps))


def _cleanrl_cpu_s(script: Path, steps: int) -> float:
    """CPU seconds of one run of the script."""
    words = {"num-envs": GAMES, "num-steps": FRAGMENT, "update-epochs": EPOCHS, "total-timesteps": steps}
    words["num-minibatches"] = GAMES * FRAGMENT // BATCH
    command = [sys.executable, str(script.resolve()), "--no-cuda"]
    command += [word for name, value in words.items() for word in (f"--{name}", str(value))]
    before = _children_cpu_s()
    with TemporaryDirectory(prefix="loomrl-cleanrl-") as folder:
        one_thread = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=one_thread, cwd=folder, check=False)
    if done.returncode:
        raise LoomError(f"{script} ended with {done.returncode}: {done.stderr.strip()[-800:]}")
    return _children_cpu_s() - before


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
