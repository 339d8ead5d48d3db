"""`loomrl sweep`: many runs of one experiment with Ray Tune, new or resumed."""

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, PopulationBasedTraining
from ray.tune.search import BasicVariantGenerator

from loomrl.algorithms.resources import bundles
from loomrl.cluster.job import refuse_lost
from loomrl.cluster.shared import refuse_unshared
from loomrl.config.sweep import PBT, Asha, Choice, Dimension, Grid, LogUniform, Optuna, RandInt, Sweep
from loomrl.errors import ConfigError, LoomError
from loomrl.experiments.algorithms import open_algorithm, ray_running
from loomrl.experiments.sweep_file import check, short
from loomrl.experiments.sweep_trial import FAILED, RUN, SCORE, STEP, STOPPED, Trial, trial_prefix
from loomrl.process import environ
from loomrl.run.record import begin_run, run_folder
from loomrl.store import LoomDB, open_store
from loomrl.store.runs import RUNS, Run, RunStatus, finish_run, load_sweep, run_id
from loomrl.telemetry.plot import plot_trials

QUIET = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # or a trial would look for the folders of its experiment in one of Tune's
    "RAY_AIR_NEW_OUTPUT": "0",  # which writes to stdout, however quiet it is asked to be
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # our own sinks tell of a run
    "TUNE_GLOBAL_CHECKPOINT_S": "1",  # what Tune has not noted down is begun again after a kill
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial and its result."""

    run: str
    """The last one: with pbt a trial may continue in another run, from another trial's weights."""
    changes: dict[str, Any]
    """Its point of the space; with pbt the last one."""
    score: float | None
    """Mean of the metric over the latest lines."""
    done: int
    """Updates or steps."""
    stopped: str
    """The reason for its end, or its error."""
    runs: tuple[str, ...]
    """All its runs, in order."""
    failed: int = 0
    """Failed attempts of its last run: the score is over the others."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep; `trials` has the best first."""

    sweep: str
    metric: str
    mode: str
    unit: str
    trials: tuple[Tried, ...]
    seconds: float
    picture: str

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def sweep(asked: Sweep, *, run: str | None = None, clock: Clock = time.time) -> SweepResult:
    """Run trials until there are as many as configured. An existing sweep is resumed."""
    id = run_id(run, asked.name)
    begun = clock()
    check(asked)
    refuse_lost(asked.experiment)
    run_folder(asked.experiment.train, id)
    _refuse_missing(asked)
    with (
        environ({name: os.environ.get(name, value) for name, value in QUIET.items()}),
        ray_running(_count_cpus(asked)),
        open_store(asked.experiment.store_url) as db,
    ):
        _refuse_impossible(asked)
        held = asked.experiment
        refuse_unshared(
            store_url=held.store_url,
            artifact_url=held.artifact_url,
            paths={"train.folder": str(run_folder(held.train, id))},
        )
        _start(asked, id, db, clock)
        folder = Path(asked.experiment.train.folder).absolute() / id
        try:
            trials = _tuner(asked, id, folder).fit()._experiment_analysis.trials
            tried = _settle_all(asked, id, trials, db, clock)
            picture = folder / "sweep.svg"
            result = SweepResult(
                sweep=id,
                metric=asked.judged_by,
                mode=asked.mode,
                unit=asked.unit,
                trials=tried,
                seconds=round(clock() - begun, 1),
                picture=str(picture),
            )
            _refuse_failure(result, trials)
        except BaseException as error:
            finish_run(db, id, status=RunStatus.FAILED, finished_at=clock(), result={"error": repr(error)})
            raise
        _draw(picture, asked, result)
        finish_run(db, id, status=RunStatus.FINISHED, finished_at=clock(), result=result.as_dict())
        return result


def resumed(asked: Sweep, run: str | None) -> tuple[Sweep, str]:
    """The sweep to resume with its original settings: the latest of this name, if none is given."""
    with open_store(asked.experiment.store_url) as db:
        if run is None:
            latest = [known.id for known in RUNS.latest(db, kind="sweep") if known.name == asked.name]
            if not latest:
                raise ConfigError(f"--resume: no sweep of {asked.name!r} in {asked.experiment.store_url}.")
            run = latest[0]
        recorded = RUNS.require(db, run)
    if recorded.kind != "sweep":
        raise ConfigError(f"--resume: run {run!r} is no sweep but of `loomrl {recorded.kind}`.")
    return load_sweep(recorded), run


def _start(asked: Sweep, id: str, db: LoomDB, clock: Clock) -> None:
    begin_run(db, asked, {}, id=id, kind="sweep")


# -- what Tune is asked for -------------------------------------------------------------------------------------------


def _tuner(asked: Sweep, id: str, folder: Path) -> tune.Tuner:
    """A new tuner, or the restored one."""
    trial = tune.with_parameters(Trial, sweep=asked.plain, id=id)
    trial = tune.with_resources(trial, lambda point: tune.PlacementGroupFactory(_bundles(asked, point)))
    before = folder / "tune"
    if tune.Tuner.can_restore(str(before)) and any(before.glob("experiment_state-*.json")):
        return tune.Tuner.restore(str(before), trainable=trial, resume_errored=True)
    return tune.Tuner(
        trial,
        param_space={path: _domain(dimension) for path, dimension in asked.space.items()},
        tune_config=tune.TuneConfig(
            metric=SCORE,
            mode=asked.mode,
            num_samples=asked.samples,
            max_concurrent_trials=asked.concurrency,
            search_alg=_search(asked),
            scheduler=_scheduler(asked),
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(folder),
            verbose=0,
            callbacks=[Told(asked, id)],
            failure_config=tune.FailureConfig(max_failures=asked.retries),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=3),
        ),
    )


def _domain(dimension: Dimension) -> Any:
    match dimension:
        case Choice(values=values):
            return tune.choice(list(values))
        case Grid(values=values):
            return tune.grid_search(list(values))
        case RandInt(low=low, high=high):
            return tune.randint(low, high + 1)
        case LogUniform(low=low, high=high):
            return tune.loguniform(low, high)
    return tune.uniform(dimension.low, dimension.high)


def _search(asked: Sweep) -> Any:
    if not isinstance(asked.search, Optuna):
        return BasicVariantGenerator(random_state=asked.seed, max_concurrent=asked.concurrency or 0)
    from ray.tune.search.optuna import OptunaSearch

    return OptunaSearch(metric=SCORE, mode=asked.mode, seed=asked.seed)


def _scheduler(asked: Sweep) -> Any:
    match asked.scheduler:
        case Asha(factor=factor):
            return AsyncHyperBandScheduler(
                time_attr=STEP, max_t=asked.limit, grace_period=asked.first_rung, reduction_factor=factor
            )
        case PBT() as pbt:
            return PopulationBasedTraining(
                time_attr=STEP,
                perturbation_interval=asked.interval,
                quantile_fraction=pbt.quantile,
                resample_probability=pbt.resample,
                hyperparam_mutations={path: _mutation(dimension) for path, dimension in asked.space.items()},
                custom_explore_fn=lambda point: _within(asked.space, point),
                synch=True,  # trials are compared after the same number of updates
                log_config=False,
            )
    return None


def _mutation(dimension: Dimension) -> Any:
    return list(dimension.values) if isinstance(dimension, Choice | Grid) else _domain(dimension)


def _within(space: Mapping[str, Dimension], point: dict[str, Any]) -> dict[str, Any]:
    """The point with every number clipped to its bounds, which PBT's multiplication ignores."""
    bounded = {
        path: min(max(point[path], dimension.low), dimension.high)
        for path, dimension in space.items()
        if not isinstance(dimension, Choice | Grid)
    }
    return {**point, **bounded}


@dataclass
class Told(tune.Callback):
    """Reports a trial's end on stderr, and records its run's in LoomDB. Tune stores it with the sweep."""

    asked: Sweep
    id: str
    ended: int = 0

    def on_trial_complete(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """Report a trial that reached its end or was stopped by its scheduler."""
        self._tell(trial)

    def on_trial_error(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """Report a trial that failed for good."""
        self._tell(trial)

    def _tell(self, trial: Any) -> None:
        with open_store(self.asked.experiment.store_url) as db:
            tried = _settle(self.asked, self.id, trial, db, time.time)
        self.ended += 1
        score = "–" if tried.score is None else f"{tried.score:.4g}"
        score += f" ({tried.failed} attempts failed)" if tried.failed else ""
        word = f"sweep {self.id}: {self.ended} trials ended  {tried.run} {self.asked.judged_by} {score}"
        print(f"{word} after {tried.done} {self.asked.unit}: {tried.stopped}", file=sys.stderr, flush=True)


# -- what became of it ------------------------------------------------------------------------------------------------


def _settle_all(asked: Sweep, id: str, trials: Sequence[Any], db: LoomDB, clock: Clock) -> tuple[Tried, ...]:
    """All trials, best first; ends every run of the sweep, including those that Tune lost in a kill."""
    tried = [_settle(asked, id, trial, db, clock) for trial in trials]
    known = {run for each in tried for run in each.runs}
    for run in _runs_of(db, re.escape(id) + r"-[0-9a-z]+-[0-9a-f]{6}"):
        if run.id not in known and run.status is RunStatus.RUNNING:
            error = "the sweep was killed before it had noted this trial; another took its place"
            result = {"sweep": id, "error": error}
            finish_run(db, run.id, status=RunStatus.FAILED, finished_at=clock(), result=result)
    sign = -1 if asked.mode == "max" else 1
    return tuple(sorted(tried, key=lambda each: (each.score is None, sign * (each.score or 0.0), each.run)))


def _settle(asked: Sweep, id: str, trial: Any, db: LoomDB, clock: Clock) -> Tried:
    """The result of a trial; ends its runs in LoomDB."""
    result = trial.last_result or {}
    point = trial.config
    runs = sorted(_runs_of(db, re.escape(trial_prefix(id, trial.trial_id)) + "[0-9a-f]{6}"), key=lambda r: r.started_at)
    last = result.get(RUN) or (runs[-1].id if runs else "–")
    failed = trial.status == "ERROR"
    stopped = _cause(trial) if failed else result.get(STOPPED) or _reason_to_stop(asked)
    for run in runs:
        if run.status is not RunStatus.RUNNING:
            continue
        said = {"sweep": id, "changes": point, "score": result.get(SCORE), "updates": result.get(STEP, 0)}
        said["stopped"] = stopped if run.id == last else f"its trial continued in {last}, from another's weights"
        status = RunStatus.FAILED if failed and run.id == last else RunStatus.FINISHED
        finish_run(db, run.id, status=status, finished_at=clock(), result=said)
    return Tried(
        run=last,
        changes={path: point.get(path) for path in asked.space},
        score=result.get(SCORE),
        done=int(result.get(STEP, 0)),
        stopped=stopped,
        runs=tuple(run.id for run in runs),
        failed=int(result.get(FAILED, 0)),
    )


def _runs_of(db: LoomDB, pattern: str) -> list[Run]:
    return [run for run in RUNS.latest(db, limit=10**6, kind="train") if re.fullmatch(pattern, run.id)]


def _reason_to_stop(asked: Sweep) -> str:
    return f"stopped by {asked.scheduler.kind}" if asked.scheduler is not None else "stopped"


def _cause(trial: Any) -> str:
    error = _error_of(trial)
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _error_of(trial: Any) -> BaseException:
    error = trial.get_pickled_error()
    cause: BaseException = getattr(error, "cause", None) or error or RuntimeError("it failed without a message")
    return cause


def _refuse_failure(result: SweepResult, trials: Sequence[Any]) -> None:
    """If no trial has a score, raise the first one's error."""
    if any(each.score is not None for each in result.trials):
        return
    errors = [_error_of(trial) for trial in trials if trial.status == "ERROR"]
    if not errors:
        raise ConfigError(f"sweep {result.sweep} was interrupted before any trial had a score. Continue with --resume.")
    kind = type(errors[0]) if isinstance(errors[0], LoomError) else ConfigError
    raise kind(f"sweep {result.sweep}: all {len(errors)} trials failed, the first with: {errors[0]}") from errors[0]


# -- before it begins -------------------------------------------------------------------------------------------------


def _refuse_missing(asked: Sweep) -> None:
    if isinstance(asked.search, Optuna) and find_spec("optuna") is None:
        raise ConfigError(
            "search.kind='optuna': optuna is not installed. Install it (pip install 'loomrl[sweep]'), or leave it out: "
            "search.kind=random."
        )


def _bundles(asked: Sweep, point: Mapping[str, Any]) -> list[dict[str, float]]:
    return bundles(open_algorithm(asked.at(point)))


def _greediest(asked: Sweep) -> dict[str, float]:
    """The resources of the largest trial."""
    points: list[dict[str, Any]] = [{}]
    points += [{path: value} for path, dimension in asked.space.items() for value in dimension.edges]
    needs = [_total(_bundles(asked, point)) for point in points]
    return {name: max(need.get(name, 0) for need in needs) for name in {name for need in needs for name in need}}


def _total(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(part.get(name, 0) for part in parts) for name in {name for part in parts for name in part}}


def _count_cpus(asked: Sweep) -> int:
    return int(_greediest(asked)["CPU"])


def _refuse_impossible(asked: Sweep) -> None:
    """A ConfigError if so many concurrent trials do not fit into Ray: the last ones would wait forever."""
    there = ray.cluster_resources()
    at_once = asked.concurrency or 1
    for name, each in _greediest(asked).items():
        room = there.get(name, 0)
        if each * at_once > room:
            fits = int(room // each)
            remedy = f"Set concurrency={fits}" if fits else "Ask for less in rollout and learners"
            raise ConfigError(
                f"concurrency={at_once}: {at_once} trials with {each:g} {name} each are {each * at_once:g} {name}, and "
                f"Ray has {room:g} in all. {remedy}, or start Ray with more."
            )


def _draw(picture: Path, asked: Sweep, result: SweepResult) -> None:
    names = dict(zip(asked.space, short(list(asked.space)), strict=True))
    trials = [
        {names[path]: value for path, value in each.changes.items()} | {result.metric: each.score}
        for each in result.trials
        if each.score is not None
    ]
    logarithmic = {names[path] for path, dimension in asked.space.items() if _spans_powers(dimension)}
    plot_trials(picture, f"{result.sweep}: {result.metric}", trials, logarithmic=logarithmic, best=asked.mode)


def _spans_powers(dimension: Dimension) -> bool:
    if isinstance(dimension, Choice | Grid):
        numbers = [value for value in dimension.values if isinstance(value, int | float) and value > 0]
        return len(numbers) == len(dimension.values) and max(numbers) >= 100 * min(numbers)
    return isinstance(dimension, LogUniform)
