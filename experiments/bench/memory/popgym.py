"""popgym's easy environments, where the present observation is not enough: with an LSTM, and without a memory.

The measure is that of its authors: the highest mean return of the latest 100 training episodes, as the policy samples.
Returns go up to 1 in all of them.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch

from loomrl.algorithms.rollout import WINDOW
from loomrl.config import ControlExperiment
from loomrl.errors import ConfigError, unknown
from loomrl.experiments.algorithms import open_algorithm, ray_running
from loomrl.experiments.shipped import resolve
from loomrl.telemetry.progress import progress

BEGIN, END = "popgym-", "Easy-v0"
MEMORIES: Mapping[str, Any] = {"lstm": {"kind": "lstm"}, "none": None}


@dataclass(frozen=True, slots=True)
class Size:
    """Amount of work."""

    seeds: Sequence[int] = (1, 2, 3)
    steps: int | None = None
    """Of each training; None for the shipped ones."""


FULL = Size()
QUICK = Size(seeds=(1,), steps=21_000)


def measure(size: Size, only: Sequence[str] = ()) -> dict[str, Any]:
    """Medians over seeds, by environment and memory; those of every seed under `seeds_runs`."""
    known = environments()
    for name in only:
        if name not in known:
            raise ConfigError("--only: " + unknown("environment", name, list(known)))
    chosen = only or list(known)
    runs: dict[str, dict[str, list[float]]] = {name: {memory: [] for memory in MEMORIES} for name in chosen}
    torch.set_num_threads(1)
    with ray_running(2), progress("bench memory", len(chosen) * len(MEMORIES) * len(size.seeds)) as report:
        done = 0
        for name in chosen:
            for memory in MEMORIES:
                for seed in size.seeds:
                    runs[name][memory].append(_best(known[name], memory, seed, size))
                    report(done := done + 1, f"{name} {memory} {runs[name][memory][-1]:.3f}")
    medians = {
        name: {memory: statistics.median(told) for memory, told in by_memory.items()}
        for name, by_memory in runs.items()
    }
    means = {memory: statistics.mean(median[memory] for median in medians.values()) for memory in MEMORIES}
    return medians | {"mean": means, "seeds_runs": runs}


def environments() -> dict[str, str]:
    """The easy ones that this installation has: name → entry point."""
    try:
        import popgym  # noqa: F401 - it registers them
    except ImportError as error:
        raise ConfigError("popgym is missing: pip install 'loomrl[popgym]'") from error
    easy = [id for id in gymnasium.registry if id.startswith(BEGIN) and id.endswith(END)]
    return {id.removeprefix(BEGIN).removesuffix(END): str(gymnasium.spec(id).entry_point) for id in easy}


def _best(entry_point: str, memory: str, seed: int, size: Size) -> float:
    experiment = resolve(["control/popgym", f"seed={seed}"])
    assert isinstance(experiment, ControlExperiment), "it ships as one"
    changes: dict[str, Any] = {"environment.entry_point": entry_point, "algorithm.network.memory": MEMORIES[memory]}
    experiment = experiment.override(changes | ({} if size.steps is None else {"train.steps": size.steps}))
    algo = open_algorithm(experiment).build_algo()
    means: list[float] = []
    while algo.progress < experiment.train.steps:
        algo.train()
        if len(algo.window.latest) == WINDOW:
            means.append(algo.window.means()[0])
    algo.stop()
    return max(means)
