"""Control algorithms at equal work: ours, RLlib as it comes, and Stable-Baselines3 where it is installed.

Every contender runs in a process of its own, one after the other, round after round, with one torch thread.
"""

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from loomrl.errors import LoomError
from loomrl.telemetry.progress import progress


@dataclass(frozen=True, slots=True)
class Match:
    """One comparison: the contender of ours, that of others, and the work."""

    key: str
    work: str
    other: str
    environments: int


MATCHES = (
    Match("ppo_vs_sb3", "ppo", "sb3", 8),
    Match("ppo_vs_rllib", "ppo", "rllib", 8),
    Match("ppo32_vs_rllib", "ppo", "rllib", 32),
    Match("sac_vs_sb3", "sac", "sb3", 1),
    Match("sac_vs_rllib", "sac", "rllib", 1),
)


@dataclass(frozen=True, slots=True)
class Size:
    """How much of it."""

    rounds: int
    steps: dict[str, int]
    """Measured ones, by work."""


FULL = Size(rounds=3, steps={"ppo": 40_960, "sac": 600})
QUICK = Size(rounds=1, steps={"ppo": 1024, "sac": 20})
BEFORE = {"ppo": 4096, "sac": 400}


def measure(size: Size) -> dict[str, Any]:
    """Ratios of CPU rates, ours over theirs: median, lowest and highest over the rounds; and every rate's median."""
    matches = [match for match in MATCHES if match.other != "sb3" or importlib.util.find_spec("stable_baselines3")]
    runs = sorted({(who, match.work, match.environments) for match in matches for who in ("ours", match.other)})
    told: dict[tuple[str, str, int], list[dict[str, float]]] = {run: [] for run in runs}
    with progress("bench control", size.rounds * len(runs)) as report:
        for done in range(size.rounds):
            for index, run in enumerate(runs, 1):
                told[run].append(_contend(*run, size))
                report(done * len(runs) + index, "_".join(map(str, run)))
    figures: dict[str, Any] = {}
    for match in matches:
        ours, theirs = told["ours", match.work, match.environments], told[match.other, match.work, match.environments]
        ratios = [_rate(one) / _rate(other) for one, other in zip(ours, theirs, strict=True)]
        figures[match.key] = round(statistics.median(ratios), 2)
        figures[f"{match.key}_range"] = [round(min(ratios), 2), round(max(ratios), 2)]
    for (who, work, environments), each in told.items():
        figures[f"{who}_{work}_{environments}"] = {
            "steps_per_cpu_s": round(statistics.median(_rate(one) for one in each)),
            "steps_per_s": round(statistics.median(one["steps"] / one["wall_s"] for one in each)),
            "peak_mb": round(statistics.median(one["peak_mb"] for one in each)),
        }
    figures["machine"] = {"cores": os.cpu_count(), "system": platform.platform()}
    return figures


def _contend(who: str, work: str, environments: int, size: Size) -> dict[str, float]:
    numbers = {
        "environments": environments,
        "before": min(BEFORE[work], 4 * size.steps[work]),
        "steps": size.steps[work],
    }
    script = [sys.executable, "-m", "experiments.bench_contender", f"{who}_{work}", json.dumps(numbers)]
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(script, capture_output=True, text=True, env=os.environ | one_thread, check=False)
    if done.returncode:
        raise LoomError(f"{who}_{work} ended with {done.returncode}: {done.stderr.strip()[-800:]}")
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def _rate(told: dict[str, float]) -> float:
    return told["steps"] / told["cpu_s"]
