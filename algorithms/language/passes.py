"""Passes over data in the place of rollouts: how far a run is, and how it goes on. The data are another's."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.algorithms.language.packing import Sample
from loomrl.algorithms.timing import Pace, Phases
from loomrl.config import DatasetConfig, Experiment
from loomrl.errors import ConfigError
from loomrl.gym.task_mixture import TaskMixture
from loomrl.run.ledger import VersionLedger
from loomrl.store import LoomDB
from loomrl.store.runs import Claim
from loomrl.types import Group

ORDER = "own places"
"""The rule by which batches follow from data and seed; a checkpoint names it."""


def place_in_pass(seed: int, epoch: int, key: str) -> bytes:
    """The place of an item in a pass, in byte order.

    It follows from nothing but the item, so that a run without some items begins as one with them
    (`loomrl people forget --weights`).
    """
    return hashlib.sha256(f"{seed} {epoch} {key}".encode()).digest()


class DataPasses:
    """The base of sources that learn from data. `done` counts updates, whose batches follow from data and seed."""

    held_out: Sequence[Sample] = ()
    """Samples that are never learnt from, whose loss is measured."""

    def __init__(self, experiment: Experiment, run: str, mixture: TaskMixture, *, about: Mapping[str, Any]) -> None:
        assert experiment.data is not None, "else there are rollouts"
        self.experiment = experiment
        self.run = run
        self.mixture = mixture
        self.done = 0
        self._ended: str | None = None
        self._settings: DatasetConfig = experiment.data
        self._about = about
        """The data, as recorded with every version."""

    @property
    def planned(self) -> int:
        """Updates of all passes."""
        raise NotImplementedError

    def learnt_in(self, update: int) -> Sequence[object]:
        """All that the batch of an update follows from; equal things make equal updates of equal weights."""
        raise NotImplementedError

    @property
    def limit(self) -> int:
        """Updates in all."""
        return min(self.experiment.train.updates, self.planned)

    @property
    def over(self) -> str | None:
        """The reason why no update is left."""
        if self.done < self.limit:
            return self._ended
        passes = f"{self._settings.epochs} pass{'es' if self._settings.epochs > 1 else ''} over"
        ended = self.done < self.experiment.train.updates
        return f"{passes} {self.name} done" if ended else f"all {self.done} updates done"

    @property
    def name(self) -> str:
        """The data in words."""
        return f"data set {self._about['dataset']}" if "dataset" in self._about else str(self._about["file"])

    def end(self, reason: str) -> None:
        """Make no further update, unless one is asked for."""
        self._ended = reason

    def samples_with(self, version: int) -> bool:
        """False: others have sampled all there is."""
        return False

    def timing(self, pace: Pace, clock: Phases) -> dict[str, float]:
        """Nothing: no engine works for an update."""
        return {}

    def advance(self, groups: Sequence[Group]) -> None:
        """Update `done + 1` was made."""
        self.done += 1

    def ledger(self, db: LoomDB, claim: Claim) -> VersionLedger:
        """The run's versions, each of which names the data; the first one has the run's parent for a parent."""
        return VersionLedger(
            experiment=self.experiment,
            db=db,
            clock=time.time,
            claim=claim,
            file="line.json",
            data=lambda state: {**self._about, "updates": state["done"]},
            parent=self.experiment.parent,
        )

    def checkpoint_state(self, url: str) -> dict[str, Any]:
        """The state needed to resume, wherever the checkpoint is."""
        return self.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {"done": self.done, "order": ORDER}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        if state.get("order") != ORDER:
            raise ConfigError(
                f"run {self.run!r} began when batches were drawn in another order, so some of its data would be learnt "
                "from twice. Begin another --run."
            )
        self.done = state["done"]
