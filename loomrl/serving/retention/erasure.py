"""Deletion of everything of a person at an endpoint. The record of the deletion stays."""

from collections.abc import Mapping
from dataclasses import replace

from loomrl.hub.hub import Hub
from loomrl.serving.retention.archive import end_file, exists, take_out
from loomrl.store import LoomDB
from loomrl.store.archives import list_files
from loomrl.store.erasures import (
    Erasure,
    begin_erasure,
    erase,
    finish_erasure,
    keep_erasure,
    open_erasures,
)
from loomrl.store.observations import forget_units

TOGETHER = 500
"""Trajectories in one transaction."""


def forget(db: LoomDB, hub: Hub, endpoint: str, user: str, *, at: float) -> Erasure:
    """Delete everything of a person, by the name that callers give in `user`; what was deleted."""
    begun = begin_erasure(db, endpoint, user, at=at)
    return carry_out(db, hub, begun, at=at)


def finish(db: LoomDB, hub: Hub, endpoint: str, *, at: float) -> int:
    """Finish deletions that were cut off; how many."""
    waiting = open_erasures(db, endpoint)
    for each in waiting:
        carry_out(db, hub, each, at=at)
    return len(waiting)


def carry_out(db: LoomDB, hub: Hub, erasure: Erasure, *, at: float) -> Erasure:
    """Delete what an erasure names, wherever it is. Repeating it is harmless."""
    for start in range(0, len(erasure.trajectories), TOGETHER):
        batch = erasure.trajectories[start : start + TOGETHER]
        erasure = _add_counts(erasure, erase(db, batch))
        erasure = _add_counts(erasure, {"trajectories": len(hub.delete(batch))})
        keep_erasure(db, erasure)
    erasure = _add_counts(erasure, {"archived": _take_out(db, erasure, at)})
    erasure = _add_counts(erasure, {"observations": forget_units(db, erasure.endpoint, erasure.units)})
    return finish_erasure(db, erasure, at=at)


def _take_out(db: LoomDB, erasure: Erasure, at: float) -> int:
    """Take the trajectories out of the files; how many were there."""
    taken = 0
    ids = frozenset(erasure.trajectories)
    for file in list_files(db, erasure.endpoint) if ids else ():
        if file.state == "leaving":
            end_file(db, file)
        elif exists(file.url):
            taken += take_out(db, file, ids, now=at)
    return taken


def _add_counts(erasure: Erasure, more: Mapping[str, int]) -> Erasure:
    counts = dict(erasure.counts)
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count
    return replace(erasure, counts=counts)
