"""One steerable language policy against a policy for every preference, and against mixed weights, at equal samples, on
two tasks: right against short (Math), and helpful against polite in few words (Dialogue).

All begin with one model that imitated demonstrations, and have as many updates in all: the steerable one has them all,
the policies of fixed preferences share them, and so do the two whose weights are interpolated (rewarded soups). Each is
judged by the same preferences on the same held-out tasks.

Axes: `_P` preferences, `_H` objectives.
"""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file

from loomrl.config import Experiment
from loomrl.errors import ConfigError, unknown
from loomrl.evaluation.front import hypervolume, undominated
from loomrl.experiments.shipped import resolve
from loomrl.feedback.calibration.agreement import rank_correlation
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.progress import Progress, progress

TASKS = {"math": "language/steer_tiny", "dialogue": "language/steer_dialogue"}
"""Experiments of two objectives that are against each other."""
STAGES = ("ppo", "steered", "fixed", "soups")
"""Of a seed, in this order."""


PPO = (
    "algorithm.objectives=[]", "algorithm.reference=null", "algorithm.shown={}", "algorithm.baseline=values",
    "algorithm.warm_start.wrong=0",
)  # fmt: skip
"""Changes after which it is language PPO."""


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work."""

    seeds: tuple[int, ...] = (1, 2, 3)
    updates: int | None = None
    """Of each contender, in all; None: as many as the experiment has."""
    preferences: int = 6
    tasks: int = 200
    """Held-out tasks by each preference."""
    words: tuple[str, ...] = ()
    """Overrides of the experiment."""


FULL = Size()
QUICK = Size(
    seeds=(1,),
    updates=2,
    preferences=2,
    tasks=4,
    words=("algorithm.warm_start.steps=10", "rollout.group_size=2", "rollout.groups_per_update=2"),
)


def measure(size: Size = FULL, only: Sequence[str] = ()) -> dict[str, Any]:
    """Every figure of `loomrl bench steer` by task: medians over the seeds; each seed's own under `seeds_runs`."""
    for task in only:
        if task not in TASKS:
            raise ConfigError("--only: " + unknown("task", task, TASKS))
    chosen = only or tuple(TASKS)
    runs: dict[str, list[dict[str, Any]]] = {task: [] for task in chosen}
    with progress("bench steer", len(chosen) * len(size.seeds) * len(STAGES)) as report:
        stages = itertools.count(1)
        for task, seed in itertools.product(chosen, size.seeds):
            with tempfile.TemporaryDirectory(prefix="loom-bench-") as folder:
                bench = _Bench(TASKS[task], size, seed, Path(folder))
                runs[task].append(bench.figures(partial(_tell, report, stages, task)))
    figures: dict[str, Any] = {task: _medians(told) for task, told in runs.items()}
    return figures | {"seeds_runs": runs}


def _tell(report: Progress, stages: Iterator[int], task: str, note: str) -> None:
    report(next(stages), f"{task} {note}")


def _medians(seeds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    told = [name for name, value in seeds[0].items() if isinstance(value, float) and all(name in one for one in seeds)]
    return {name: statistics.median(one[name] for one in seeds) for name in told} | {"updates": seeds[0]["updates"]}


class _Bench:
    """One seed."""

    def __init__(self, experiment: str, size: Size, seed: int, folder: Path) -> None:
        self._experiment, self._size, self._folder = experiment, size, folder
        shipped = resolve([experiment])
        assert isinstance(shipped, Experiment), "it is of a language policy"
        self._updates = size.updates or shipped.train.updates
        self._words = [
            f"seed={seed}", f"store_url=sqlite:///{folder}/loom.db", f"artifact_url={folder}/artifacts",
            f"train.folder={folder}/runs", *size.words,
        ]  # fmt: skip
        shares = np.linspace(0, 1, size.preferences)
        self._preferences = [(float(share), float(1 - share)) for share in shares]

    def figures(self, told: Callable[[str], None]) -> dict[str, Any]:
        """The contenders' fronts, how the steerable one obeys, and what an update of it costs."""
        self._train("warm", 1)
        begin = self._exported("warm")
        self._train("ppo", 6, begin, words=PPO)
        told("ppo")
        fronts: dict[str, list[list[float]]] = {}
        volumes: dict[str, float] = {}
        for name, front in (("steered", self._steered), ("fixed", self._one_for_each), ("soups", self._soups)):
            fronts[name] = front(begin)
            volumes[name] = _volume(fronts[name])
            told(f"{name} {volumes[name]:.3f}")
        figures: dict[str, Any] = {f"{name}_hypervolume": volume for name, volume in volumes.items()}
        figures["updates"] = self._updates
        if best := max(volumes["fixed"], volumes["soups"]):
            figures["steered_vs_best"] = volumes["steered"] / best
        obeyed = [_rank_correlation(self._preferences, fronts["steered"], h) for h in range(2)]
        figures |= {"obeys": float(np.mean(obeyed)), "obeys_by_objective": obeyed}
        figures["cost_ratio"] = self._speed("ppo") / self._speed("steered")
        return figures | fronts

    def _steered(self, begin: Path) -> list[list[float]]:
        return self._judged(self._train("steered", self._updates, begin), None)

    def _one_for_each(self, begin: Path) -> list[list[float]]:
        updates = max(1, self._updates // self._size.preferences)
        return [
            self._judged(self._train(f"fixed-{index}", updates, begin, preference), preference)[0]
            for index, preference in enumerate(self._preferences)
        ]

    def _soups(self, begin: Path) -> list[list[float]]:
        ends = [
            self._exported(self._train(f"end-{index}", self._updates // 2, begin, preference))
            for index, preference in enumerate(((1.0, 0.0), (0.0, 1.0)))
        ]
        return [self._judged(self._soup(ends, preference), preference)[0] for preference in self._preferences]

    def _train(
        self,
        run: str,
        updates: int,
        begin: Path | None = None,
        preference: Sequence[float] | None = None,
        words: Sequence[str] = (),
    ) -> str:
        more = [f"train.updates={updates}", f"train.checkpoint_every={updates}", "evaluation.episodes=1", *words]
        if begin is not None:
            more += [f"algorithm.model.path={begin}", "algorithm.model.build=null", "algorithm.warm_start.steps=0"]
        if preference is not None:
            more.append(_fixed(preference))
        _loomrl("train", self._experiment, *self._words, *more, "--run", run)
        return run

    def _exported(self, version: str) -> Path:
        folder = self._folder / version.replace("/", "-")
        _loomrl("export", version, str(folder), "--store", f"sqlite:///{self._folder}/loom.db")
        return folder

    def _soup(self, ends: Sequence[Path], preference: Sequence[float]) -> str:
        """The folder of a policy whose weights are the ends', weighed by the preference."""
        folder = self._folder / f"soup-{preference[0]:.3f}"
        shutil.copytree(ends[0], folder)
        left, right = (load_file(end / "model.safetensors") for end in ends)
        mixed = {name: preference[0] * left[name] + preference[1] * right[name] for name in left}
        save_file(mixed, folder / "model.safetensors", metadata={"format": "pt"})
        return str(folder)

    def _judged(self, policy: str, preference: Sequence[float] | None) -> list[list[float]]:
        """Mean returns by preference, `[P, H]`."""
        asked = [f"evaluation.preferences={self._size.preferences}"] if preference is None else [_fixed(preference)]
        words = [self._experiment, *self._words, f"evaluation.episodes={self._size.tasks}", *asked, "--policy", policy]
        told = _loomrl("evaluate", *words, "--json")
        (report,) = told["policies"].values()
        return [[interval["mean"] for interval in one["returns"]] for one in report["front"]["by_preference"]]

    def _speed(self, run: str) -> float:
        """Median tokens per second of the learner."""
        lines = map(json.loads, (self._folder / "runs" / run / "metrics.jsonl").read_text().splitlines())
        told: list[float] = [line[Metric.LEARNER_TOKENS_PER_S] for line in lines if Metric.LEARNER_TOKENS_PER_S in line]
        return statistics.median(told)


def _fixed(preference: Sequence[float]) -> str:
    return f"algorithm.preference={json.dumps({'kind': 'fixed', 'weights': list(preference)})}"


def _volume(points_PH: Sequence[Sequence[float]]) -> float:
    return hypervolume(undominated(points_PH), [0.0, 0.0])


def _rank_correlation(preferences: Sequence[Sequence[float]], returns_PH: Sequence[Sequence[float]], h: int) -> float:
    """Spearman's, between the weight of an objective and what it returned."""
    return rank_correlation(np.array([one[h] for one in preferences]), np.array([one[h] for one in returns_PH]))


def _loomrl(*words: str) -> Any:
    """What a command printed last, as JSON if it was asked for."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-m", "loomrl", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"loomrl {' '.join(words)} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-3000:]}"
        )
    return json.loads(done.stdout.splitlines()[-1]) if "--json" in words else None
