"""`loomrl evaluate --transfer FROM TO`: steps of training until a level, from scratch and from other versions."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from loomrl.config import AnyExperiment, ControlExperiment
from loomrl.control.environment import snapshot
from loomrl.errors import ConfigError
from loomrl.experiments.algorithms import open_algorithm, ray_for
from loomrl.experiments.commands.output import table
from loomrl.experiments.data import version_named
from loomrl.experiments.train import train
from loomrl.run.record import recorded
from loomrl.run.version import copied
from loomrl.store import LoomDB, open_store
from loomrl.store.runs import run_id
from loomrl.threshold import reaches

SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class Start:
    """An origin of training, and how it went from there for each seed."""

    parent: str
    """A policy version, or `scratch`."""
    before: int
    """Steps that the version itself was trained."""
    first: tuple[float, ...]
    """Mean return of the evaluation before the first update."""
    steps: tuple[int | None, ...]
    """Steps until an evaluation's mean return reached the level; None if it never did."""
    runs: tuple[str, ...]

    @property
    def median(self) -> float | None:
        """The median steps, with those that never reached the level as the most; None if it is one of those."""
        middle = statistics.median(float("inf") if each is None else each for each in self.steps)
        return None if middle == float("inf") else middle


@dataclass(frozen=True, slots=True)
class TransferResult:
    """The starts that were compared."""

    run: str
    level: float
    seeds: tuple[int, ...]
    every: int
    """Steps between evaluations, to which steps are exact."""
    most: int
    """Steps after which training ended."""
    starts: tuple[Start, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        data = asdict(self)
        for told, start in zip(data["starts"], self.starts, strict=True):
            told["median"] = start.median
        return data


def transfer(
    experiment: AnyExperiment,
    parents: Sequence[str],
    *,
    seeds: Sequence[int],
    clock: Callable[[], float] = time.time,
) -> TransferResult:
    """Train the experiment from scratch and from each of these versions, seed by seed, as runs on record."""
    asked, level, every = _resolve_transfer(experiment)
    with (
        open_store(asked.store_url) as db,
        ray_for(asked),
    ):
        versions = [version_named(text, db, what="--transfer") for text in parents]
        _refuse_unfit(asked, [version.id for version in versions], db)
        run = run_id(None, f"{asked.name}-transfer")
        with recorded(db, asked, snapshot(asked.judged_in), id=run, kind="evaluate", clock=clock) as result:
            begins: list[tuple[str | None, int]] = [(None, 0), *((each.id, each.number) for each in versions)]
            starts = [
                _train_seeds(asked.override({"parent": parent}), parent, before, seeds, f"{run}-{index}")
                for index, (parent, before) in enumerate(begins)
            ]
            told = TransferResult(run, level, tuple(seeds), every, asked.train.steps, tuple(starts))
            result |= told.as_dict()
    return told


def _resolve_transfer(experiment: AnyExperiment) -> tuple[ControlExperiment, float, int]:
    """The experiment that stops at the level, the level, and the steps between evaluations."""
    if not isinstance(experiment, ControlExperiment):
        raise ConfigError(f"--transfer: experiment {experiment.name!r} is one of language; name one of control.")
    if experiment.parent is not None:
        raise ConfigError(f"--transfer: parent={experiment.parent} has no effect, leave it out: FROM is the parent.")
    stop = experiment.train.stop
    level = stop.target if stop.evaluated is None else stop.evaluated
    if level is None:
        raise ConfigError("--transfer: no level to reach. Give train.stop.evaluated, the return of an evaluation.")
    every = experiment.evaluation.every
    if every is None:
        raise ConfigError("--transfer: evaluation.every=null tells of no level before the end. Give steps.")
    return experiment.override({"train.stop": {"evaluated": level, "target": None}}), level, every


def _refuse_unfit(experiment: ControlExperiment, parents: Sequence[str], db: LoomDB) -> None:
    """An ArtifactError if one of these versions is of other spaces or another network, before anything is trained."""
    algo = open_algorithm(experiment).build_algo()
    try:
        for parent in parents:
            algo.begin_with(copied(version_named(parent, db, what="--transfer"), db) / "algorithm")
    finally:
        algo.stop()


def _train_seeds(
    experiment: ControlExperiment, parent: str | None, before: int, seeds: Sequence[int], run: str
) -> Start:
    results = [train(experiment.override({"seed": seed}), run=f"{run}-{seed}") for seed in seeds]
    level = experiment.train.stop.evaluated
    assert level is not None, "it stops at the level"
    return Start(
        parent=parent or SCRATCH,
        before=before,
        first=tuple(float(result.before["greedy"] or 0.0) for result in results),
        steps=tuple(
            int(result.policy.rpartition("/")[2]) if reaches(float(result.after["greedy"] or 0.0), level) else None
            for result in results
        ),
        runs=tuple(result.run for result in results),
    )


def render(result: TransferResult, console: Console) -> None:
    """A row per start."""
    columns = ("from", "its own steps>", "return at first>", *(f"seed {seed}>" for seed in result.seeds), "median>")
    rows = [
        (
            start.parent,
            f"{start.before:,}",
            f"{statistics.mean(start.first):.2f}",
            *map(_steps, start.steps),
            _steps(start.median),
        )
        for start in result.starts
    ]
    title = (
        f"Steps until an evaluation's return is {result.level:g}, one every {result.every:,}, {result.most:,} at most"
    )
    console.print(table(title, columns, rows))
    console.print(f"\nrecorded as run {result.run}", highlight=False)


def _steps(count: float | None) -> str:
    return "never" if count is None else f"{count:,.0f}"
