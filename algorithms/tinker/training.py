"""One training by remote hand, in memory: an adapter with its optimizer, the run that has it on record, its journal."""

import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from loomrl.algorithms.language.resolved import Resolved, save_adapter
from loomrl.algorithms.tinker.base import OpenBase
from loomrl.algorithms.tinker.journal import Journal, JournalEntry
from loomrl.algorithms.tinker.learner import ALPHA, Trainee
from loomrl.algorithms.tinker.wire import (
    LoadWeightsBody,
    LoraBody,
    OptimStepBody,
    SaveForSamplerBody,
    SaveWeightsBody,
    read_loss_request,
    require_adamw,
    write_output,
)
from loomrl.artifacts import open_artifacts
from loomrl.config import Experiment, Remote
from loomrl.errors import ConfigError
from loomrl.run.ledger import State, VersionLedger
from loomrl.run.record import begin_run
from loomrl.run.version import base_of, file_of
from loomrl.store import LoomDB
from loomrl.store.notes import Notes, list_notes
from loomrl.store.runs import POLICIES

STATE = "tinker.json"
TENSORS = "state.pt"
LONGEST_ANSWER = 512
"""Tokens of an answer where a version is served and the caller names no number."""
SCHEME = "tinker://"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]{0,127}")
PATHS = "tinker/path/"
SAMPLERS = "tinker/sampler/"
"""Beginnings of the notes on saved paths and on samplers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteRun:
    """The beginning of a training, noted before it is acknowledged."""

    model_id: str
    """`SESSION:train:NUMBER`, which the client derives by itself too."""
    base_model: str
    lora: dict[str, Any]
    parent: str | None = None
    """The version that it began with."""
    optimizer: bool = False
    """It took over the optimizer's averages, too."""
    user_metadata: dict[str, Any] | None = None
    created_at: float

    @property
    def session(self) -> str:
        """Its session."""
        return self.model_id.partition(":")[0]

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.model_id.replace(":train:", "-")

    @property
    def shape(self) -> LoraBody:
        """The shape of its adapter."""
        return LoraBody.parse(self.lora)

    def dump(self) -> str:
        """Its JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Self:
        """From JSON."""
        return cls(**json.loads(text))

    def experiment(self, base: OpenBase) -> Experiment:
        """The run as an experiment, for what serves, judges and exports its versions."""
        settings = base.settings
        model = {"path": str(base.folder), "context": base.context, "dtype": settings.dtype}
        lora = {"rank": self.shape.rank, "alpha": ALPHA}
        algorithm = {"kind": "remote", "model": {**model, "lora": lora}, "sampling": {"max_tokens": LONGEST_ANSWER}}
        return Experiment.parse(
            {
                "name": self.session,
                "store_url": settings.store_url,
                "artifact_url": settings.artifact_url,
                "algorithm": algorithm,
            },
            origin=self.model_id,
        )


class LiveTraining:
    """A training that goes on: its requests are done one after another, in any thread."""

    def __init__(self, base: OpenBase, db: LoomDB, about: RemoteRun, trainee: Trainee, ledger: VersionLedger) -> None:
        self.about = about
        self.trainee = trainee
        self.journal = Journal(open_artifacts(base.settings.artifact_url), about.run)
        self.settled = 0
        """The last request that changed the weights."""
        self.changes = 0
        """The number of changes of the weights, which numbers the versions."""
        self.unsaved_s = 0.0
        """Seconds of work that would have to be repeated if this process ended now."""
        self._saved: int | None = None
        self._base = base
        self._db = db
        self._notes = Notes(db)
        self._ledger = ledger
        algorithm = ledger.experiment.algorithm
        assert isinstance(ledger.experiment, Experiment)
        assert isinstance(algorithm, Remote)
        self._resolved = Resolved(ledger.experiment, algorithm)

    @staticmethod
    def open(base: OpenBase, db: LoomDB, about: RemoteRun) -> "LiveTraining":
        """The training as of its newest checkpoint, or at its beginning; what the journal has beyond is to be done."""
        experiment = about.experiment(base)
        claim = begin_run(db, experiment, {}, id=about.run, kind="train", parent=about.parent)
        ledger = VersionLedger(
            experiment=experiment,
            db=db,
            clock=time.time,
            claim=claim,
            file=STATE,
            data=_data,
            held=_find_in_use(db, about),
            parent=about.parent,
        )
        opened = LiveTraining(base, db, about, base.learner.open(about.shape), ledger)
        with tempfile.TemporaryDirectory(prefix="loomrl-remote-") as name:
            found = ledger.resume(Path(name))
            if found is not None:
                opened._resume(*found)
            elif about.parent is not None:
                opened.trainee.load(state_of(base, db, about.parent), optimizer=about.optimizer)
                opened.save()  # its parent's checkpoint may be pruned
        return opened

    def _resume(self, folder: Path, state: State) -> None:
        self._ledger.believe(state)
        self.trainee.load((folder / TENSORS).read_bytes(), optimizer=True)
        self.settled = state["request"]
        self.changes = self._saved = state["done"]

    def perform(self, entry: JournalEntry) -> bytes:
        """Do a request; its result as the client reads it. A ConfigError or LearnerError says why it cannot be done."""
        began = time.monotonic()
        verb: Callable[[JournalEntry], bytes | Mapping[str, Any]] = getattr(self, f"_{entry.verb}")
        result = verb(entry)
        self.unsaved_s += time.monotonic() - began
        return result if isinstance(result, bytes) else json.dumps(result).encode()

    def _forward_backward(self, entry: JournalEntry) -> bytes:
        logprobs, total = self._base.learner.compute(self.trainee, read_loss_request(entry.body))
        return write_output(logprobs, {"loss:sum": total})

    def _optim_step(self, entry: JournalEntry) -> Mapping[str, Any]:
        asked = OptimStepBody.parse(json.loads(entry.body), origin="optim_step")
        require_adamw(asked.optimizer_params)
        if asked.adam_params is None:
            raise ConfigError("optim_step: adam_params is missing.")
        metrics = self._base.learner.step(self.trainee, asked.adam_params)
        self._change(entry.seq)
        return {"metrics": metrics}

    def _load_weights(self, entry: JournalEntry) -> Mapping[str, Any]:
        asked = LoadWeightsBody.parse(json.loads(entry.body), origin="load_weights")
        version = find_path(self._db, asked.path)
        self.trainee.load(state_of(self._base, self._db, version), optimizer=asked.optimizer)
        self._change(entry.seq)
        self.unsaved_s = math.inf  # done again, it might find something else under the path
        return {"type": "load_weights", "path": asked.path, "model_id": self.about.model_id}

    def _change(self, seq: int) -> None:
        self.changes += 1
        self.settled = seq

    def _save_weights(self, entry: JournalEntry) -> Mapping[str, Any]:
        asked = SaveWeightsBody.parse(json.loads(entry.body), origin="save_weights")
        path = self._name("weights", asked.path, asked, overwrite=asked.overwrite)
        return {"type": "save_weights", "path": path}

    def _save_weights_for_sampler(self, entry: JournalEntry) -> Mapping[str, Any]:
        asked = SaveForSamplerBody.parse(json.loads(entry.body), origin="save_weights_for_sampler")
        if asked.kind != "snapshot":
            raise ConfigError(f"kind={asked.kind!r} is not there: a sampler keeps its weights. Take kind='snapshot'.")
        if asked.path is not None:
            path = self._name("sampler_weights", asked.path, asked, overwrite=False)
            return {"type": "save_weights_for_sampler", "path": path}
        self.save()
        sampler = f"{self.about.session}:sample:{asked.sampling_session_seq_id}"
        self._notes.keep(f"{SAMPLERS}{sampler}", self.version)
        return {"type": "save_weights_for_sampler", "sampling_session_id": sampler}

    def _name(self, kind: str, name: str, asked: SaveWeightsBody | SaveForSamplerBody, *, overwrite: bool) -> str:
        """Save the weights, and note the name under which they are."""
        if not NAME.fullmatch(name):
            raise ConfigError(f"path={name!r:.150}: letters, digits and _.@=+-, up to 128, are a name.")
        self.save()
        path = f"{self.about.model_id}/{kind}/{name}"
        at = time.time()
        note = {
            "version": self.version,
            "at": at,
            "expires_at": None if asked.ttl_seconds is None else at + asked.ttl_seconds,
            "user_metadata": asked.user_metadata,
        }
        before = find_note(self._db, path)
        if before is not None and before["version"] != self.version and not overwrite:
            raise ConfigError(
                f"path={name!r} is taken by {before['version']}, and this is {self.version}: choose another name"
                f"{', or overwrite=True' if kind == 'weights' else ''}."
            )
        self._notes.keep(f"{PATHS}{path}", json.dumps(note))
        return f"{SCHEME}{path}"

    @property
    def version(self) -> str:
        """The id of the version that the present weights are, once they are saved."""
        return f"{self.about.run}/{self.changes}"

    def save(self) -> None:
        """Put the present weights on record as a version with all that is needed to go on, unless they are."""
        if self._saved == self.changes:
            return
        with tempfile.TemporaryDirectory(prefix="loomrl-remote-") as name:
            folder = Path(name)
            (folder / TENSORS).write_bytes(self.trainee.dump())
            save_adapter(self._resolved, self.trainee.adapter(self._base.identity), folder)
            self._ledger.offer(self.changes, None)
            self._ledger.commit(self.changes, folder, {"request": self.settled})
        self._saved = self.changes
        self.unsaved_s = 0.0
        self.journal.forget(self.settled)


def _data(state: State) -> Mapping[str, Any]:
    return {"requests": state["request"], "changes": state["done"]}


def _find_in_use(db: LoomDB, about: RemoteRun) -> Callable[[State], Collection[int]]:
    """The numbers of the run's versions that a name or a sampler stands for."""

    def find(_: State) -> Collection[int]:
        now = time.time()
        paths = (json.loads(text) for text in list_notes(db, f"{PATHS}{about.model_id}/").values())
        named = [note["version"] for note in paths if not _is_over(note, now)]
        sampled = list_notes(db, f"{SAMPLERS}{about.session}:").values()
        parts = (version.rpartition("/") for version in (*named, *sampled))
        return {int(number) for run, _, number in parts if run == about.run}

    return find


def find_note(db: LoomDB, path: str) -> dict[str, Any] | None:
    """The note on `MODEL/KIND/NAME`; None if there is none, or it has expired."""
    text = Notes(db).find(f"{PATHS}{path}")
    note = None if text is None else json.loads(text)
    return None if note is None or _is_over(note, time.time()) else note


def _is_over(note: Mapping[str, Any], now: float) -> bool:
    return note["expires_at"] is not None and note["expires_at"] <= now


def find_path(db: LoomDB, path: str) -> str:
    """The version that a path of the client's stands for; a ConfigError if there is none."""
    note = find_note(db, path.removeprefix(SCHEME)) if path.startswith(SCHEME) else None
    if note is None:
        raise ConfigError(
            f"path={path!r:.200}: nothing is saved there, or it has expired. Give what save_state or "
            "save_weights_for_sampler returned."
        )
    return str(note["version"])


def require_base(base: OpenBase, db: LoomDB, version: str) -> None:
    """A ConfigError if a version is not additions to this base."""
    found = base_of(POLICIES.require(db, version), db)
    if found != base.identity:
        raise ConfigError(
            f"version {version!r} was trained on base {str(found)[:12]}, and this server has {base.identity[:12]}, "
            f"{base.settings.base!r}. Serve that base."
        )


def state_of(base: OpenBase, db: LoomDB, version: str) -> bytes:
    """Factors and optimizer of a version that was trained by remote hand on this base; else a ConfigError."""
    require_base(base, db, version)
    stored = POLICIES.require(db, version)
    state = file_of(stored, db, TENSORS) if file_of(stored, db, STATE) is not None else None
    if state is None:
        raise ConfigError(f"version {version!r} has no state to go on from: it was not saved by such a training.")
    return state
