"""Training of a language policy: warm start, evaluation, updates, evaluation again."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from loomrl.config import Experiment
from loomrl.config.evaluation import Way
from loomrl.errors import StoreError
from loomrl.evaluation.report import judge
from loomrl.experiments.summary import RunSummary
from loomrl.experiments.training import Listener
from loomrl.files import write_whole
from loomrl.gym.held_out import list_left_out
from loomrl.run.record import run_folder
from loomrl.store import LoomDB
from loomrl.store.policies import Evaluation, record_evaluation
from loomrl.store.runs import Claim
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.progress import progress
from loomrl.telemetry.report import Answer, AnswerPair, Comparison
from loomrl.types import End, Trajectory

SHOWN = 8
"""Tasks whose attempts the page shows, before and after."""
Judged = dict[str, dict[str, Any]]
"""Way of sampling → report, shown attempts and time, as JSON."""


class LanguageTraining:
    """A run of a language policy, update by update."""

    def __init__(
        self, algo: Any, experiment: Experiment, db: LoomDB, *, taken: Mapping[str, Any] | None = None
    ) -> None:
        self.algo = algo
        self.listen: Listener = lambda done, metrics: None
        self._experiment = experiment
        self._db = db
        self._before: Judged = {}
        self._after: Judged = {}
        self._asked: str | None = None
        algo.listen = lambda done, metrics: self.listen(done, metrics)
        if taken is not None:
            algo.take_over(taken["folder"])
            algo.keep()

    @property
    def claim(self) -> Claim:
        """Ours on the run."""
        claim: Claim = self.algo.claim
        return claim

    @property
    def done(self) -> int:
        """Updates."""
        return int(self.algo.collector.done)

    @property
    def limit(self) -> int:
        """Updates in all."""
        return int(self.algo.collector.limit)

    @property
    def stopped(self) -> str | None:
        """The reason why the run is over; None while it is not."""
        stopped: str | None = self.algo.stopped or self.algo.collector.over or self._asked
        return stopped

    def begin(self) -> None:
        """Resume; or warm up, and keep what reinforcement begins with."""
        with progress("warm start", self.algo.config.algorithm.warm_start.steps) as report:
            self.algo.warm_up(report)

    def update(self) -> None:
        """One update; the algorithm keeps what is due."""
        self.algo.train()

    def stop(self, reason: str) -> None:
        """Keep the present version; what is under way is thrown away."""
        self.algo.keep()
        self._asked = reason

    def keep(self) -> str:
        """The present version's id, of which there is a checkpoint from now on."""
        version: str = self.algo.keep()
        return version

    def state(self) -> dict[str, Any]:
        """The algorithm knows everything."""
        return {}

    def judge(self) -> None:
        """Evaluate version 0, and at the end the last one."""
        folder = run_folder(self._experiment.train, self.algo.collector.run)
        self._before = _judged(self.algo, self._experiment, folder, self._db, number=0)
        if self.stopped is not None:
            self._after = _judged(self.algo, self._experiment, folder, self._db, number=self.done)

    def summary(self) -> RunSummary:
        """The run's summary."""
        before, after = self._before, self._after
        return RunSummary(
            updates=self.done,
            last=self.done,
            best=self.algo.kept.get("best"),
            stopped=str(self.stopped),
            unit="updates",
            before={name: judged["report"]["overall"]["success"]["mean"] for name, judged in before.items()},
            after={name: judged["report"]["overall"]["success"]["mean"] for name, judged in after.items()},
            comparisons=tuple(
                Comparison(name=name, before=before[name]["report"], after=after[name]["report"]) for name in after
            ),
            samples=_samples(before, after),
        )

    def note(self, metrics: Mapping[str, float]) -> str:
        """Success where it is known, reward, entropy, speed."""
        shown = [f"success {metrics[Metric.SUCCESS]:.2f}"] if Metric.SUCCESS in metrics else []
        shown.append(f"reward {metrics[Metric.REWARD_TOTAL]:.2f}")
        if Metric.EVALUATED in metrics:
            shown.append(f"held out {metrics[Metric.EVALUATED]:.2f}")
        if Metric.POLICY_ENTROPY in metrics:
            shown.append(f"entropy {metrics[Metric.POLICY_ENTROPY]:.2f}")
        shown.append(f"{metrics[Metric.ENGINE_TOKENS_PER_S]:,.0f} tokens/s")
        return "  ".join(shown)

    def close(self) -> None:
        """Let go of the algorithm."""
        self.algo.stop()


def _judged(algo: Any, experiment: Experiment, folder: Path, db: LoomDB, *, number: int) -> Judged:
    """The evaluation of version `number`: made once, kept beside the metrics, recorded however often it is asked."""
    file = folder / f"judged-{number:06d}.json"
    if not file.exists():
        if number != algo.collector.done:
            raise StoreError(
                f"{file} is gone: run {algo.collector.run} is past version {number}. Train under a new --run."
            )
        write_whole(file, json.dumps(_judge_now(algo, experiment)).encode())
    judged: Judged = json.loads(file.read_text())
    run = algo.collector.run
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
    judged: Judged = {}
    for name in get_args(Way):
        attempts = algo.evaluations.attempts(algo.collector.done, name)
        title = f"{algo.collector.run}/{algo.collector.done} {name}"
        judged[name] = {
            "report": judge(
                title,
                attempts,
                confidence=experiment.evaluation.confidence,
                left_out=list_left_out(algo.collector.mixture, [attempt.task for attempt in attempts]),
            ).as_dict(),
            "attempts": [_shown(attempt) for attempt in attempts[:: -(-len(attempts) // SHOWN)]],
            "created_at": time.time(),
        }
    return judged


def _shown(attempt: Trajectory) -> dict[str, Any]:
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
