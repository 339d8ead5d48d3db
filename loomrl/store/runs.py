"""Runs: executions of an experiment, with code, environments and parent policy."""

import os
import platform
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sqlalchemy import UniqueConstraint, insert, update

import loomrl
from loomrl.errors import ConfigError, RunTaken, StoreError
from loomrl.load import parse_yaml
from loomrl.schema import Difference, differences
from loomrl.store.db import LoomDB, repeated
from loomrl.store.events import EVENTS, Event, record
from loomrl.store.log import Records, Source, to_json
from loomrl.types import PolicyVersion, Stage

if TYPE_CHECKING:
    from loomrl.config import AnyExperiment
    from loomrl.config.sweep import Sweep

STOP_ASKED = "run.stop_asked"
MODEL = "run.model"
BEGUN = ("run.started", "run.resumed")
FORKED = "run.forked"
BY_A_PERSON = "stopped by "
"""Beginning of a result's `stopped` after a person's request."""
LONGEST_ID = 200
"""Maximum length of a run's id: files are named after it, and trials of a sweep extend it."""
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]*")


class RunStatus(StrEnum):
    """The state of a run. A killed one stays RUNNING until it is resumed or finished by hand."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of a resolved experiment."""

    id: str
    name: str
    kind: str
    """The command that made it: `train`, `evaluate` …"""
    experiment: str
    """SHA-256 of the resolved experiment."""
    resolved: str
    """The resolved experiment as text, for rerunning it."""
    code: str
    environments: Mapping[str, str]
    """`Name@version` → snapshot hash."""
    parent_policy: str | None = None
    started_at: float
    status: RunStatus = RunStatus.RUNNING
    result: Mapping[str, Any] = field(default_factory=dict)
    finished_at: float | None = None

    @property
    def is_over(self) -> bool:
        """True for a run that reached its end; one that failed or that a person stopped may be resumed."""
        return self.status is RunStatus.FINISHED and not str(self.result.get("stopped", "")).startswith(BY_A_PERSON)


RUNS = Records("runs", Run, index=("started_at",), newest=("started_at", "id"))
POLICIES = Records(
    "policies",
    PolicyVersion,
    UniqueConstraint("run", "number"),
    index=("run", "parent"),
    newest=("created_at", "number"),
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to lead a run. The process that started or resumed it last holds it; earlier holders are fenced."""

    run: str
    times: int
    """How often the run was started or resumed, this time included."""
    code: str
    """Revision of the code that leads it."""


def run_id(asked: str | None, name: str) -> str:
    """The requested id, or a new one from the experiment's name; a ConfigError if it cannot be a file name."""
    if asked is None:
        return f"{name}-{uuid.uuid4().hex[:8]}"
    if len(asked) > LONGEST_ID or not _ID.fullmatch(asked):
        raise ConfigError(
            f"run={asked!r:.100}: an id has 1 to {LONGEST_ID} letters, digits and _.@=+-, and begins with a letter, a "
            "digit or _. Folders are called after it. Example: math-1."
        )
    return asked


def start_run(db: LoomDB, run: Run, *, sources: Mapping[str, str] = MappingProxyType({})) -> Claim:
    """Record a run before it starts. Starting it again resumes it, with the same experiment but for its layout."""
    row = RUNS.row(replace(run, status=RunStatus.RUNNING, result={}, finished_at=None))
    started: dict[str, Any] = {
        "code": run.code,
        "environments": dict(run.environments),
        "experiment": run.experiment,
        "sources": dict(sources),
        "machine": machine(),
        "host": platform.node(),
    }
    with db.write() as connection:
        if run.parent_policy is not None:
            POLICIES.require(connection, run.parent_policy)
            refuse_forgotten(connection, run.parent_policy)
        refuse_forgotten(connection, f"{run.id}@newest")
        before = RUNS.find(connection, run.id)
        if before is None:
            connection.execute(insert(RUNS.table).values(**row))
        else:
            started["changed"] = {path: now for path, _, now in _find_changes(before, run)}
            reopened = {name: row[name] for name in ("status", "finished_at", "code", "environments")}
            connection.execute(update(RUNS.table).where(RUNS.c.id == run.id).values(**reopened))
        kind = "run.resumed" if _beginnings(connection, run.id) else "run.started"
        record(connection, kind, run.id, started, at=run.started_at)
        return Claim(run.id, len(_beginnings(connection, run.id)), run.code)


def record_fork(db: LoomDB, run: Run, changed: Mapping[str, str | None]) -> None:
    """Record a run that begins in the middle of another one, with these settings changed, before anything leads it."""
    assert run.parent_policy is not None
    with db.write() as connection:
        POLICIES.require(connection, run.parent_policy)
        refuse_forgotten(connection, run.parent_policy)
        refuse_other_fork(connection, run)
        if RUNS.find(connection, run.id) is None:
            connection.execute(insert(RUNS.table).values(**RUNS.row(run)))
            record(connection, FORKED, run.id, {"from": run.parent_policy, "changed": changed}, at=run.started_at)


def refuse_other_fork(source: Source, run: Run) -> None:
    """A StoreError if another run than this fork is on record under its id."""
    before = RUNS.find(source, run.id)
    if before is None or (before.parent_policy, before.experiment) == (run.parent_policy, run.experiment):
        return
    raise StoreError(
        f"run {run.id!r} is on record and is not this fork of {run.parent_policy}. Name another --run; to "
        f"continue that one: `loomrl train --resume --run {run.id}`."
    )


def changed_in_fork(source: Source, run: str) -> Mapping[str, str | None] | None:
    """The settings that a fork changed, as JSON by path; None of a run that is no fork."""
    forked = EVENTS.first(source, EVENTS.select(subject=run).where(EVENTS.c.kind == FORKED))
    return None if forked is None else forked.data["changed"]


def served_version(source: Source, key: str) -> str:
    """The id of the version that a served policy's key stands for now; the key itself if it is none on record."""
    run, _, follow = key.rpartition("@")
    if follow not in ("newest", "best"):
        return key
    newest = POLICIES.latest(source, run=run, limit=1)
    return newest[0].id if newest else key


def refuse_forgotten(source: Source, policy: str) -> None:
    """A StoreError for a version, or a run that is followed, that learnt from a person who was forgotten since."""
    version = POLICIES.find(source, served_version(source, policy))
    if version is None or version.stage is not Stage.FORGOTTEN:
        return
    moves = EVENTS.select(subject=version.id).where(EVENTS.c.kind == "policy.moved")
    moved = EVENTS.first(source, moves.order_by(EVENTS.c.position.desc()))
    reason = "" if moved is None else moved.data["reason"]
    raise StoreError(f"policy {version.id!r} is never used again: {reason}")


def pin_model(db: LoomDB, run: str, file: Mapping[str, Any], *, at: float) -> None:
    """Record the file of a run's first weights; a ConfigError if the run began with a file of other content."""
    with db.write() as connection:
        before = pinned_model(connection, run)
        if before is None:
            record(connection, MODEL, run, dict(file), at=at)
        elif before["sha256"] != file["sha256"]:
            raise ConfigError(
                f"run {run!r} began with {before['file']} of SHA-256 {before['sha256'][:12]}, and "
                f"{file['file']} has {file['sha256'][:12]} now. Bring the file back, or name another --run."
            )


def pinned_model(source: Source, run: str) -> Mapping[str, Any] | None:
    """The file that a run's first weights were converted from: its name, size and SHA-256."""
    event = EVENTS.first(source, EVENTS.select(subject=run).where(EVENTS.c.kind == MODEL))
    return None if event is None else event.data


def hold(source: Source, claim: Claim) -> None:
    """Raises RunTaken if another process has resumed the run since."""
    begun = _beginnings(source, claim.run)
    if len(begun) != claim.times:
        by = begun[-1].data.get("host", "another host")
        when = time.ctime(begun[-1].created_at)
        raise RunTaken(
            f"run {claim.run!r}: was resumed on {by} at {when}, so this process has stopped leading it. What it made "
            "since its last checkpoint does not count. Two trainings at once need a --run each."
        )


def _beginnings(source: Source, run: str) -> list[Event]:
    """The starts and resumes of a run, in their order."""
    begun = EVENTS.select(subject=run).where(EVENTS.c.kind.in_(BEGUN))
    return EVENTS.fetch(source, begun.order_by(EVENTS.c.position))


def ask_to_stop(db: LoomDB, id: str, *, who: str, why: str, at: float) -> None:
    """Ask a run's trainer to end after its present update; a StoreError for a run that is not being trained."""
    with db.write() as connection:
        run = RUNS.require(connection, id)
        if run.kind != "train" or run.status is not RunStatus.RUNNING:
            raise StoreError(
                f"run {id!r} is {run.status} and of kind {run.kind}: only a running training can be stopped."
            )
        record(connection, STOP_ASKED, id, {"by": who, "why": why}, at=at)


def asked_to_stop(db: LoomDB, id: str) -> Event | None:
    """The wish that the run be stopped, if there is one since it was started or resumed."""
    either = EVENTS.select(subject=id).where(EVENTS.c.kind.in_((STOP_ASKED, *BEGUN)))
    latest = EVENTS.first(db, either.order_by(EVENTS.c.position.desc()))
    return None if latest is None or latest.kind != STOP_ASKED else latest


@repeated
def finish_run(
    db: LoomDB,
    id: str,
    *,
    status: RunStatus,
    finished_at: float,
    result: Mapping[str, Any] | None = None,
    claim: Claim | None = None,
) -> None:
    """Record the end of a run, and its result as JSON values; RunTaken if `claim` is not held any more."""
    text = to_json(dict(result or {}), what=f"run {id!r} result")
    with db.write() as connection:
        RUNS.require(connection, id)
        if claim is not None:
            hold(connection, claim)
        ended = {"status": status.value, "finished_at": finished_at, "result": text}
        connection.execute(update(RUNS.table).where(RUNS.c.id == id).values(**ended))
        record(connection, f"run.{status.value}", id, {}, at=finished_at)


def machine() -> str:
    """This machine in words; its GPUs only if torch is loaded already."""
    torch = sys.modules.get("torch")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch else []
    parts = [f"{os.cpu_count()} cores", *gpus, platform.system(), f"Python {platform.python_version()}"]
    return ", ".join([*parts, *([f"torch {torch.__version__}"] if torch else [])])


def machine_of(db: LoomDB, run: str) -> str | None:
    """The machine that the run was last started or resumed on; None if it is not on record."""
    machines = machines_of(db, run)
    return machines[-1] if machines else None


def machines_of(db: LoomDB, run: str) -> list[str | None]:
    """The machine of each start and resume of a run; None for one that is not on record."""
    told = [begun.data for begun in _beginnings(db, run)]
    return [f"{each['host']}: {each['machine']}" if "machine" in each else None for each in told]


def code_revision() -> str:
    """Git revision of this loomrl, with `-dirty` if changed; its version if it is not a checkout."""
    checkout = Path(loomrl.__file__).parents[1]
    if not (checkout / ".git").exists():
        return loomrl.__version__
    describe = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(describe, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):  # no git here, or a checkout of someone else's
        return loomrl.__version__
    return answer.stdout.strip()


def load_experiment(run: Run) -> "AnyExperiment":
    """The experiment of a recorded run."""
    from loomrl.config import parse_experiment

    origin = f"run {run.id}"
    return parse_experiment(parse_yaml(run.resolved, origin=origin), origin=origin)


def load_sweep(run: Run) -> "Sweep":
    """The sweep of a recorded run of `loomrl sweep`."""
    from loomrl.config.sweep import Sweep

    origin = f"sweep {run.id}"
    return Sweep.parse(parse_yaml(run.resolved, origin=origin), origin=origin)


def find_changed_setting(db: LoomDB, run: str, path: str) -> str | None:
    """The value of this setting that the run was resumed with last, as text; None if it is its own."""
    begun = _beginnings(db, run)
    changed: Mapping[str, str] = begun[-1].data.get("changed", {}) if begun else {}
    return changed.get(path)


def _find_changes(earlier: Run, run: Run) -> list[Difference]:
    """The differences from the experiment that the run began with; a StoreError for more than where it runs."""
    if run.experiment == earlier.experiment:
        return []
    told = f"run {run.id!r} was started with experiment {earlier.experiment}, now {run.experiment}"
    changed, other = _changes(earlier, run)
    if other:
        named = "; ".join(f"{path}={now}, which was {then}" for path, then, now in other[:5])
        more = f"; and {len(other) - 5} more" if len(other) > 5 else ""
        raise StoreError(
            f"{told}: {named}{more}. A run is resumed with its own settings, but for where it runs, with how many "
            "processes, and for how long if neither a schedule nor a data set goes by that. Start a new run for others."
        )
    return changed


def _changes(earlier: Run, run: Run) -> tuple[list[Difference], list[Difference]]:
    """All differences, and those that a resumed run may not have."""
    from loomrl.config.layout import otherwise

    if run.kind == "sweep":
        changed = differences(load_sweep(earlier).plain, load_sweep(run).plain)
        return changed, changed
    now = load_experiment(run)
    changed = differences(load_experiment(earlier).plain, now.plain)
    return changed, otherwise(changed, now)
