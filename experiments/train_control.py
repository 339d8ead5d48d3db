"""Training of a control policy: updates, and between them evaluation, curriculum, checkpoints, and an end."""

import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from loomrl.algorithms.control.rollout import WINDOW
from loomrl.algorithms.timing import Phases
from loomrl.config import ControlExperiment
from loomrl.control.environment import label, snapshot
from loomrl.errors import ConfigError
from loomrl.experiments.evaluate_control import cut_lines, idle_return, judge_control, keep_film
from loomrl.experiments.summary import RunSummary
from loomrl.experiments.training import Listener
from loomrl.feedback.reward.onset import OnsetMonitor
from loomrl.run.ledger import VersionLedger
from loomrl.run.record import begin_run
from loomrl.run.stopping import Convergence
from loomrl.run.version import copied
from loomrl.store import LoomDB
from loomrl.store.policies import Evaluation, record_evaluation
from loomrl.store.runs import POLICIES, Claim
from loomrl.telemetry.metric import PHASES, Metric
from loomrl.telemetry.report import Comparison
from loomrl.threshold import SINGLE, reaches

_log = logging.getLogger(__name__)

STAGE = "loomrl_stage.txt"
"""The curriculum's stage, in a folder of `save_to_path`."""


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Have this many threads of torch and NumPy: their sums, also those of initial weights, depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


class ControlTraining:
    """A run of a control policy. `done` counts its environment steps, or its updates where it learns from logged data;
    it is the number of a version.

    Metrics are written before the checkpoint that has their steps: what a killed run wrote after its last checkpoint
    is cut off when it is resumed, and is made again.
    """

    def __init__(self, algo: Any, experiment: ControlExperiment, ledger: VersionLedger) -> None:
        self.algo = algo
        self.limit = experiment.train.steps
        self.listen: Listener = lambda done, metrics: None
        self.done = 0
        self.stage = 0
        """The stage of the curriculum."""
        self.judged: dict[str, dict[str, Any]] = {}
        """Reports of the `first` and the `last` evaluation."""
        self.experiment = experiment
        self._ledger = ledger
        self._unit = algo.unit
        self._stop: str | None = None
        """The reason to stop before `limit`."""
        self._is_due = False
        """True if a checkpoint is due now."""
        self._checkpoint_s = 0.0
        self._idle = idle_return(experiment)
        """Return of doing nothing, if an action does nothing."""
        self._convergence = Convergence(experiment.train.stop)
        self._onset = OnsetMonitor(unit="step")
        self._threads = ExitStack()
        self._threads.enter_context(fixed_threads(experiment.learners.threads))

    @classmethod
    def opened(
        cls,
        algo: Any,
        experiment: ControlExperiment,
        run: str,
        db: LoomDB,
        *,
        clock: Callable[[], float],
        taken: Mapping[str, Any] | None = None,
    ) -> Self:
        """The run on record, and what is trained in it."""
        logs = experiment.data
        parent = taken["version"] if taken is not None else experiment.parent
        about = {} if logs is None else logs.source
        environments = snapshot(experiment.environment)
        claim = begin_run(db, experiment, environments, id=run, kind="train", parent=parent)
        ledger = VersionLedger(
            experiment=experiment,
            db=db,
            clock=clock,
            claim=claim,
            file="course.json",
            data=lambda state: {**about, algo.unit: state["done"]},
            parent=parent,
        )
        training = cls(algo, experiment, ledger)
        if taken is not None:
            algo.take_over(taken["folder"])
            training.done = algo.progress
            training.stage = int((Path(taken["folder"]) / STAGE).read_text())
        return training

    @property
    def claim(self) -> Claim:
        """Ours on the run."""
        return self._ledger.claim

    @property
    def stopped(self) -> str | None:
        """The reason why the run is over; None while it is not."""
        return self._stop or (f"all {self.done:,} {self._unit} done" if self.done >= self.limit else None)

    def begin(self) -> None:
        """Resume; without any checkpoint, judge and keep what training begins with."""
        parent = self.experiment.parent
        if not self._resume():
            if parent is not None and self._ledger.parent == parent:
                self.algo.begin_with(copied(POLICIES.require(self._ledger.db, parent), self._ledger.db) / "algorithm")
            self.judged["first"] = self._evaluate()
            self._stop = self._enough(self.judged["first"])
            self._checkpoint()

    def train(self) -> None:
        """Train for a while, evaluate if it is time, find out whether it is enough, and keep what is due."""
        before = self.done
        phases = Phases()
        self.algo.phases = phases
        metrics: dict[str, float] = self.algo.metrics_of(self.algo.train())
        self.done = self.algo.progress
        metrics[Metric.STAGE] = self.stage + 1.0
        metrics |= self._check_reward()
        self._stop = self._onset.reason(stops=self.experiment.train.stop.hacking) or self._verdict()
        if self.stopped is not None or self._passes(self.experiment.evaluation.every, before):
            with phases(Metric.TIME_EVALUATE):
                report = self._evaluate()
                self._stop = self._stop or self._enough(report)
                metrics[Metric.RETURN_EVALUATED] = report["overall"]["reward"]["mean"]
                if self._idle is not None:
                    metrics[Metric.RETURN_IDLE] = self._idle
                is_same = self.stage == len(self.experiment.stages) - 1 and not self.experiment.evaluation.settings
                if is_same and Metric.RETURN in metrics:
                    metrics[Metric.RETURN_AHEAD] = metrics[Metric.RETURN_EVALUATED] - metrics[Metric.RETURN]
                if report.get("hypervolume") is not None:
                    metrics[Metric.FRONT_HYPERVOLUME] = report["hypervolume"]
        self._is_due |= self.stopped is not None or self._passes(self.experiment.train.checkpoint_every, before)
        metrics |= phases.seconds() | {Metric.TIME_CHECKPOINT: self._checkpoint_s}
        self._checkpoint_s = 0.0
        seconds = sum(metrics.get(phase, 0.0) for phase in PHASES)
        metrics[Metric.ENV_STEPS_PER_S if self._unit == "steps" else Metric.UPDATES_PER_S] = (
            self.done - before
        ) / seconds
        self.listen(self.done, metrics)
        if self._is_due:
            self._checkpoint(is_last=self.stopped is not None)

    def _passes(self, every: int | None, before: int) -> bool:
        return every is not None and self.done // every > before // every

    def _verdict(self) -> str | None:
        """Climb if the threshold is reached; why to stop, or None. Returns of different stages cannot be compared."""
        _, threshold = self.experiment.stages[self.stage]
        mean = self.algo.window.mean_of(WINDOW if threshold is None else threshold.episodes)
        if mean is None:
            return None
        if threshold is None:
            return self._convergence.see(mean, self.done) or self._enough_success()
        if reaches(mean, threshold.reward, rounding=SINGLE):
            self.stage += 1
            self.algo.move_to(self.experiment.stages[self.stage][0])
            self._onset = OnsetMonitor(unit="step")
        return None

    def _check_reward(self) -> dict[str, float]:
        """Metrics of the latest episodes that have a second check; empty without one."""
        judged = [(each.success, each.correct, each.unearned) for each in self.algo.checked]
        self.algo.checked.clear()
        if not judged:
            return {}
        self._onset.add(self.done, [(success, unearned) for success, _, unearned in judged])
        _, checked, unearned = (fmean(each) for each in zip(*judged, strict=True))
        hacked = float(self._onset.found is not None)
        return {Metric.REWARD_CHECKED: checked, Metric.REWARD_UNEARNED: unearned, Metric.REWARD_HACKED: hacked}

    def _enough(self, report: Mapping[str, Any]) -> str | None:
        """The reason to stop once an evaluation's return is high enough."""
        wanted = self.experiment.train.stop.evaluated
        if wanted is None or not reaches(mean := report["overall"]["reward"]["mean"], wanted):
            return None
        return f"level reached: {mean:.3f} in an evaluation, asked for {wanted:g}"

    def _enough_success(self) -> str | None:
        """The reason to stop once enough episodes succeed; a ConfigError where the environment reports no success."""
        wanted = self.experiment.train.stop.success
        mean = self.algo.window.success_of(WINDOW)
        if wanted is None:
            return None
        if mean is None:
            raise ConfigError(
                f"train.stop.success={wanted:g} would change nothing: {label(self.experiment.environment)} has no "
                'info["is_success"] in the last step of every episode. Use train.stop.target.'
            )
        return f"success reached: {mean:.3f} of the latest {WINDOW} episodes" if reaches(mean, wanted) else None

    def _evaluate(self) -> dict[str, Any]:
        """Judge the present policy; if it is the best so far, it is to be kept."""
        name = f"{self._ledger.run}/{self.done}"
        found = judge_control(self.algo.policy(), self.experiment, name=name)
        if found.cut is not None and found.cut.episodes:
            _log.warning("%s", *cut_lines([found]))
        report: dict[str, Any] = found.as_dict()
        score = report.get("hypervolume") if self.algo.league is None else self.algo.league.rating
        if score is None:
            score = report["overall"]["reward"]["mean"]
        self._is_due |= self._ledger.offer(self.done, score)
        self.judged["last"] = report | {"number": self.done}
        return report

    def summary(self) -> RunSummary:
        """The run's summary."""
        before, after = self.judged["first"], self.judged["last"]
        return RunSummary(
            updates=self.algo.updates,
            last=self.done,
            best=self._ledger.kept["best"],
            stopped=str(self.stopped),
            unit=self._unit,
            before={"greedy": before["overall"]["reward"]["mean"]},
            after={"greedy": after["overall"]["reward"]["mean"]},
            comparisons=(Comparison(name="greedy", before=before, after=after),),
        )

    def note(self, metrics: Mapping[str, float]) -> str:
        """Returns and speed."""
        speed = Metric.ENV_STEPS_PER_S if self._unit == "steps" else Metric.UPDATES_PER_S
        shown = [f"{metrics[speed]:,.0f} {self._unit}/s"]
        for name, metric in (("evaluated", Metric.RETURN_EVALUATED), ("return", Metric.RETURN)):
            if metric in metrics:
                shown.insert(0, f"{name} {metrics[metric]:.1f}")
        return "  ".join(shown)

    def stop(self) -> None:
        """Let go of the algorithm; threads are as many as before."""
        self.algo.stop()
        self._threads.close()

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def end(self, reason: str) -> None:
        """Judge and keep the present policy; the checkpoint does not know the reason, so a resumed run goes on."""
        if self.judged["last"]["number"] != self.done:
            self._evaluate()
        self._checkpoint(is_last=True)
        self._stop = reason

    def keep(self) -> str:
        """The present version's id, of which there is a checkpoint from now on."""
        if self._ledger.parent != (version := f"{self._ledger.run}/{self.done}"):
            self._checkpoint()
        return version

    def save_to_path(self, path: str) -> None:
        """Write all that another run needs to take this one over: the algorithm, and the curriculum's stage."""
        self.algo.save_to_path(path)
        (Path(path) / STAGE).write_text(str(self.stage))

    def _checkpoint(self, *, is_last: bool = False) -> None:
        begun = time.perf_counter()
        self._is_due = False
        with tempfile.TemporaryDirectory(prefix="loomrl-checkpoint-") as name:
            folder = Path(name)
            self.algo.save_to_path(str(folder / "algorithm"))
            policy = self.algo.policy()
            policy.save(folder / "policy")
            if is_last:
                keep_film(policy, self.experiment, folder / "film")
            state = self._ledger.commit(self.done, folder, self._progress())
        self._record_evaluation(state)
        self._checkpoint_s = time.perf_counter() - begun

    def _resume(self) -> bool:
        with tempfile.TemporaryDirectory(prefix="loomrl-checkpoint-") as name:
            found = self._ledger.resume(Path(name))
            if found is None:
                return False
            folder, state = found
            self.algo.take_over(str(folder / "algorithm"))  # a fork's settings are not those of the checkpoint
        self.done = state["done"]
        self._stop = state["stopped"]
        self.stage = state["stage"]
        self.judged = dict(state["judged"])
        self._convergence.load_state_dict(state["convergence"])
        self._onset.load_state_dict(state["onset"])
        self._ledger.believe(state)
        self._record_evaluation(state)
        return True

    def _record_evaluation(self, state: Mapping[str, Any]) -> None:
        """The evaluation of the present version, if there was one."""
        report = state["judged"]["last"]
        version = f"{self._ledger.run}/{state['done']}"
        if report["number"] == state["done"]:
            about = {"run": self._ledger.run, "policy": version, "created_at": state["created_at"]}
            record_evaluation(self._ledger.db, Evaluation(id=f"{version}/greedy", report=report, **about))

    def _progress(self) -> dict[str, Any]:
        """The run's progress, as JSON, without the algorithm's own state."""
        state = {"stopped": self._stop, "stage": self.stage, "judged": self.judged}
        if self.algo.league is not None:
            state["league"] = self.algo.league.pool.state_dict()
        return state | {"convergence": self._convergence.state_dict(), "onset": self._onset.state_dict()}
