"""Training of a control policy: updates, and between them evaluation, curriculum, checkpoints, and an end."""

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped,unused-ignore]

from loomrl.algorithms.phase import Phases
from loomrl.algorithms.rollout import WINDOW
from loomrl.algorithms.stopping import Convergence
from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import ControlExperiment
from loomrl.control.environment import snapshot
from loomrl.errors import ArtifactError
from loomrl.experiments.judge_control import idle_return, judged
from loomrl.experiments.outcome import Outcome
from loomrl.load import dump
from loomrl.store import LoomDB
from loomrl.store.evaluations import Evaluation, record_evaluation
from loomrl.store.policies import list_policies, record_policy
from loomrl.store.runs import Run, code_revision, start_run
from loomrl.telemetry.metric import PHASES, Metric
from loomrl.telemetry.page_table import Comparison
from loomrl.telemetry.progress import progress
from loomrl.telemetry.sink import open_sinks
from loomrl.threshold import SINGLE, reaches
from loomrl.types import PolicyVersion

STATE = "course.json"
"""The course's own file in a checkpoint, beside `algorithm`, which RLlib restores, and `policy`, which acts alone."""


def go(algo: Any, experiment: ControlExperiment, run: str, db: LoomDB, clock: Callable[[], float]) -> Outcome:
    """Train until a reason to stop or the last step."""
    course = open_course(algo, experiment, run, db, clock)
    with _threads(experiment.learners.threads):
        course.begin()
        _updates(course)
    before, after = course.judged["first"], course.judged["last"]
    return Outcome(
        updates=algo.updates,
        last=course.done,
        best=course.kept["best"],
        stopped=str(course.stopped),
        unit="steps",
        before={"greedy": before["overall"]["reward"]["mean"]},
        after={"greedy": after["overall"]["reward"]["mean"]},
        comparisons=(Comparison(name="greedy", before=before, after=after),),
    )


def open_course(
    algo: Any,
    experiment: ControlExperiment,
    run: str,
    db: LoomDB,
    clock: Callable[[], float],
    *,
    parent: str | None = None,
) -> "Course":
    """The run on record, and its course; `parent` is the version of another run from which it goes on."""
    code = code_revision()
    start_run(
        db,
        Run(
            id=run,
            name=experiment.name,
            kind="train",
            experiment=experiment.sha256,
            resolved=dump(experiment),
            code=code,
            environments=snapshot(experiment.environment),
            parent_policy=parent,
            started_at=clock(),
        ),
    )
    return Course(
        experiment=experiment,
        run=run,
        algo=algo,
        db=db,
        checkpoints=Checkpoints(open_artifacts(experiment.artifact_url), run),
        clock=clock,
        code=code,
        parent=parent,
    )


def _updates(course: "Course") -> None:
    experiment, run = course.experiment, course.run
    resolved = experiment.model_dump(mode="json")
    with (
        open_sinks(experiment.train, run=run, experiment=resolved, step=course.done) as sink,
        progress(f"train {run}", experiment.train.steps) as report,
    ):
        while course.stopped is None:
            metrics = course.update()
            sink.write(course.done, metrics)
            report(min(course.done, experiment.train.steps), _note(metrics))
            course.keep()


@dataclass(slots=True, kw_only=True)
class Course:
    """One run while it is being trained. `done` counts its environment steps, and is the number of a version.

    Metrics are written before the checkpoint that has their steps: what a killed run wrote after its last checkpoint
    is cut off when it goes on, and is made again.
    """

    experiment: ControlExperiment
    run: str
    algo: Any
    db: LoomDB
    checkpoints: Checkpoints
    clock: Callable[[], float]
    code: str
    """Revision of the code that trains now."""
    done: int = 0
    stopped: str | None = None
    """Why the run is over, once it is."""
    stage: int = 0
    """Of the curriculum."""
    kept: dict[str, int] = field(default_factory=dict)
    """Checkpoints that stay: `last` and `best`."""
    judged: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Reports of the `first` and the `last` evaluation."""
    parent: str | None = None
    """The version recorded last."""
    _best: float = -math.inf
    """Return of the best version, or the hypervolume of its front."""
    _is_due: bool = False
    """Whether there is to be a checkpoint here."""
    _checkpoint_s: float = 0.0
    _convergence: Convergence = field(init=False)
    _idle: float | None = field(init=False)
    """What doing nothing earns, if anything does nothing."""

    def __post_init__(self) -> None:
        self._idle = idle_return(self.experiment)
        self._convergence = Convergence(self.experiment.train.stop)

    def begin(self) -> None:
        """Go on from the newest checkpoint; without any, judge and keep what training begins with."""
        if not self._resume():
            self.judged["first"] = self._evaluate()
            self._is_due = True
            self.keep()

    def update(self) -> dict[str, float]:
        """Train for a while, evaluate if it is time, and find out whether it is enough."""
        before, phases = self.done, Phases()
        self.algo.phases = phases
        metrics: dict[str, float] = self.algo.measured(self.algo.train())
        self.done = self.algo.env_steps
        metrics[Metric.STAGE] = self.stage + 1.0
        self.stopped = self._verdict()
        if self.stopped is not None or self._passes(self.experiment.evaluation.every, before):
            with phases(Metric.TIME_EVALUATE):
                report = self._evaluate()
                metrics[Metric.RETURN_EVALUATED] = report["overall"]["reward"]["mean"]
                if self._idle is not None:
                    metrics[Metric.RETURN_IDLE] = self._idle
                if report.get("hypervolume") is not None:
                    metrics[Metric.FRONT_HYPERVOLUME] = report["hypervolume"]
        self._is_due |= self.stopped is not None or self._passes(self.experiment.train.checkpoint_every, before)
        metrics |= phases.seconds() | {Metric.TIME_CHECKPOINT: self._checkpoint_s}
        self._checkpoint_s = 0.0
        metrics[Metric.ENV_STEPS_PER_S] = (self.done - before) / sum(metrics.get(phase, 0.0) for phase in PHASES)
        return metrics

    def _passes(self, every: int | None, before: int) -> bool:
        return every is not None and self.done // every > before // every

    def _verdict(self) -> str | None:
        """Climb if the gate is open; why to stop, or None. Returns of different stages cannot be compared."""
        _, gate = self.experiment.stages[self.stage]
        mean = self.algo.window.mean_of(WINDOW if gate is None else gate.episodes)
        if gate is None:
            stop = None if mean is None else self._convergence.see(mean, self.done)
        else:
            stop = None
            if mean is not None and reaches(mean, gate.reward, rounding=SINGLE):
                self.stage += 1
                self.algo.move_to(self.experiment.stages[self.stage][0])
        steps = self.experiment.train.steps
        return stop or (f"all {self.done:,} steps done" if self.done >= steps else None)

    def _evaluate(self) -> dict[str, Any]:
        """Judge the present policy; if it is the best so far, it is to be kept."""
        report: dict[str, Any] = judged(self.algo.policy(), self.experiment, name=f"{self.run}/{self.done}").as_dict()
        score = report.get("hypervolume")
        if score is None:
            score = report["overall"]["reward"]["mean"]
        if score > self._best:
            self._best, self.kept["best"], self._is_due = score, self.done, True
        self.judged["last"] = report | {"number": self.done}
        return report

    # -- checkpoints ------------------------------------------------------------------------------------------------

    def keep(self, *, now: bool = False) -> None:
        """Make a checkpoint if one is due, or `now` and there is none of these steps."""
        if not self._is_due and not (now and self.parent != f"{self.run}/{self.done}"):
            return
        begun = time.perf_counter()
        self._is_due, self.kept["last"] = False, self.done
        with tempfile.TemporaryDirectory(prefix="loomrl-checkpoint-") as name:
            folder = Path(name)
            self.algo.save_to_path(str(folder / "algorithm"))
            self.algo.policy().save(folder / "policy")
            state = self.state_dict() | {"created_at": self.clock(), "code": self.code}
            (folder / STATE).write_text(json.dumps(state))
            self.checkpoints.put(self.done, folder)
        self._believe(state)
        self._checkpoint_s = time.perf_counter() - begun

    def _resume(self) -> bool:
        recorded = list_policies(self.db, run=self.run, limit=1)
        self.checkpoints.refuse_lost(recorded[0].number if recorded else -1)
        numbers = self.checkpoints.numbers()
        if not numbers:
            return False
        with tempfile.TemporaryDirectory(prefix="loomrl-checkpoint-") as name:
            folder = self.checkpoints.get(numbers[-1], Path(name) / "checkpoint")
            state = json.loads((folder / STATE).read_text())
            if state["experiment"] != self.experiment.sha256:
                raise ArtifactError(
                    f"the checkpoints of run {self.run!r} in {self.checkpoints.artifacts.url} are of experiment "
                    f"{state['experiment'][:12]}, this is {self.experiment.sha256[:12]}: name another --run."
                )
            self.algo.restore_from_path(str(folder / "algorithm"))
        self.load_state_dict(state)
        self._believe(state)
        return True

    def _believe(self, state: Mapping[str, Any]) -> None:
        """Put the checkpoint and its evaluation on record, and let older ones go."""
        version = PolicyVersion(
            id=f"{self.run}/{state['done']}",
            number=state["done"],
            url=self.checkpoints.url(state["done"]),
            run=self.run,
            algorithm=self.experiment.algorithm.kind,
            experiment=self.experiment.sha256,
            parent=state["parent"],
            data={"steps": state["done"]},
            code=state["code"],
            created_at=state["created_at"],
        )
        record_policy(self.db, version)
        self.parent, report = version.id, state["judged"]["last"]
        if report["number"] == state["done"]:
            about = {"run": self.run, "policy": version.id, "created_at": state["created_at"]}
            record_evaluation(self.db, Evaluation(id=f"{version.id}/greedy", report=report, **about))
        self.checkpoints.prune(self.kept.values())

    def state_dict(self) -> dict[str, Any]:
        """Where the course is, as JSON; what the algorithm knows is its own."""
        state = {name: getattr(self, name) for name in ("done", "stopped", "stage", "kept", "judged", "parent")}
        state |= {"best": self._best, "convergence": self._convergence.state_dict()}
        return state | {"experiment": self.experiment.sha256}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.done, self.stopped, self.stage = state["done"], state["stopped"], state["stage"]
        self.kept, self.judged, self.parent = dict(state["kept"]), dict(state["judged"]), state["parent"]
        self._best = state["best"]
        self._convergence.load_state_dict(state["convergence"])


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads of torch, and of NumPy's matrices; afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


def _note(metrics: Mapping[str, float]) -> str:
    shown = [f"{metrics[Metric.ENV_STEPS_PER_S]:,.0f} steps/s"]
    for name, metric in (("evaluated", Metric.RETURN_EVALUATED), ("return", Metric.RETURN)):
        if metric in metrics:
            shown.insert(0, f"{name} {metrics[metric]:.1f}")
    return "  ".join(shown)
