"""Retention of checkpoints by age. The best and the last of a run, and those that were served, stay for good."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from loomrl.errors import LoomError
from loomrl.run.ledger import served_numbers
from loomrl.run.version import delete_checkpoint, has_checkpoint
from loomrl.serving.deployment.source import version_to_follow
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.runs import POLICIES, RUNS, RunStatus
from loomrl.types import PolicyVersion

DAY_S = 86_400.0
DELETED = "checkpoint.deleted"
EVERY = 1_000_000


@dataclass(frozen=True, slots=True)
class Pruned:
    """One round: the versions whose checkpoints were deleted, and why runs could not be looked at."""

    deleted: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def age_checkpoints(
    db: LoomDB, *, days: float, now: float, runs: Collection[str] | None = None, is_dry: bool = False
) -> Pruned:
    """Delete the checkpoints of trainings that ended more than `days` ago; with `is_dry` only name them.

    What stays: the best and the last of each run, what an endpoint names or was released, and what another run began
    from. Versions stay on record. A run whose last checkpoint is not there is left alone: its best one is not known.
    `runs` are the ids to look at, by default all.
    """
    before = now - days * DAY_S
    old = {
        run.id
        for run in RUNS.latest(db, limit=EVERY, kind="train")
        if run.status is not RunStatus.RUNNING and run.finished_at is not None and run.finished_at < before
    }
    every = sorted(POLICIES.latest(db, limit=EVERY), key=lambda version: (version.run, version.number))
    parents = {version.parent for version in every if not (version.parent or "").startswith(f"{version.run}/")}
    pruned = Pruned()
    for run, made in groupby(every, key=lambda version: version.run):
        if run not in old or (runs is not None and run not in runs):
            continue
        try:
            for version in _spare(db, run, list(made)):
                if version.id in parents:
                    continue
                if not is_dry:
                    _delete(db, version, now)
                pruned.deleted.append(version.id)
        except LoomError as error:  # of one run; the others are aged
            pruned.failed[run] = str(error)
    return pruned


def _spare(db: LoomDB, run: str, versions: Sequence[PolicyVersion]) -> Iterator[PolicyVersion]:
    """The versions with a checkpoint that the run itself and endpoints do not need."""
    if not has_checkpoint(versions[-1], db):
        return
    keep = {versions[-1].number, version_to_follow(run, "best", db).number, *served_numbers(db, run)}
    yield from (version for version in versions if version.number not in keep and has_checkpoint(version, db))


def _delete(db: LoomDB, version: PolicyVersion, now: float) -> None:
    EVENTS.append(db, [Event(kind=DELETED, subject=version.id, data={"url": version.url}, created_at=now)])
    delete_checkpoint(version, db)
