"""Control algorithms at equal work: LoomRL's, RLlib's with its defaults, and Stable-Baselines3 if it is installed.

Every contender runs in a process of its own, one after the other, round after round, with one torch thread.
"""

import importlib.util
import json
import os
import statistics
from dataclasses import dataclass
from typing import Any

from loomrl.experiments.bench.rounds import ONE_THREAD, machine, run_part, spread
from loomrl.telemetry.progress import progress


@dataclass(frozen=True, slots=True)
class Match:
    """One comparison: LoomRL's contender, another library's, and the task."""

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
class ControlSize:
    """The amount of work."""

    rounds: int
    steps: dict[str, int]
    """Measured steps, by task."""


FULL = ControlSize(rounds=3, steps={"ppo": 40_960, "sac": 600, "array": 393_216, "slow": 8192})
QUICK = ControlSize(rounds=1, steps={"ppo": 1024, "sac": 20})
BEFORE = {"ppo": 4096, "sac": 2000, "array": 131_072, "slow": 1024}
"""Steps before those that are measured; after some 800 an optimizer of SAC has met denormal numbers."""


def measure(size: ControlSize) -> dict[str, Any]:
    """Ratios of CPU rates, ours over theirs: median, lowest and highest over the rounds; and every rate's median."""
    matches = [match for match in MATCHES if match.other != "sb3" or importlib.util.find_spec("stable_baselines3")]
    runs = sorted({(who, match.work, match.environments) for match in matches for who in ("ours", match.other)})
    runs += [("ours", "array", 1024)] if "array" in size.steps else []
    told: dict[tuple[str, str, int], list[dict[str, float]]] = {run: [] for run in runs}
    with progress("bench control", size.rounds * len(runs)) as report:
        for done in range(size.rounds):
            for index, run in enumerate(runs, 1):
                told[run].append(_contend(*run, size))
                report(done * len(runs) + index, "_".join(map(str, run)))
    figures: dict[str, Any] = {}
    for match in matches:
        ours = told["ours", match.work, match.environments]
        theirs = told[match.other, match.work, match.environments]
        ratios = [_rate(one) / _rate(other) for one, other in zip(ours, theirs, strict=True)]
        figures |= spread(match.key, ratios)
    for (who, work, environments), each in told.items():
        figures[f"{who}_{work}_{environments}"] = {
            "steps_per_cpu_s": round(statistics.median(map(_rate, each))),
            "steps_per_s": round(statistics.median(one["steps"] / one["wall_s"] for one in each)),
            "peak_mb": round(statistics.median(one["peak_mb"] for one in each)),
        }
    figures |= _runners(size)
    figures["machine"] = machine()
    return figures


def _runners(size: ControlSize) -> dict[str, Any]:
    """Steps per second of wall time with two runners over none, with steps of a millisecond."""
    if "slow" not in size.steps:
        return {}
    ratios = []
    with progress("bench control, runners", size.rounds) as report:
        for done in range(1, size.rounds + 1):
            two, alone = (_contend(who, "slow", 8, size) for who in ("two", "alone"))
            ratios.append((two["steps"] / two["wall_s"]) / (alone["steps"] / alone["wall_s"]))
            report(done)
    return spread("two_runners_speedup", ratios)


def _contend(who: str, work: str, environments: int, size: ControlSize) -> dict[str, float]:
    """CPU seconds, seconds, steps and memory of a contender."""
    before = min(BEFORE[work], 4 * size.steps[work])
    numbers = {"environments": environments, "before": before, "steps": size.steps[work]}
    return _script("contender", f"{who}_{work}", json.dumps(numbers))


def _script(module: str, *words: str) -> dict[str, float]:
    found: dict[str, float] = run_part(f"control.{module}", *words, env=os.environ | ONE_THREAD)
    return found


def _rate(told: dict[str, float]) -> float:
    return told["steps"] / told["cpu_s"]
