"""Retention of checkpoints by age. The best and the last of a run, and those that were served, stay for good."""

from collections.abc import Collection
from itertools import groupby

from loomrl.run.ledger import served_numbers
from loomrl.run.version import delete_checkpoint, has_checkpoint
from loomrl.serving.deployment.source import followed_version
from loomrl.store import LoomDB
from loomrl.store.events import Event, append_events
from loomrl.store.policies import list_policies
from loomrl.store.runs import RunStatus, list_runs

DAY_S = 86_400.0
DAYS = 90.0
DELETED = "checkpoint.deleted"
EVERY = 1_000_000


def age_checkpoints(
    db: LoomDB, *, days: float, now: float, runs: Collection[str] | None = None, is_dry: bool = False
) -> list[str]:
    """Delete the checkpoints of trainings that ended more than `days` ago, and return the ids of their versions.

    What stays: the best and the last of each run, what an endpoint names or was released, and what another run began
    from. Versions stay on record. A run whose last checkpoint is not there is left alone: its best one is not known.
    `runs` are the ids to look at, by default all.
    """
    before = now - days * DAY_S
    old = {
        run.id
        for run in list_runs(db, limit=EVERY, kind="train")
        if run.status is not RunStatus.RUNNING and run.finished_at is not None and run.finished_at < before
    }
    every = sorted(list_policies(db, limit=EVERY), key=lambda version: (version.run, version.number))
    parents = {version.parent for version in every if not (version.parent or "").startswith(f"{version.run}/")}
    gone: list[str] = []
    for run, made in groupby(every, key=lambda version: version.run):
        if run not in old or (runs is not None and run not in runs):
            continue
        versions = list(made)
        if not has_checkpoint(versions[-1], db):
            continue
        keep = {versions[-1].number, followed_version(run, "best", db).number, *served_numbers(db, run)}
        for version in versions:
            if version.number in keep or version.id in parents or not has_checkpoint(version, db):
                continue
            gone.append(version.id)
            if not is_dry:
                append_events(db, [Event(kind=DELETED, subject=version.id, data={"url": version.url}, created_at=now)])
                delete_checkpoint(version, db)
    return gone
