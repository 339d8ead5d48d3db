"""`loomrl train`: warm start, judgement, updates, judgement again; all of it on record, on the screen and on a page."""

import gc
import json
import os
import platform
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.algorithms import open_algorithm, ray_running
from experiments.output import table
from loomrl.config import Experiment, Sampling
from loomrl.errors import ConfigError, StoreError
from loomrl.evaluation.report import judge
from loomrl.load import dump, parse_yaml
from loomrl.store import LoomDB, open_store
from loomrl.store.evaluations import Evaluation, record_evaluation
from loomrl.store.runs import RunStatus, finish_run, list_runs, show_run
from loomrl.telemetry.diagnosis import Finding, diagnose
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.page import Answer, RunReport, Sample, render_page
from loomrl.telemetry.page_table import Comparison
from loomrl.telemetry.progress import progress
from loomrl.telemetry.sink import metrics_file, open_sinks, read_metrics
from loomrl.types import End, Trajectory

SHOWN = 8
"""Tasks whose attempts the page shows, before and after."""
Judged = dict[str, dict[str, Any]]
"""Way of sampling → report, shown attempts and time, as JSON."""


@dataclass(frozen=True, slots=True)
class TrainResult:
    """How a run went."""

    run: str
    updates: int
    policy: str
    stopped: str
    """Why it is over."""
    seconds: float
    before: Mapping[str, float | None]
    """Success on held-out tasks before the first update, by way of sampling."""
    after: Mapping[str, float | None]
    page: str
    findings: tuple[Finding, ...] = ()
    comparisons: tuple[Comparison, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def train(experiment: Experiment, *, run: str | None = None, clock: Callable[[], float] = time.time) -> TrainResult:
    """Train until a reason to stop or the last update. A run that exists already goes on where it was."""
    run = run or f"{experiment.name}-{uuid.uuid4().hex[:8]}"
    config = open_algorithm(experiment, run=run)
    with ray_running(1 + config.needed_cpus), open_store(experiment.store_url) as db:
        algo = config.build_algo()
        gc.collect()
        gc.freeze()  # torch, transformers and Ray are a million objects that no later collection need look at
        try:
            result = _train(algo, experiment, run, db, clock)
        except BaseException as error:
            if any(known.id == run for known in list_runs(db, kind="train")):
                finish_run(db, run, status=RunStatus.FAILED, finished_at=clock(), result={"error": repr(error)})
            raise
        finally:
            algo.stop()
        finish_run(db, run, status=RunStatus.FINISHED, finished_at=clock(), result=result.as_dict())
        return result


def resumed(experiment: Experiment, run: str | None) -> tuple[Experiment, str]:
    """The run to go on with, and its own experiment: the latest of this name, where none is given."""
    with open_store(experiment.store_url) as db:
        if run is None:
            latest = [known for known in list_runs(db, kind="train") if known.name == experiment.name]
            if not latest:
                raise ConfigError(f"--resume: no run of {experiment.name!r} in {experiment.store_url}.")
            run = latest[0].id
        recorded = show_run(db, run)
    return Experiment.parse(parse_yaml(recorded.resolved, origin=f"run {run}"), origin=f"run {run}"), run


def _train(algo: Any, experiment: Experiment, run: str, db: LoomDB, clock: Callable[[], float]) -> TrainResult:
    begun, folder = clock(), Path(experiment.train.folder) / run
    folder.mkdir(parents=True, exist_ok=True)
    with progress("warm start", algo.config.algorithm.warm_start.steps) as report:
        algo.warm_up(report)
    before = _judged(algo, experiment, folder, db, number=0)
    _updates(algo, experiment, run)
    after = _judged(algo, experiment, folder, db, number=algo.line.done)
    history = read_metrics(metrics_file(experiment.train, run))
    comparisons = tuple(
        Comparison(name=name, before=before[name]["report"], after=after[name]["report"]) for name in after
    )
    stopped = algo.stopped or "nothing left to do"
    page = RunReport(
        title=experiment.name,
        run=run,
        experiment=experiment.sha256,
        machine=_machine(),
        date=time.strftime("%Y-%m-%d %H:%M", time.localtime(begun)),
        duration_s=clock() - begun,
        status=stopped,
        history=history,
        comparisons=comparisons,
        samples=_samples(before, after),
        resolved=dump(experiment),
    )
    (folder / "report.html").write_text(render_page(page), encoding="utf-8")
    return TrainResult(
        run=run,
        updates=algo.line.done,
        policy=f"{run}/{algo.line.done}",
        stopped=stopped,
        seconds=round(clock() - begun, 1),
        before={name: judged["report"]["overall"]["success"]["mean"] for name, judged in before.items()},
        after={name: judged["report"]["overall"]["success"]["mean"] for name, judged in after.items()},
        page=str(folder / "report.html"),
        findings=tuple(diagnose(history)),
        comparisons=comparisons,
    )


def _updates(algo: Any, experiment: Experiment, run: str) -> None:
    """Update after update until there is a reason to stop; metrics are written before their checkpoint counts."""
    updates = experiment.train.updates
    if algo.line.done >= updates:
        return
    resolved = experiment.model_dump(mode="json")
    with (
        open_sinks(experiment.train, run=run, experiment=resolved, step=algo.line.done) as sink,
        progress(f"train {run}", updates) as report,
    ):

        def listen(done: int, metrics: Mapping[str, float]) -> None:
            sink.write(done, metrics)
            report(done, _note(metrics))

        algo.listen = listen
        while algo.stopped is None:
            algo.train()


def _note(metrics: Mapping[str, float]) -> str:
    shown = [f"success {metrics[Metric.SUCCESS]:.2f}", f"reward {metrics[Metric.REWARD_TOTAL]:.2f}"]
    if Metric.POLICY_ENTROPY in metrics:
        shown.append(f"entropy {metrics[Metric.POLICY_ENTROPY]:.2f}")
    shown.append(f"{metrics[Metric.ENGINE_TOKENS_PER_S]:,.0f} tokens/s")
    return "  ".join(shown)


def _judged(algo: Any, experiment: Experiment, folder: Path, db: LoomDB, *, number: int) -> Judged:
    """What is known of version `number`: judged once, kept beside the metrics, on record however often it is asked."""
    file = folder / f"judged-{number:06d}.json"
    if not file.exists():
        if number != algo.line.done:
            raise StoreError(f"{file} is gone: run {algo.line.run} is past version {number}. Train under a new --run.")
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps(_judge_now(algo, experiment)))
        unfinished.replace(file)
    judged: Judged = json.loads(file.read_text())
    run = algo.line.run
    for name, way in judged.items():
        record_evaluation(
            db,
            Evaluation(
                id=f"{run}/{number}/{name}",
                report=way["report"],
                created_at=way["created_at"],
                run=run,
                policy=f"{run}/{number}",
            ),
        )
    return judged


def _judge_now(algo: Any, experiment: Experiment) -> Judged:
    """The present policy on the held-out tasks, greedily and as it samples in training."""
    sampling: Sampling = algo.config.algorithm.sampling
    ways = {"greedy": sampling.model_copy(update={"temperature": 0.0, "top_p": 1.0}), "sampled": sampling}
    judged: Judged = {}
    for name, way in ways.items():
        attempts = algo.trial(f"{name}-{algo.line.done}", experiment.evaluation, way)
        title = f"{algo.line.run}/{algo.line.done} {name}"
        judged[name] = {
            "report": judge(title, attempts, confidence=experiment.evaluation.confidence).as_dict(),
            "attempts": [_shown(attempt) for attempt in attempts[:: -(-len(attempts) // SHOWN)]],
            "created_at": time.time(),
        }
    return judged


def _shown(attempt: Trajectory) -> dict[str, Any]:
    said = "\n".join(turn.action for turn in attempt.turns)
    asked = "\n".join(message.content for message in attempt.turns[0].observation) if attempt.turns else ""
    failed = attempt.end is End.FAILED
    return {
        "task": f"{attempt.task.environment}/{attempt.task.family}, level {attempt.task.level}",
        "seed": attempt.task.seed,
        "prompt": asked,
        "text": f"failed: {attempt.failure}" if failed else said,
        "reward": attempt.reward.total,
        "success": attempt.reward.success,
    }


def _samples(before: Judged, after: Judged) -> list[Sample]:
    """The same tasks, answered before and after."""
    earlier = {(shown["task"], shown["seed"]): shown for shown in before["sampled"]["attempts"]}
    return [
        Sample(
            task=shown["task"],
            prompt=shown["prompt"],
            before=_answer(earlier.get((shown["task"], shown["seed"]))),
            after=_answer(shown),
        )
        for shown in after["sampled"]["attempts"]
    ]


def _answer(shown: Mapping[str, Any] | None) -> Answer | None:
    if shown is None:
        return None
    return Answer(text=shown["text"], reward=shown["reward"], success=shown["success"])


def _machine() -> str:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{os.cpu_count()} cores, {', '.join(gpus) or 'no GPU'}, {platform.system()}, torch {torch.__version__}"


def render(result: TrainResult, console: Console) -> None:
    """Before and after per family, what the doctor says, and where to go on."""
    for comparison in result.comparisons:
        title = f"Success on held-out tasks, {comparison.name}"
        console.print(table(title, ("", "before>", "after>"), _rows(comparison)))
        console.print()
    for finding in result.findings:
        console.print(f"[yellow]{finding.name}[/yellow]: {finding.evidence} {finding.remedy}")
    took = f"{result.updates} updates and {result.seconds:.0f} s"
    console.print(f"{result.policy} after {took}: {result.stopped}", highlight=False)
    console.print(f"curves and samples: {result.page}", highlight=False)
    console.print(f"who made it from what: loomrl lineage {result.policy}", highlight=False)


def _rows(comparison: Comparison) -> Sequence[tuple[str, ...]]:
    before, after = comparison.before, comparison.after
    rows = [("all", _cell(before["overall"]), _cell(after["overall"]))]
    for name in after["by_family"]:
        rows.append((name, _cell(before["by_family"].get(name)), _cell(after["by_family"][name])))
    return rows


def _cell(score: Mapping[str, Any] | None) -> str:
    if score is None or score["success"]["mean"] is None:
        return "–"
    success = score["success"]
    return f"{success['mean']:.3f}  [{success['low']:.3f}, {success['high']:.3f}]"
