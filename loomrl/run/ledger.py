"""The versions of one run. A checkpoint is staged, settled, and then believed; older ones are deleted.

To settle is to commit what a checkpoint was trained on: the hub's ack of its leases, or nothing. After a crash it is
repeated. Either it holds and the checkpoint counts, or the checkpoint is deleted and the one before it is resumed.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import AnyExperiment
from loomrl.errors import ArtifactError, LeaseLost
from loomrl.store import LoomDB
from loomrl.store.endpoints import list_endpoints
from loomrl.store.forgettings import open_forgettings
from loomrl.store.policies import record_policy
from loomrl.store.runs import POLICIES, RUNS, Claim, hold
from loomrl.types import PolicyVersion, Stage

State = Mapping[str, Any]
MOST_RELEASED = 10_000
MADE = ("weights", "arithmetic")
"""Parts of a state that are on record with its version: the hash of its weights, and where they were computed."""


def _nothing(state: State) -> None:
    """Commits nothing."""


def _none(state: State) -> Collection[int]:
    """No version."""
    return ()


def served_numbers(db: LoomDB, run: str) -> set[int]:
    """Versions of a run that an endpoint names, or that were released: it may need them, or go back to them. Those that
    an open forgetting needs, too.
    """
    named = {arm.policy for endpoint in list_endpoints(db) for arm in endpoint.arms}
    numbers = {int(key.rpartition("/")[2]) for key in named if re.fullmatch(rf"{re.escape(run)}/\d+", key)}
    for stage in (Stage.CANARY, Stage.PRODUCTION, Stage.RETIRED):
        numbers |= {version.number for version in POLICIES.latest(db, run=run, stage=stage, limit=MOST_RELEASED)}
    for replay in (replay for one in open_forgettings(db) for replay in one.plan["replays"]):
        numbers |= {replay["start"]} if replay["run"] == run else set()
        numbers |= set(replay["targets"].values()) if replay["into"] == run else set()
    return numbers


@dataclass(slots=True, kw_only=True)
class VersionLedger:
    """The committed state of a run, and how versions enter it."""

    experiment: AnyExperiment
    db: LoomDB
    clock: Callable[[], float]
    claim: Claim
    """Ours on the run. Without it nothing is put on record."""
    file: str
    """Folder of a checkpoint's state, in the checkpoint."""
    data: Callable[[State], Mapping[str, Any]]
    """From a state: the data that the version was trained on, as recorded."""
    settle: Callable[[State], None] = _nothing
    """Commits what the state was trained on, as often as it is asked; LeaseLost where that cannot be any more."""
    held: Callable[[State], Collection[int]] = _none
    """From a state: versions that the run itself still needs, whose checkpoints stay too."""
    parent: str | None = None
    """The version recorded last."""
    kept: dict[str, int] = field(default_factory=dict)
    """Checkpoints that stay beside the first one and those that were served: `last` and `best`."""
    best: float | None = None
    """Score by which `best` is the best; None while there was none."""
    checkpoints: Checkpoints = field(init=False)

    def __post_init__(self) -> None:
        """Checkpoints lie below the experiment's `artifact_url`."""
        artifacts = open_artifacts(self.experiment.artifact_url)
        self.checkpoints = Checkpoints(artifacts, self.run, self.claim.times)

    @property
    def run(self) -> str:
        """The run's id."""
        return self.claim.run

    @property
    def recorded(self) -> str:
        """Hash of the experiment that the run began with; resumed on other machines, it has another."""
        return RUNS.require(self.db, self.run).experiment

    def offer(self, number: int, score: float | None) -> bool:
        """True if this version is the best so far. Of equal versions, and without any score yet, the newest is."""
        is_best = self.best is None or (score is not None and score >= self.best)
        if is_best:
            self.kept["best"] = number
            self.best = score
        return is_best

    @property
    def known(self) -> dict[str, int]:
        """`kept`, without a best version while none has a score."""
        return {name: number for name, number in self.kept.items() if name != "best" or self.best is not None}

    def is_best(self, score: float | None) -> bool:
        """True if this score is known, and above those of all versions so far."""
        return score is not None and (self.best is None or score > self.best)

    def commit(self, number: int, folder: Path, state: State) -> State:
        """Stage the checkpoint in `folder` with this state, settle it, believe it; the state as it was written."""
        hold(self.db, self.claim)
        self.kept["last"] = number
        whole = {**self.state_dict(), **state, "done": number, "created_at": self.clock(), "code": self.claim.code}
        whole["url"] = self.checkpoints.url(number)
        (folder / self.file).write_text(json.dumps(whole))
        self.checkpoints.put(number, folder)
        self.settle(whole)
        self.believe(whole)
        return whole

    def resume(self, into: Path) -> tuple[Path, dict[str, Any]] | None:
        """A copy of the newest checkpoint that counts, and its state; None without any. To be believed once loaded."""
        recorded = POLICIES.latest(self.db, run=self.run, limit=1)
        newest, url = (recorded[0].number, recorded[0].url) if recorded else (-1, "")
        for number, name in reversed(self.checkpoints.stored()):
            is_newest = number == newest and url.endswith(name)
            if number <= newest and not is_newest:
                continue
            folder = self.checkpoints.get(name, into / name)
            state: dict[str, Any] = json.loads((folder / self.file).read_text())
            if state["experiment"] not in (self.experiment.sha256, self.recorded):
                raise ArtifactError(
                    f"the checkpoints of run {self.run!r} in {self.checkpoints.artifacts.url} are of experiment "
                    f"{state['experiment'][:12]}, this is {self.experiment.sha256[:12]}: name another --run."
                )
            state["url"] = name
            if is_newest or self._settles(state):
                self.load_state_dict(state)
                return folder, state
            self.checkpoints.delete(name)
        if recorded:
            raise self.checkpoints.lost(newest, url)
        return None

    def believe(self, state: State) -> None:
        """Put the state's version on record, and let older checkpoints go. May be repeated."""
        number = state["done"]
        version = PolicyVersion(
            id=f"{self.run}/{number}",
            number=number,
            url=state["url"],
            run=self.run,
            algorithm=self.experiment.algorithm.kind,
            experiment=self.recorded,
            parent=state["parent"],
            data={**self.data(state), **{name: state[name] for name in MADE if name in state}},
            code=state["code"],
            created_at=state["created_at"],
        )
        record_policy(self.db, version, claim=self.claim)
        self.parent = version.id
        self.kept["last"] = number
        if self.experiment.train.keep == "all":
            return
        self.checkpoints.prune({*self.kept.values(), *self.held(state), *served_numbers(self.db, self.run)})

    def _settles(self, state: State) -> bool:
        try:
            self.settle(state)
        except LeaseLost:
            return False
        return True

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume, as JSON."""
        return {
            "run": self.run,
            "experiment": self.recorded,
            "parent": self.parent,
            "kept": dict(self.kept),
            "best": self.best,
        }

    def load_state_dict(self, state: State) -> None:
        """Resume from `state`."""
        self.parent = state["parent"]
        self.kept = dict(state["kept"])
        self.best = state["best"]
