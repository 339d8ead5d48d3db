"""Files of trajectories that have left an endpoint's hub. Each is on record before it is written and until it is gone.

`writing`: the trajectories are still in the hub, or in the file that this one replaces. `kept`: they are nowhere else.
`leaving`: it must not be read any more; it is being deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, delete, update

from loomrl.store.db import LoomDB
from loomrl.store.log import Log

FileState = Literal["writing", "kept", "leaving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """A file, with the times at which its trajectories ended, in seconds since 1970."""

    id: str
    endpoint: str
    url: str
    """The URL of its artifact."""
    state: FileState = "writing"
    count: int
    first_at: float
    last_at: float
    created_at: float


ARCHIVES = Log("archives", ArchiveFile, index=("endpoint",))


def begin_file(db: LoomDB, file: ArchiveFile) -> None:
    """Put a file on record that is about to be written."""
    ARCHIVES.append(db, [file])


def move_file(connection: Connection, id: str, state: FileState) -> None:
    """Change a file's state. None comes back from `leaving`."""
    there = (ARCHIVES.c.id == id) & (ARCHIVES.c.state != "leaving")
    connection.execute(update(ARCHIVES.table).where(there).values(state=state))


def drop_file(db: LoomDB, id: str) -> None:
    """Take a file off the record that is gone."""
    with db.write() as connection:
        connection.execute(delete(ARCHIVES.table).where(ARCHIVES.c.id == id))


def list_files(
    db: LoomDB, endpoint: str, *, since: float = float("-inf"), until: float = float("inf")
) -> Sequence[ArchiveFile]:
    """An endpoint's files with trajectories that ended between these times, oldest first."""
    within = (ARCHIVES.c.last_at >= since) & (ARCHIVES.c.first_at <= until)
    query = ARCHIVES.select(endpoint=endpoint).where(within)
    return ARCHIVES.fetch(db, query.order_by(ARCHIVES.c.first_at, ARCHIVES.c.position))
