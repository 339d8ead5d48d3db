"""Retention: trajectories leave their endpoint's hub for files, and the files are deleted.

Each step is on record before it is taken: cut off anywhere, the next round finishes it.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from loomrl.artifacts import Artifacts, locate, open_artifacts
from loomrl.hub.hub import Hub, Selection
from loomrl.serving.retention.file import delete_file, exists, ids_in, read_file, write_file
from loomrl.store import LoomDB
from loomrl.store.archives import ArchiveFile, begin_file, drop_file, list_files, move_file
from loomrl.store.erasures import delete_judgements, find_erased, purge_erasures
from loomrl.store.sessions import forget_participants
from loomrl.types import Trajectory

DAY_S = 86_400.0
HOUR_S = 3_600.0
MOST = 10_000
"""Trajectories in one file; of long ones it holds fewer."""
FOLDER = "served"
"""Of the artifacts: the files of all endpoints."""
STALE_S = 600.0
"""A file that is being written for longer is taken for cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ages:
    """The times that trajectories stay."""

    hot_days: float = 30.0
    """In the hub. They leave it a day's worth at a time, so that files are few."""
    archive_days: float = 90.0
    """In files, after that."""


@dataclass(frozen=True, slots=True)
class Aged:
    """One round: trajectories that became files, and those whose files were deleted."""

    archived: int = 0
    deleted: int = 0


class Retention:
    """Keeps the ages of one endpoint's trajectories. Two at once are harmless: reading takes each trajectory once."""

    def __init__(self, db: LoomDB, hub: Hub, endpoint: str, *, artifact_url: str, ages: Ages | None = None) -> None:
        self._db = db
        self._hub = hub
        self._endpoint = endpoint
        self._ages = ages or Ages()
        self._artifacts, _ = locate(open_artifacts(artifact_url).url_of(f"{FOLDER}/any"))

    def round(self, *, now: float) -> Aged:
        """Finish what was cut off, move what is old, delete what is older."""
        self._settle(now)
        purge_erasures(self._db, self._endpoint, before=now - HOUR_S)
        return Aged(self._move(now), self._delete(now))

    def _settle(self, now: float) -> None:
        for file in list_files(self._db, self._endpoint):
            if file.state == "leaving":
                end_file(self._db, file)
            elif file.state == "writing" and file.created_at < now - STALE_S:
                if exists(file.url):
                    self._keep(file, now)
                else:
                    end_file(self._db, file)

    def _move(self, now: float) -> int:
        moved = 0
        hot_s = self._ages.hot_days * DAY_S
        step_s = min(DAY_S, hot_s)
        old = Selection(stored=(None, (now - hot_s) // step_s * step_s))
        while page := [one for _, one in self._hub.read(limit=MOST, selection=old)]:
            self._keep(write_new(self._db, self._endpoint, self._artifacts, page, now=now), now)
            moved += len(page)
        return moved

    def _keep(self, file: ArchiveFile, now: float) -> None:
        """Take the trajectories of a complete file out of the hub; and those that were erased meanwhile, out of it."""
        ids = ids_in(file.url)
        self._hub.delete(ids)
        if gone := find_erased(self._db, ids):
            take_out(self._db, file, gone, now=now)
            return
        with self._db.write() as connection:
            move_file(connection, file.id, "kept")

    def _delete(self, now: float) -> int:
        """Delete the files that are too old, and all that points at their trajectories."""
        deleted = 0
        ages = self._ages
        before = now - (ages.hot_days + ages.archive_days) * DAY_S
        for file in list_files(self._db, self._endpoint, until=before):
            if file.state != "kept" or file.last_at >= before:
                continue
            ids = ids_in(file.url) if exists(file.url) else []
            with self._db.write() as connection:
                delete_judgements(connection, ids)
                forget_participants(connection, ids)
                move_file(connection, file.id, "leaving")
            end_file(self._db, file)
            deleted += len(ids)
        return deleted


def write_new(
    db: LoomDB, endpoint: str, artifacts: Artifacts, trajectories: Sequence[Trajectory], *, now: float
) -> ArchiveFile:
    """Write trajectories to a new file, which is on record before."""
    ends = [one.finished_at for one in trajectories]
    day = datetime.fromtimestamp(max(0.0, min(ends)), UTC).strftime("%Y-%m-%d")
    id = f"{endpoint}-{day}-{secrets.token_hex(6)}"
    file = ArchiveFile(
        id=id,
        endpoint=endpoint,
        url=artifacts.url_of(id),
        count=len(trajectories),
        first_at=min(ends),
        last_at=max(ends),
        created_at=now,
    )
    begin_file(db, file)
    write_file(file.url, trajectories)
    return file


def take_out(db: LoomDB, file: ArchiveFile, ids: Collection[str], *, now: float) -> int:
    """Replace a file by one without these trajectories; how many of them were in it."""
    every = read_file(file.url)
    left = [one for one in every if one.id not in ids]
    if len(left) == len(every):
        return 0
    new = write_new(db, file.endpoint, locate(file.url)[0], left, now=now) if left else None
    with db.write() as connection:
        move_file(connection, file.id, "leaving")
        if new is not None:
            move_file(connection, new.id, "kept")
    end_file(db, file)
    return len(every) - len(left)


def end_file(db: LoomDB, file: ArchiveFile) -> None:
    """Delete a file that nobody may read any more, then take it off the record."""
    delete_file(file.url)
    drop_file(db, file.id)
