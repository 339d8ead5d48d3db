"""A run of control policies on record, with versions whose policies a test chose."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import ControlExperiment
from loomrl.control.environment import snapshot
from loomrl.control.policy import ControlPolicy
from loomrl.load import dump
from loomrl.store import LoomDB
from loomrl.store.policies import record_policy
from loomrl.store.runs import Run, start_run
from loomrl.types import PolicyVersion


class RecordedRun:
    """A run in CartPole; its environments are recorded as they are, or as a test wants them."""

    def __init__(
        self, db: LoomDB, folder: Path, *, id: str = "run", environments: Mapping[str, str] | None = None
    ) -> None:
        self._db, self._folder, self.id = db, folder, id
        self.experiment = ControlExperiment.parse(
            {"kind": "control", "name": "x", "artifact_url": f"{folder}/artifacts"}
        )
        run = Run(
            id=id,
            name="x",
            kind="train",
            experiment=self.experiment.sha256,
            resolved=dump(self.experiment),
            code="c",
            environments=snapshot(self.experiment.environment) if environments is None else environments,
            started_at=1.0,
        )
        self.claim = start_run(db, run)

    def record(self, policy: ControlPolicy, number: int, *, parent: str | None = None, code: str = "c") -> str:
        """A version as training leaves it: a checkpoint and a row."""
        made = self._folder / "made"
        policy.save(made / "policy")
        checkpoints = Checkpoints(open_artifacts(self.experiment.artifact_url), self.id)
        checkpoints.put(number, made)
        shutil.rmtree(made)
        version = PolicyVersion(
            id=f"{self.id}/{number}",
            number=number,
            url=checkpoints.url(number),
            run=self.id,
            algorithm="ppo",
            experiment=self.experiment.sha256,
            parent=parent,
            code=code,
            created_at=float(number),
        )
        record_policy(self._db, version)
        return version.id
