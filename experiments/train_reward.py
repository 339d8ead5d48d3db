"""Training of a reward model: updates from pairs, held-out accuracy between them, checkpoints, and a folder."""

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from loomrl.algorithms.language.layers import recompute_layers
from loomrl.algorithms.language.resolved import origin_of
from loomrl.algorithms.language.reward import RewardLearner, open_beginning, plan_batches, read_pairs
from loomrl.algorithms.language.served.collector import dataset_of, read_feedback
from loomrl.config import Experiment, RewardModel
from loomrl.experiments.summary import RunSummary
from loomrl.experiments.training import Listener
from loomrl.feedback.content import Contents
from loomrl.run.ledger import VersionLedger
from loomrl.run.record import begin_run, run_folder
from loomrl.run.version import copied
from loomrl.store import LoomDB
from loomrl.store.datasets import read_rows
from loomrl.store.runs import POLICIES, Claim
from loomrl.telemetry.metric import Metric

_log = logging.getLogger(__name__)
FOLDER = "reward_model"
"""Folder of the best version, in the run's folder."""


class RewardTraining:
    """A run of a reward model, in this process. `done` counts its updates, and is the number of a version."""

    def __init__(self, experiment: Experiment, settings: RewardModel, ledger: VersionLedger, db: LoomDB) -> None:
        data = experiment.data
        assert data is not None, "its settings refuse none"
        self.listen: Listener = lambda done, metrics: None
        self.done = 0
        self.experiment = experiment
        self._ledger = ledger
        self._stop: str | None = None
        self._accuracy: dict[str, float] = {}
        """On held-out pairs, `before` the first update and `after` the last one."""
        dataset = dataset_of(experiment, db)
        path = str(origin_of(settings.model, artifact_url=experiment.artifact_url, built=""))
        opened = open_beginning(path, context=settings.model.context, device=settings.device)
        if settings.model.recompute != "none":
            recompute_layers(opened.model, settings.model.recompute)
        self._learner = RewardLearner(opened, settings, seed=experiment.seed)
        with Contents(experiment.store_url) as contents:
            parts = {name: read_rows(db, dataset.id, part=name) for name in ("train", "holdout")}
            found = {
                name: read_pairs(settings, rows, read_feedback(db, rows), contents, opened)
                for name, rows in parts.items()
            }
        remedy = "People's choices and corrections make pairs, and answers to one prompt with different rewards."
        self._pairs = found["train"].required("training", remedy)
        held_out = found["holdout"].required("held-out", "Freeze the data set with a larger holdout.")
        self._held_out = held_out.some(range(len(held_out.items)))
        for name, part in found.items():
            if part.left_out:
                _log.warning("pairs of the %s part that are left out: %s", name, dict(part.left_out))
        self._plan = plan_batches(len(self._pairs.items), size=data.batch, epochs=data.epochs, seed=experiment.seed)
        self.limit = min(experiment.train.updates, len(self._plan))

    @classmethod
    def opened(cls, experiment: Experiment, run: str, db: LoomDB, *, clock: Callable[[], float]) -> Self:
        """The run on record, and what is trained in it."""
        settings = experiment.algorithm
        assert isinstance(settings, RewardModel)
        dataset = dataset_of(experiment, db)
        claim = begin_run(db, experiment, {}, id=run, kind="train")
        ledger = VersionLedger(
            experiment=experiment,
            db=db,
            clock=clock,
            claim=claim,
            file="pairs.json",
            data=lambda state: {"dataset": dataset.id, "sha256": dataset.sha256, "updates": state["done"]},
        )
        return cls(experiment, settings, ledger, db)

    @property
    def claim(self) -> Claim:
        """Ours on the run."""
        return self._ledger.claim

    @property
    def stopped(self) -> str | None:
        """The reason why the run is over; None while it is not."""
        if self.done < self.limit:
            return self._stop
        whole = self.limit == len(self._plan)
        return f"every pair was learnt from, in {self.done} updates" if whole else f"all {self.done} updates done"

    def begin(self) -> None:
        """Resume; without any checkpoint, judge and keep what training begins with."""
        with tempfile.TemporaryDirectory(prefix="loomrl-checkpoint-") as name:
            found = self._ledger.resume(Path(name))
            if found is not None:
                folder, state = found
                self._learner.load(folder)
                self.done = state["done"]
                self._accuracy = dict(state["accuracy"])
                self._ledger.believe(state)
                return
        self._accuracy["before"] = self._judge()
        self._checkpoint()

    def train(self) -> None:
        """One update; then judge and keep what is due."""
        begun = time.perf_counter()
        metrics = self._learner.step(self._pairs.some(self._plan[self.done]), number=self.done)
        self.done += 1
        every = self.experiment.evaluation.every
        is_due = self.stopped is not None or self.done % self.experiment.train.checkpoint_every == 0
        if self.stopped or (every and self.done % every == 0):
            metrics[Metric.EVALUATED_PAIRS] = self._judge()
            is_due |= self._ledger.kept["best"] == self.done
        metrics[Metric.UPDATES_PER_S] = 1 / (time.perf_counter() - begun)
        self.listen(self.done, metrics)  # before the checkpoint counts
        if is_due:
            self._checkpoint()

    def _judge(self) -> float:
        """The accuracy on held-out pairs, by which the best version is known."""
        self._accuracy["after"] = self._learner.accuracy(self._held_out)
        self._ledger.offer(self.done, self._accuracy["after"])
        return self._accuracy["after"]

    def end(self, reason: str) -> None:
        """End here, with a checkpoint from which the run can be resumed."""
        self._judge()
        self._checkpoint()
        self._stop = reason

    def keep(self) -> str:
        """The present version's id, of which there is a checkpoint from now on."""
        self._checkpoint()
        return f"{self._ledger.run}/{self.done}"

    def save_to_path(self, path: str) -> None:
        """Write the classifier and what training goes on with."""
        self._learner.save(Path(path))

    def stop(self) -> None:
        """Nothing: there are no other processes."""

    def note(self, metrics: Mapping[str, float]) -> str:
        """Accuracy and loss."""
        if Metric.POLICY_LOSS not in metrics:
            return "no pair of it is left"
        shown = f"pairs {metrics[Metric.PREFERENCE_ACCURACY]:.2f}  loss {metrics[Metric.POLICY_LOSS]:.3f}"
        held_out = metrics.get(Metric.EVALUATED_PAIRS)
        return shown if held_out is None else f"held-out pairs {held_out:.2f}  {shown}"

    def summary(self) -> RunSummary:
        """The run's summary, once the best version lies in the run's folder."""
        best = self._ledger.kept["best"]
        self._export(best)
        return RunSummary(
            updates=self.done,
            last=self.done,
            best=best,
            stopped=str(self.stopped),
            unit="updates",
            before={"pairs": self._accuracy["before"]},
            after={"pairs": self._accuracy["after"]},
            comparisons=(),
        )

    def _export(self, number: int) -> None:
        """Put a version's classifier into the run's folder, whole or not at all."""
        version = POLICIES.require(self._ledger.db, f"{self._ledger.run}/{number}")
        place = run_folder(self.experiment.train, self._ledger.run) / FOLDER
        fresh = place.with_name(f".{FOLDER}")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(copied(version, self._ledger.db) / "model", fresh)
        shutil.rmtree(place, ignore_errors=True)
        fresh.rename(place)

    def _checkpoint(self) -> None:
        if self._ledger.kept.get("last") == self.done:
            return
        with tempfile.TemporaryDirectory(prefix="loomrl-checkpoint-") as name:
            folder = Path(name)
            self._learner.save(folder)
            self._ledger.commit(self.done, folder, {"accuracy": self._accuracy})
