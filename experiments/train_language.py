"""Training of a language policy: warm start, judgement, updates, judgement again."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loomrl.config import Experiment, Sampling
from loomrl.errors import StoreError
from loomrl.evaluation.report import judge
from loomrl.experiments.outcome import Listener, Outcome
from loomrl.files import write_whole
from loomrl.store import LoomDB
from loomrl.store.evaluations import Evaluation, record_evaluation
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.page import Answer, Sample
from loomrl.telemetry.page_table import Comparison
from loomrl.telemetry.progress import progress
from loomrl.telemetry.sink import open_sinks
from loomrl.types import End, Trajectory

SHOWN = 8
"""Tasks whose attempts the page shows, before and after."""
Judged = dict[str, dict[str, Any]]
"""Way of sampling → report, shown attempts and time, as JSON."""


def go(algo: Any, experiment: Experiment, run: str, db: LoomDB, listener: Listener | None = None) -> Outcome:
    """Train until a reason to stop or the last update."""
    folder = Path(experiment.train.folder) / run
    with progress("warm start", algo.config.algorithm.warm_start.steps) as report:
        algo.warm_up(report)
    before = _judged(algo, experiment, folder, db, number=0)
    _updates(algo, experiment, run, listener)
    after = _judged(algo, experiment, folder, db, number=algo.line.done)
    return Outcome(
        updates=algo.line.done,
        last=algo.line.done,
        best=algo.line.kept["best"],
        stopped=algo.stopped or "nothing left to do",
        unit="updates",
        before={name: judged["report"]["overall"]["success"]["mean"] for name, judged in before.items()},
        after={name: judged["report"]["overall"]["success"]["mean"] for name, judged in after.items()},
        comparisons=tuple(
            Comparison(name=name, before=before[name]["report"], after=after[name]["report"]) for name in after
        ),
        samples=_samples(before, after),
    )


def _updates(algo: Any, experiment: Experiment, run: str, listener: Listener | None) -> None:
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
            if listener is not None:
                listener(done, metrics)

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
        write_whole(file, json.dumps(_judge_now(algo, experiment)).encode())
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
    asked = "\n".join(message.text for message in attempt.turns[0].observation) if attempt.turns else ""
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
