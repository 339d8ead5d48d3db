"""Time to equal success with rollouts that overlap with learning, against rollouts that alternate with it.

Every contender starts from the same warm-started model, in a process of its own, and runs until its success over
`window` updates is `target`; the time is from its first update to that one. Alternating contenders run once with one
torch thread, like each process of an overlapping one, and once with torch's default number.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loomrl.experiments.bench.rounds import ONE_THREAD, run_part, say
from loomrl.telemetry.metric import PHASES, Metric

MODEL = "language/math_tiny_grpo"


@dataclass(frozen=True, slots=True)
class OverlapSize:
    """The amount of work."""

    warm_steps: int = 1300
    target: float = 0.85
    window: int = 5
    updates: int = 80
    seeds: int = 2


FULL = OverlapSize()
QUICK = OverlapSize(warm_steps=20, target=0.001, window=1, updates=3, seeds=1)

CONTENDERS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
    "sync": ({}, ONE_THREAD),
    "sync_default_threads": ({}, {}),
    "async": ({"hub.max_staleness": 1, "rollout.runners": 1}, ONE_THREAD),
}
"""Each contender's changes of the experiment, and of its process's environment."""
BALANCED = {"algorithm.optimizer.minibatches": 1, "rollout.concurrency": 16}
"""For all contenders: with so few open episodes, engine and learner take about as long."""


def measure(size: OverlapSize = FULL) -> dict[str, Any]:
    """Every figure of `loomrl bench async`."""
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as name:
        folder = Path(name)
        say("warm start")
        _process("warm", folder, {}, size, ONE_THREAD)
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
        for seed in range(1, size.seeds + 1):
            for name, (changes, variables) in CONTENDERS.items():
                found = _process("run", folder, {**changes, "seed": seed}, size, variables)
                say(f"{name}, seed {seed}: {found['seconds']} s, {found['updates']} updates, {found['stopped']}")
                runs[name].append(found)
    return _figures(runs)


def _figures(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Ratios of the sums over the seeds."""
    seconds = {name: sum(run["seconds"] for run in of) for name, of in runs.items()}
    best = min(seconds["sync"], seconds["sync_default_threads"])
    return {
        "async_vs_sync": round(seconds["sync"] / seconds["async"], 3),
        "async_vs_best_sync": round(best / seconds["async"], 3),
        "max_staleness_seen": max(run["max_staleness_seen"] for run in runs["async"]),
        "overlap": round(statistics.mean(run["overlap"] for run in runs["async"]), 3),
        "updates": {name: [run["updates"] for run in of] for name, of in runs.items()},
        "seconds": {name: [run["seconds"] for run in of] for name, of in runs.items()},
        "stopped": {name: [run["stopped"] for run in of] for name, of in runs.items()},
        "phase_s": {name: of[0]["phase_s"] for name, of in runs.items()},
        "threads": {name: of[0]["threads"] for name, of in runs.items()},
        "cores": os.cpu_count(),
    }


def _process(
    what: str, folder: Path, changes: Mapping[str, Any], size: OverlapSize, variables: Mapping[str, str]
) -> dict[str, Any]:
    """The result of a separate process."""
    inherited = {name: value for name, value in os.environ.items() if name not in ONE_THREAD}
    given = json.dumps({"folder": str(folder), "changes": dict(changes), "size": asdict(size)})
    found: dict[str, Any] = run_part("overlap", what, given, env=inherited | dict(variables))
    return found


def _algorithm(folder: Path, name: str, size: OverlapSize, changes: Mapping[str, Any]) -> Any:
    from loomrl.experiments.algorithms import open_algorithm
    from loomrl.experiments.shipped import resolve

    own = folder / name
    own.mkdir()
    experiment = resolve([MODEL]).override(
        {
            "store_url": f"sqlite:///{own}/loom.db",
            "artifact_url": str(own / "artifacts"),
            "train.updates": size.updates,
            "train.checkpoint_every": size.updates,
            "train.stop": {"window": size.window, "target": size.target},
            **BALANCED,
            **changes,
        }
    )
    return open_algorithm(experiment, run=name).build_algo()


def _warm(folder: Path, size: OverlapSize) -> dict[str, Any]:
    """Store the warm-started model."""
    from loomrl.artifacts import open_artifacts

    algo = _algorithm(folder, "warm", size, {"algorithm.warm_start.steps": size.warm_steps})
    algo.begin()
    algo.stop()
    copy = open_artifacts(str(folder / "warm" / "artifacts")).get_folder("runs/warm/000000", folder / "checkpoint")
    (copy / "model").rename(folder / "model")
    return {}


def _run(folder: Path, size: OverlapSize, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Train until the target; returns time and updates."""
    import torch

    begin = {"algorithm.model.path": str(folder / "model"), "algorithm.model.build": None}
    name = f"run-{os.getpid()}"
    algo = _algorithm(folder, name, size, {**begin, "algorithm.warm_start.steps": 0, **changes})
    algo.begin()
    history: list[Mapping[str, float]] = []
    ends: list[float] = []

    def listen(done: int, metrics: Mapping[str, float]) -> None:
        history.append(dict(metrics))
        ends.append(time.perf_counter())

    algo.listen = listen
    begun = time.perf_counter()
    while algo.stopped is None:
        algo.train()
    algo.stop()
    names = [*PHASES, Metric.TIME_ENGINE, Metric.TIME_ENGINE_IDLE, Metric.TIME_QUEUE]
    settled = history[2:] or history
    return {
        "seconds": round(ends[-1] - begun, 2),
        "updates": len(history),
        "stopped": algo.stopped,
        "threads": torch.get_num_threads(),
        "max_staleness_seen": max(line[Metric.STALENESS_MAX] for line in history),
        "overlap": statistics.mean(line.get(Metric.OVERLAP, 0.0) for line in settled),
        "phase_s": {
            name.value.removeprefix("time/"): round(statistics.median(line[name] for line in settled), 3)
            for name in names
            if name in settled[0]
        },
    }


def main() -> None:
    """One part, in this process: `warm` or `run`, with the changes."""
    from loomrl.experiments.algorithms import ray_running

    what = sys.argv[1]
    given = json.loads(sys.argv[2])
    folder = Path(given["folder"])
    size = OverlapSize(**given["size"])
    with ray_running(2):
        found = _warm(folder, size) if what == "warm" else _run(folder, size, given["changes"])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
