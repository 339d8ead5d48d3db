"""One trial of a sweep, as Tune runs it: a run of `loomrl train` that can be stopped, gone on with, and taken over.

A trial goes on with its own run by what that run stored: nothing is trained twice. Tune's checkpoints are for others,
which take its weights over and begin a run of their own, whose parent is the version in the checkpoint.
"""

import json
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from ray import tune

from loomrl.canonical import content_hash
from loomrl.config import AnyExperiment, ControlExperiment, Experiment
from loomrl.config.sweep import Sweep
from loomrl.errors import ConfigError, did_you_mean
from loomrl.experiments.algorithms import open_algorithm
from loomrl.experiments.train_control import open_course
from loomrl.schema import Tree
from loomrl.store import LoomDB, open_store
from loomrl.store.policies import list_policies
from loomrl.store.runs import RunStatus, find_run, finish_run
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import Sink, metrics_file, open_sinks, read_metrics

SCORE, STEP, RUN, STOPPED, FAILED = "score", "step", "run", "stopped", "failed"
"""What a trial reports to Tune: how good it is, how far, in which run, why it is over, how many attempts failed."""
ALGORITHM, TAKEN = "algorithm", "trial.json"
"""In a checkpoint."""


class Trial(tune.Trainable):  # type: ignore[misc]
    """Built when it is first needed: only then is it known whether it takes another's weights over."""

    def setup(self, config: Mapping[str, Any], *, sweep: Tree, id: str) -> None:
        """`config` is a point of the space; `id` names the sweep."""
        self._sweep, self._id = Sweep.parse(sweep), id
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
        """All that another trial needs to go on from here, and which version that is."""
        going = self._begun
        taken = going.save(Path(folder)) | {"trial": self.trial_id, "experiment": self._experiment.sha256}
        (Path(folder) / TAKEN).write_text(json.dumps(taken))

    def load_checkpoint(self, folder: str) -> None:
        """Go on with our own run, or begin one with what another trial has learnt."""
        taken = json.loads((Path(folder) / TAKEN).read_text())
        if taken["trial"] == self.trial_id and taken["experiment"] == self._experiment.sha256:
            self._going = Going(self._experiment, taken[RUN], self._sweep)
            return
        run = self._run_from(taken["version"])
        self._going = Going(self._experiment, run, self._sweep, taken=taken | {"folder": folder})

    def cleanup(self) -> None:
        """Let go of everything; whoever ended the trial says what became of its run."""
        if self._going is not None:
            self._going.close()

    def _run_from(self, parent: str | None) -> str:
        """Of a run: the same for the same trial, experiment and origin, so that it is found again after a kill."""
        return f"{trial_prefix(self._id, self.trial_id)}{content_hash([self._experiment.sha256, parent])[:6]}"


def trial_prefix(sweep: str, trial_id: str) -> str:
    """How the names of all runs of a trial begin."""
    return f"{sweep}-{trial_id.rpartition('_')[2]}-"


class Going:
    """A run in progress, of either kind, with its metrics and its score. One that had ended is only looked at."""

    def __init__(
        self, experiment: AnyExperiment, run: str, sweep: Sweep, *, taken: Mapping[str, Any] | None = None
    ) -> None:
        self.experiment, self.run, self._sweep = experiment, run, sweep
        self._db = open_store(experiment.store_url)
        self._course: Language | Control | None = None
        self.ended = _why_ended(self._db, run)
        """Why there is nothing left to do."""
        if self.ended is None:
            fresh = taken is not None and not list_policies(self._db, run=run, limit=1)
            self._course = _open_course(experiment, run, self._db, taken if fresh else None)
            self.ended = self._course.ended
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
        if self._course is not None:
            return self._course.done
        return max((line["step"] for line in read_metrics(metrics_file(self.experiment.train, self.run))), default=0)

    @property
    def score(self) -> float | None:
        """Mean of the metric over its latest lines; None until there is one."""
        return sum(self._latest) / len(self._latest) if self._latest else None

    def update(self) -> None:
        """One more line of metrics."""
        assert self._course is not None
        metrics = self._course.update()
        self._seen |= {str(name) for name in metrics}
        self.failed += metrics.get(Metric.FAILURES, 0.0)
        if self._metric in metrics:
            self._latest.append(metrics[self._metric])
        self.ended = self._course.ended
        if self.ended is not None:
            result = {"sweep": self._sweep.name, "stopped": self.ended, "updates": self.done, "score": self.score}
            status = RunStatus.FINISHED if self.score is not None else RunStatus.FAILED
            finish_run(self._db, self.run, status=status, finished_at=time.time(), result=result)

    def result(self) -> dict[str, Any]:
        """What Tune is told; a ConfigError where the run has ended without ever telling the metric."""
        if self.score is None:
            raise ConfigError(
                f"metric={self._metric!r}: run {self.run} never told it. It told: {', '.join(sorted(self._seen))}."
                + did_you_mean(self._metric, self._seen)
            )
        told = {SCORE: self.score, STEP: self.done, RUN: self.run, "done": self.ended is not None}
        return told | {STOPPED: self.ended or "", FAILED: int(self.failed)}

    def save(self, folder: Path) -> dict[str, Any]:
        """The algorithm's checkpoint, of a version that is on record."""
        assert self._course is not None
        version = self._course.keep()
        self._course.algo.save_to_path(str(folder / ALGORITHM))
        return {"version": version, RUN: self.run, **self._course.state()}

    def close(self) -> None:
        """Let go of learners, runners and stores."""
        if self._course is not None:
            self._course.close()
        self._db.close()


class Language:
    """A run of a language policy, update by update."""

    def __init__(self, experiment: Experiment, run: str, taken: Mapping[str, Any] | None) -> None:
        self.algo = open_algorithm(experiment, run=run).build_algo()
        if taken is not None:
            self.algo.take_over(f"{taken['folder']}/{ALGORITHM}")
            self.algo.keep()
        self.algo.warm_up()
        self._sink = _sink(experiment, run, self.algo.line.done)
        self._metrics: Mapping[str, float] = {}
        self.algo.listen = self._listen
        self._limit = experiment.train.updates

    def _listen(self, done: int, metrics: Mapping[str, float]) -> None:
        self._sink.write(done, metrics)
        self._metrics = metrics

    def update(self) -> Mapping[str, float]:
        """The metrics of another update."""
        self.algo.train()
        return self._metrics

    @property
    def done(self) -> int:
        """Updates."""
        return int(self.algo.line.done)

    @property
    def ended(self) -> str | None:
        """Why it is over."""
        if self.algo.stopped is None and self.done >= self._limit:
            return f"all {self.done} updates done"
        stopped: str | None = self.algo.stopped
        return stopped

    def keep(self) -> str:
        """The present version's id."""
        version: str = self.algo.keep()
        return version

    def state(self) -> dict[str, Any]:
        """Nothing that the algorithm does not know."""
        return {}

    def close(self) -> None:
        """Let go of the algorithm."""
        self._sink.close()
        self.algo.stop()


class Control:
    """A run of a control policy, update by update."""

    def __init__(self, experiment: ControlExperiment, run: str, db: LoomDB, taken: Mapping[str, Any] | None) -> None:
        self.algo = open_algorithm(experiment, run=run).build_algo()
        parent = None if taken is None else taken["version"]
        self._course = open_course(self.algo, experiment, run, db, time.time, parent=parent)
        if taken is not None:
            self.algo.take_over(f"{taken['folder']}/{ALGORITHM}")
            self._course.done, self._course.stage = self.algo.env_steps, taken["stage"]
        self._course.begin()
        self._sink = _sink(experiment, run, self._course.done)

    def update(self) -> Mapping[str, float]:
        """The metrics of another update."""
        metrics = self._course.update()
        self._sink.write(self._course.done, metrics)
        self._course.keep()
        return metrics

    @property
    def done(self) -> int:
        """Steps."""
        return self._course.done

    @property
    def ended(self) -> str | None:
        """Why it is over."""
        return self._course.stopped

    def keep(self) -> str:
        """The present version's id."""
        self._course.keep(now=True)
        return f"{self._course.run}/{self._course.done}"

    def state(self) -> dict[str, Any]:
        """What the algorithm does not know."""
        return {"stage": self._course.stage}

    def close(self) -> None:
        """Let go of the algorithm."""
        self._sink.close()
        self.algo.stop()


def _open_course(
    experiment: AnyExperiment, run: str, db: LoomDB, taken: Mapping[str, Any] | None
) -> Language | Control:
    if isinstance(experiment, ControlExperiment):
        return Control(experiment, run, db, taken)
    return Language(experiment, run, taken)


def _sink(experiment: AnyExperiment, run: str, done: int) -> Sink:
    return open_sinks(experiment.train, run=run, experiment=experiment.model_dump(mode="json"), step=done)


def _why_ended(db: LoomDB, run: str) -> str | None:
    """What was said when the run finished; None where it has not."""
    known = find_run(db, run)
    if known is None or known.status is not RunStatus.FINISHED:
        return None
    return str(known.result.get("stopped", "finished"))
