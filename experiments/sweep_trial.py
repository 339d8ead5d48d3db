"""One trial of a sweep, as Tune runs it: a run of `loomrl train` that can be stopped, resumed, and taken over.

A trial resumes its own run from the run's checkpoints: nothing is trained twice. Tune's checkpoints are for others,
which take its weights over and begin a run of their own, whose parent is the version in the checkpoint.
"""

import json
import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from ray import tune

from loomrl.canonical import content_hash
from loomrl.config import AnyExperiment
from loomrl.config.sweep import Sweep
from loomrl.errors import ConfigError, did_you_mean
from loomrl.experiments.kinds import open_training
from loomrl.experiments.training import Training, metrics_kept
from loomrl.schema import Tree
from loomrl.store import RECONNECT_S, LoomDB, open_store
from loomrl.store.runs import POLICIES, RUNS, RunStatus, finish_run
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics

SCORE = "score"
STEP = "step"
RUN = "run"
STOPPED = "stopped"
FAILED = "failed"
"""A trial's report to Tune: its score, its progress, its run, the reason for its end, its failed attempts."""
ALGORITHM = "algorithm"
TAKEN = "trial.json"
"""In a checkpoint."""


class Trial(tune.Trainable):
    """Built when it is first needed: only then is it known whether it takes another's weights over."""

    def setup(self, config: Mapping[str, Any], *, sweep: Tree, id: str) -> None:
        """`config` is a point of the space; `id` names the sweep."""
        self._sweep = Sweep.parse(sweep)
        self._id = id
        self._experiment = self._sweep.at(config)
        self._going: Going | None = None
        torch.set_num_threads(1)

    def reset_config(self, new_config: Mapping[str, Any]) -> bool:
        """Become another trial, or the same one with other settings, in a process that has loaded everything."""
        self.cleanup()
        self._going, self._experiment = None, self._sweep.at(new_config)
        return True

    @property
    def _begun(self) -> "Going":
        if self._going is None:
            self._going = Going(self._experiment, self._run_from(None), self._sweep)
        return self._going

    def step(self) -> dict[str, Any]:
        """Updates until there is a score to tell; the last one tells that the trial is done."""
        going = self._begun
        while not going.ended:
            going.update()
            if going.score is not None:
                break
        return going.result()

    def save_checkpoint(self, folder: str) -> None:
        """Save all that another trial needs to continue from here, and the version's id."""
        going = self._begun
        taken = going.save(Path(folder)) | {"trial": self.trial_id, "experiment": self._experiment.sha256}
        (Path(folder) / TAKEN).write_text(json.dumps(taken))

    def load_checkpoint(self, folder: str) -> None:
        """Resume our own run, or begin one with another trial's weights."""
        taken = json.loads((Path(folder) / TAKEN).read_text())
        if taken["trial"] == self.trial_id and taken["experiment"] == self._experiment.sha256:
            self._going = Going(self._experiment, taken[RUN], self._sweep)
            return
        run = self._run_from(taken["version"])
        self._going = Going(self._experiment, run, self._sweep, taken=taken | {"folder": f"{folder}/{ALGORITHM}"})

    def cleanup(self) -> None:
        """Release all resources; the caller that ended the trial records the outcome of its run."""
        if self._going is not None:
            self._going.close()

    def _run_from(self, parent: str | None) -> str:
        """A run name that follows from trial, experiment and origin, so that it is found again after a kill."""
        prefix = trial_prefix(self._id, self.trial_id)
        return f"{prefix}{content_hash([self._experiment.sha256, parent])[:6]}"


def trial_prefix(sweep: str, trial_id: str) -> str:
    """The common prefix of the names of all runs of a trial."""
    return f"{sweep}-{trial_id.rpartition('_')[2]}-"


class Going:
    """A run in progress, of either kind, with its metrics and its score. One that had ended is only looked at."""

    def __init__(
        self, experiment: AnyExperiment, run: str, sweep: Sweep, *, taken: Mapping[str, Any] | None = None
    ) -> None:
        self.experiment = experiment
        self.run = run
        self._sweep = sweep
        self._db = open_store(experiment.store_url, reconnect_s=RECONNECT_S)
        self._training: Training | None = None
        self._open = ExitStack()
        self.ended = _why_ended(self._db, run)
        """The reason why nothing is left to do; None while something is."""
        if self.ended is None:
            fresh = taken is not None and not POLICIES.latest(self._db, run=run, limit=1)
            training = open_training(experiment, run, self._db, clock=time.time, taken=taken if fresh else None)
            self._training = training
            self._open.callback(training.stop)
            training.begin()
            self._write = self._open.enter_context(metrics_kept(training, experiment, run, self._db))
            training.listen = self._listen
            self.ended = training.stopped
        history = [line for line in read_metrics(metrics_file(experiment.train, run)) if line["step"] <= self.done]
        self._latest = deque((line[self._metric] for line in history if self._metric in line), sweep.window)
        self._seen = {name for line in history for name in line}
        self.failed = sum(line.get(Metric.FAILURES, 0.0) for line in history)
        """Attempts of all updates: the score is over the others."""

    @property
    def _metric(self) -> str:
        return self._sweep.judged_by

    @property
    def done(self) -> float:
        """Updates or steps."""
        if self._training is not None:
            return self._training.done
        return max((line["step"] for line in read_metrics(metrics_file(self.experiment.train, self.run))), default=0)

    @property
    def score(self) -> float | None:
        """Mean of the metric over its latest lines; None until there is one."""
        return sum(self._latest) / len(self._latest) if self._latest else None

    def update(self) -> None:
        """One more line of metrics."""
        assert self._training is not None
        self._training.train()
        self.ended = self._training.stopped
        if self.ended is not None:
            result = {"sweep": self._sweep.name, "stopped": self.ended, "updates": self.done, "score": self.score}
            status = RunStatus.FINISHED if self.score is not None else RunStatus.FAILED
            claim = self._training.claim
            finish_run(self._db, self.run, status=status, finished_at=time.time(), result=result, claim=claim)

    def _listen(self, done: int, metrics: Mapping[str, float]) -> None:
        self._write(done, metrics)
        self._seen |= {str(name) for name in metrics}
        self.failed += metrics.get(Metric.FAILURES, 0.0)
        if self._metric in metrics:
            self._latest.append(metrics[self._metric])

    def result(self) -> dict[str, Any]:
        """The report to Tune; a ConfigError if the run has ended without ever logging the metric."""
        if self.score is None:
            raise ConfigError(
                f"metric={self._metric!r}: run {self.run} never told it. It told: {', '.join(sorted(self._seen))}."
                + did_you_mean(self._metric, self._seen)
            )
        told = {SCORE: self.score, STEP: self.done, RUN: self.run, "done": self.ended is not None}
        return told | {STOPPED: self.ended or "", FAILED: int(self.failed)}

    def save(self, folder: Path) -> dict[str, Any]:
        """The algorithm's checkpoint, of a version that is on record."""
        assert self._training is not None
        version = self._training.keep()
        self._training.save_to_path(str(folder / ALGORITHM))
        return {"version": version, RUN: self.run}

    def close(self) -> None:
        """Let go of learners, runners and stores."""
        self._open.close()
        self._db.close()


def _why_ended(db: LoomDB, run: str) -> str | None:
    """The reason recorded when the run finished; None if it has not."""
    known = RUNS.find(db, run)
    if known is None or known.status is not RunStatus.FINISHED:
        return None
    return str(known.result.get("stopped", "finished"))
