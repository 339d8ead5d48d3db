"""Reports of a language policy before and after its training."""

import json
import time
from collections.abc import Mapping
from typing import Any, get_args

from loomrl.config import Experiment
from loomrl.config.evaluation import Way
from loomrl.errors import StoreError
from loomrl.evaluation.report import judge
from loomrl.experiments.summary import RunSummary
from loomrl.files import write_whole
from loomrl.gym.held_out import list_left_out
from loomrl.hub.codec import encode
from loomrl.run.record import run_folder
from loomrl.store import LoomDB
from loomrl.store.policies import Evaluation, record_evaluation
from loomrl.store.runs import POLICIES
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.progress import progress
from loomrl.telemetry.report import Answer, AnswerPair, Comparison
from loomrl.types import End, Trajectory

SHOWN = 8
"""Tasks whose attempts the page shows, before and after."""
NOTED = {
    "success": Metric.SUCCESS,
    "reward": Metric.REWARD_TOTAL,
    "loss": Metric.SUPERVISED_LOSS,
    "held out": Metric.EVALUATED,
    "held-out loss": Metric.EVALUATED_LOSS,
    "entropy": Metric.POLICY_ENTROPY,
}
SPEEDS = (Metric.ENGINE_TOKENS_PER_S, Metric.LEARNER_TOKENS_PER_S)
"""The first of these that an update has is on its line."""
Judged = dict[str, dict[str, Any]]
"""Way of sampling → report, shown attempts and time, as JSON; and `LOSS`, if there are held-out conversations."""
LOSS = "loss"


class LanguageReporter:
    """The results of a language policy: the run's first version and the last one, on the held-out tasks."""

    def __init__(self, algo: Any, experiment: Experiment, db: LoomDB) -> None:
        self._algo = algo
        self._experiment = experiment
        self._db = db
        self._before: Judged = {}

    def begin(self) -> None:
        """Resume, or warm up; then judge the first version."""
        with progress("warm start", self._algo.config.algorithm.warm_start.steps) as report:
            self._algo.begin(report)
        self._before = self._judge(self._first())

    def _first(self) -> int:
        """0; of a fork the version that it began with."""
        versions = POLICIES.select(run=self._algo.source.run).order_by(POLICIES.c.number)
        first = POLICIES.first(self._db, versions)
        assert first is not None, "it is on record since the run began"
        return first.number

    def summary(self) -> RunSummary:
        """The run's summary, with an evaluation of its last version."""
        before = self._before
        after = self._judge(self._algo.done)
        return RunSummary(
            updates=self._algo.done,
            last=self._algo.done,
            best=self._algo.kept.get("best"),
            stopped=str(self._algo.stopped),
            unit="updates",
            before=_figures(before),
            after=_figures(after),
            comparisons=tuple(
                Comparison(name=name, before=before[name]["report"], after=way["report"])
                for name, way in after.items()
                if name != LOSS
            ),
            samples=_samples(before, after),
        )

    def note(self, metrics: Mapping[str, float]) -> str:
        """Success, reward, losses and entropy where they are known, and speed."""
        shown = [f"{word} {metrics[metric]:.2f}" for word, metric in NOTED.items() if metric in metrics]
        speed = next((metrics[metric] for metric in SPEEDS if metric in metrics), None)
        return "  ".join([*shown, *([] if speed is None else [f"{speed:,.0f} tokens/s"])])

    def _judge(self, number: int) -> Judged:
        """The evaluation of this version: made once, kept beside the metrics, recorded as often as it is asked for."""
        algo = self._algo
        run = algo.source.run
        file = run_folder(self._experiment.train, run) / f"judged-{number:06d}.json"
        if not file.exists():
            if number != algo.done:
                raise StoreError(f"{file} is gone: run {run} is past version {number}. Train under a new --run.")
            judged_now = _judge_now(algo, self._experiment)
            write_whole(file.with_suffix(".attempts"), b"".join(map(encode, _attempts(algo, self._experiment))))
            write_whole(file, json.dumps(judged_now).encode())
        judged: Judged = json.loads(file.read_text())
        version = f"{run}/{number}"
        for name, way in judged.items():
            if name == LOSS:
                continue
            about = {"report": way["report"], "created_at": way["created_at"], "run": run, "policy": version}
            record_evaluation(self._db, Evaluation(id=f"{version}/{name}", **about))
        return judged


def _judge_now(algo: Any, experiment: Experiment) -> Judged:
    """The present policy on the held-out tasks, greedily and as it samples in training, and its held-out loss."""
    loss = algo.evaluations.loss(algo.done)
    judged: Judged = {} if loss is None else {LOSS: {"mean": loss}}
    for name in get_args(Way) if experiment.environments else ():
        attempts = algo.evaluations.attempts(algo.done, name)
        title = f"{algo.source.run}/{algo.done} {name}"
        judged[name] = {
            "report": judge(
                title,
                attempts,
                confidence=experiment.evaluation.confidence,
                left_out=list_left_out(algo.source.mixture, [attempt.task for attempt in attempts]),
            ).as_dict(),
            "attempts": [_show(attempt) for attempt in attempts[:: -(-len(attempts) // SHOWN)]],
            "created_at": time.time(),
        }
    return judged


def _attempts(algo: Any, experiment: Experiment) -> list[Trajectory]:
    """All attempts of the evaluation of the present version, from which others can make its report again."""
    names = get_args(Way) if experiment.environments else ()
    return [attempt for name in names for attempt in algo.evaluations.attempts(algo.done, name)]


def _figures(judged: Judged) -> dict[str, float | None]:
    """Success by way of sampling, and the loss."""
    return {
        name: found["mean"] if name == LOSS else found["report"]["overall"]["success"]["mean"]
        for name, found in judged.items()
    }


def _show(attempt: Trajectory) -> dict[str, Any]:
    said = "\n".join(turn.action for turn in attempt.turns)
    asked = "\n".join(message.text for message in attempt.turns[0].observation) if attempt.turns else ""
    failed = attempt.end is End.FAILED
    level = attempt.task.level
    return {
        "task": f"{attempt.task.environment}/{attempt.task.family}" + f", level {level}" * bool(level),
        "seed": attempt.task.seed,
        "prompt": asked,
        "text": f"failed: {attempt.failure}" if failed else said,
        "reward": attempt.reward.total,
        "success": attempt.reward.success,
    }


def _samples(before: Judged, after: Judged) -> list[AnswerPair]:
    """The same tasks, answered before and after."""
    if "sampled" not in after:
        return []
    earlier = {(shown["task"], shown["seed"]): shown for shown in before["sampled"]["attempts"]}
    return [
        AnswerPair(
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
