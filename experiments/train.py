"""`loomrl train`: one run, new or resumed; on record, on the screen and on a page."""

import gc
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from loomrl.artifacts import open_artifacts
from loomrl.cluster.job import refuse_lost
from loomrl.config import AnyExperiment
from loomrl.config.layout import length
from loomrl.errors import ConfigError, RunTaken
from loomrl.evaluation.report import failures_in
from loomrl.experiments.algorithms import ray_for
from loomrl.experiments.commands.output import table
from loomrl.experiments.data import settled
from loomrl.experiments.kinds import open_training, refuse_blind_hosts, reporter_of
from loomrl.experiments.planned import find_plan
from loomrl.experiments.preflight import check_parts
from loomrl.experiments.summary import RunSummary
from loomrl.experiments.training import Listener, Training, metrics_kept, scraped
from loomrl.files import write_whole
from loomrl.load import parse_assignments
from loomrl.process import answered_in_time, family_peak, stacks_if_stuck
from loomrl.record.word import compare_plan, lasting
from loomrl.run.record import run_folder
from loomrl.run.version import latest_of
from loomrl.schema import Tree, merge
from loomrl.store import RECONNECT_S, LoomDB, open_store
from loomrl.store.runs import (
    BY_A_PERSON,
    RUNS,
    Run,
    RunStatus,
    asked_to_stop,
    find_changed_setting,
    finish_run,
    hold,
    load_experiment,
    machine,
    run_id,
)
from loomrl.telemetry.diagnosis import Finding, diagnose, too_few
from loomrl.telemetry.progress import progress
from loomrl.telemetry.report import AnswerPair, Comparison, RunReport, render_text
from loomrl.telemetry.sink import metrics_file, read_metrics

WAITS = {
    "_collect": "a step of the environment",
    "collect": "attempts of the runners",
    "_learn": "the learners",
    "_publish": "the engines",
    "judge": "an evaluation",
    "_checkpoint": "the artifacts",
}
"""Function of an update → what it waits for."""
LISTED = 10
"""Runs that are named where one has to be chosen."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The result of a run."""

    run: str
    updates: int
    policy: str
    """The last one."""
    best: str | None
    """The best one that was kept; None while nothing has succeeded, or too little is known."""
    stopped: str
    """The reason for its end."""
    seconds: float
    """With those of its earlier processes that came to an end."""
    before: Mapping[str, float | None]
    """Success on held-out tasks before the first update, or return, by way of acting; and the held-out `loss`."""
    after: Mapping[str, float | None]
    page: str
    planned: Mapping[str, Any] | None = None
    """Seconds and GB of its plan, if there was one, and as `measured`."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Attempts of the last evaluation that failed, by way of acting, if any did: `after` is over the others."""
    findings: tuple[Finding, ...] = ()
    undiagnosed: str | None = None
    """Why the training doctor cannot judge yet, if it cannot."""
    comparisons: tuple[Comparison, ...] = field(default=(), repr=False)
    samples: tuple[AnswerPair, ...] = field(default=(), repr=False)

    @property
    def is_unjudged(self) -> bool:
        """True if every attempt of the last evaluation failed, in some way of acting."""
        return any(self.after.get(name) is None for name in self.failed)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def train(
    experiment: AnyExperiment,
    *,
    run: str | None = None,
    clock: Callable[[], float] = time.time,
    listener: Listener | None = None,
    metrics: str | None = None,
) -> TrainResult:
    """Train until a reason to stop or the last update. An existing run is resumed. `metrics`: scraped at HOST:PORT."""
    run = run_id(run, experiment.name)
    entered = time.monotonic()
    asked = experiment
    refuse_lost(experiment)
    check_parts(experiment)
    experiment = settled(experiment)
    run_folder(experiment.train, run)
    open_artifacts(experiment.artifact_url)
    with (
        ray_for(experiment, run=run),
        open_store(experiment.store_url, reconnect_s=RECONNECT_S) as db,
    ):
        refuse_blind_hosts(experiment)
        claim = None
        earlier = RUNS.find(db, run)
        so_far = earlier.result.get("seconds", 0.0) if earlier else 0.0
        plan = None if earlier else find_plan(db, asked)
        try:
            training = open_training(experiment, run, db, clock=clock)
            with ExitStack() as stack:
                stack.callback(training.stop)
                claim = training.claim
                experiment = training.experiment
                begun = clock()
                gc.freeze()  # torch, transformers and Ray are a million objects that no later collection need look at
                if threading.current_thread() is threading.main_thread():
                    stack.enter_context(answered_in_time(lambda: how_to_resume(experiment, run)))
                with nullcontext() if metrics is None else scraped(db, run, metrics) as registry:
                    kept = metrics_kept(training, experiment, run, db, registry)
                    summary = _train(training, experiment, run, kept, listener, db)
                if plan is not None:
                    took = {"seconds": time.monotonic() - entered, "memory_gb": family_peak() / 1e9}
                    plan = plan | {"measured": took}
                result = _make_result(summary, experiment, run, begun=begun, seconds=so_far + clock() - begun)
                result = replace(result, planned=plan)
        except BaseException as error:
            told = {"error": repr(error)}
            with suppress(RunTaken):
                if any(known.id == run for known in RUNS.latest(db, kind="train")):
                    finish_run(db, run, status=RunStatus.FAILED, finished_at=clock(), result=told, claim=claim)
            raise
        finish_run(db, run, status=RunStatus.FINISHED, finished_at=clock(), result=result.as_dict(), claim=claim)
        from loomrl.console.saved import save_run  # with the console's server

        # The page is made of the record alone, so it is written once the run is over.
        write_whole(Path(result.page), save_run(db, run).encode())
        return result


def resumed(
    experiment: AnyExperiment, run: str | None, changes: Tree | None = None, *, of_any_name: bool = False
) -> tuple[AnyExperiment, str]:
    """The run to resume, with its own experiment and these changes. If none is given it is the latest that is not over,
    of the experiment's name or of any. It is as long as it was when it was resumed last.
    """
    with open_store(experiment.store_url) as db:
        if run is None:
            run = _latest(db, experiment, None if of_any_name else experiment.name, changes or {}).id
        own = load_experiment(RUNS.require(db, run))
        longer = find_changed_setting(db, run, length(own))
    if longer is not None:
        changes = merge(parse_assignments([f"{length(own)}={longer}"]), changes or {})
    return type(own).parse(merge(own.plain, changes or {}), origin=f"run {run}, resumed"), run


def _latest(db: LoomDB, experiment: AnyExperiment, name: str | None, changes: Tree) -> Run:
    """The latest training of this name, or of any, that is not over; if it is to be longer, it may be over."""
    every = RUNS.latest(db, kind="train")
    known = [run for run in every if name in (None, run.name)]
    if not known:
        there = f" Runs there: {_list_runs(every)}." if every else ""
        named = "no run" if name is None else f"no run of {name!r}"
        raise ConfigError(f"--resume: {named} in {experiment.store_url}.{there}")
    left = next((run for run in known if not run.is_over), None)
    path = length(load_experiment(known[0]))
    if left is None and path.rpartition(".")[2] not in changes.get("train", {}):
        raise ConfigError(
            f"--resume: every run is over: {_list_runs(known)}. To train one longer, say so: "
            f"`loomrl train --resume --run {known[0].id} {path}=NUMBER`."
        )
    return left or known[0]


def _list_runs(runs: Sequence[Run]) -> str:
    return ", ".join(f"{run.id} ({run.status.value})" for run in runs[:LISTED]) + ", …" * (len(runs) > LISTED)


def how_to_resume(experiment: AnyExperiment, run: str) -> str:
    """The next steps after an interrupted training."""
    with open_store(experiment.store_url) as db:
        if RUNS.find(db, run) is None:
            return "stopped before the run began: nothing of it is on record"
        kept = latest_of(run, db)
    default = type(experiment).model_fields["store_url"].default
    where = "" if experiment.store_url == default else f" store_url={experiment.store_url}"
    since = f" from {kept.id}" if kept else " from its beginning"
    return f"stopped. Resume it{since} with: loomrl train --resume --run {run}{where}"


def _train(
    training: Training,
    experiment: AnyExperiment,
    run: str,
    kept: AbstractContextManager[Listener],
    listener: Listener | None,
    db: LoomDB,
) -> RunSummary:
    """Train until a reason to stop; metrics are written before their checkpoint counts."""
    reporter = reporter_of(training, experiment, db)
    reporter.begin()
    if training.stopped is None:
        with (
            kept as write,
            stacks_if_stuck(WAITS) as advance,
            progress(f"train {run}", training.limit, begun=training.done) as report,
        ):

            def listen(done: int, metrics: Mapping[str, float]) -> None:
                write(done, metrics)
                advance()
                report(min(done, training.limit), reporter.note(metrics))
                if listener is not None:
                    listener(done, metrics)

            training.listen = listen
            while training.stopped is None:
                training.train()
                hold(db, training.claim)
                wish = None if training.stopped else asked_to_stop(db, run)
                if wish is not None:
                    training.end(f"{BY_A_PERSON}{wish.data['by']}: {wish.data['why']}")
    return reporter.summary()


def _make_result(
    summary: RunSummary, experiment: AnyExperiment, run: str, *, begun: float, seconds: float
) -> TrainResult:
    """The result, and the report about it as text."""
    folder = run_folder(experiment.train, run)
    history = read_metrics(metrics_file(experiment.train, run))
    page = RunReport(
        title=experiment.name,
        run=run,
        experiment=experiment.sha256,
        machine=machine(),
        date=time.strftime("%Y-%m-%d %H:%M", time.localtime(begun)),
        took=lasting(seconds),
        status=summary.stopped,
        history=history,
        unit=summary.unit,
        comparisons=summary.comparisons,
        samples=summary.samples,
    )
    (folder / "report.md").write_text(render_text(page), encoding="utf-8")
    return TrainResult(
        run=run,
        updates=summary.updates,
        policy=f"{run}/{summary.last}",
        best=None if summary.best is None else f"{run}/{summary.best}",
        stopped=summary.stopped,
        seconds=round(seconds, 1),
        before=summary.before,
        after=summary.after,
        page=str(folder / "report.html"),
        failed={c.name: failed for c in summary.comparisons if (failed := c.after["overall"].get("failures"))},
        findings=tuple(diagnose(history)),
        undiagnosed=too_few(history),
        comparisons=tuple(summary.comparisons),
        samples=tuple(summary.samples),
    )


def render(result: TrainResult, console: Console) -> None:
    """Print before and after per family, the doctor's findings, and the next commands."""
    for comparison in result.comparisons:
        what, rows = _rows(comparison)
        console.print(table(f"{what}, {comparison.name}", ("", "before>", "after>"), rows))
        for when, report in (("before", comparison.before), ("after", comparison.after)):
            for failure in failures_in(report):
                console.print(f"{when}, failed {failure}", markup=False, highlight=False)
        console.print()
    if "loss" in result.after:
        first, last = (side["loss"] for side in (result.before, result.after))
        console.print(f"loss on held-out conversations, nats per token: {first:.3f} → {last:.3f}", highlight=False)
    if "pairs" in result.after:
        first, last = (side["pairs"] for side in (result.before, result.after))
        console.print(f"held-out pairs told apart: {first:.3f} → {last:.3f}", highlight=False)
        from loomrl.experiments.train_reward import FOLDER

        console.print(f"the reward model: {Path(result.page).parent / FOLDER}", highlight=False)
    for finding in result.findings:
        console.print(f"[yellow]{finding.name}[/yellow]: {finding.evidence}. {finding.remedy}")
    took = f"{result.updates} updates and {result.seconds:.0f} s"
    console.print(f"{result.policy} after {took}: {result.stopped}", highlight=False)
    if result.planned is not None:
        console.print(compare_plan(result.planned), highlight=False)
    if result.undiagnosed is not None and not result.findings:
        console.print(result.undiagnosed, highlight=False)
    if result.best is None:
        console.print("no version is known to be the best: nothing succeeded, or too few updates tell", highlight=False)
    elif result.best != result.policy:
        console.print(f"the best of those that were kept: {result.best}", highlight=False)
    console.print(f"curves and samples: {result.page}", highlight=False)
    console.print(f"who made it from what: loomrl policies show {result.policy}", highlight=False)


def _rows(comparison: Comparison) -> tuple[str, Sequence[tuple[str, ...]]]:
    before, after = comparison.before, comparison.after
    if "success" not in after["overall"]:
        from loomrl.experiments.evaluate_control import format_return

        return "Return", [("all", format_return(before["overall"]), format_return(after["overall"]))]
    rows = [("all", _cell(before["overall"]), _cell(after["overall"]))]
    for name in after["by_family"]:
        rows.append((name, _cell(before["by_family"].get(name)), _cell(after["by_family"][name])))
    return "Success on held-out tasks", rows


def _cell(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return "–"
    success = score["success"]
    failed = f"  {score['failures']} failed" if score["failures"] else ""
    mean = "–" if success["mean"] is None else f"{success['mean']:.3f}  [{success['low']:.3f}, {success['high']:.3f}]"
    return mean + failed
