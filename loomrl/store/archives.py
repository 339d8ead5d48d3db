"""Files of trajectories that have left an endpoint's hub. Each is on record before it is written and until it is gone.

`writing`: the trajectories are still in the hub, or in the file that this one replaces. `kept`: they are nowhere else.
`leaving`: nobody may read it any more; it is being deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, delete, insert, select, update

from loomrl.store.db import LoomDB
from loomrl.store.rows import columns_of
from loomrl.store.tables import archives

FileState = Literal["writing", "kept", "leaving"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """A file, with the times at which its trajectories ended, in seconds since 1970."""

    id: str
    endpoint: str
    url: str
    """Of its artifact."""
    state: FileState = "writing"
    count: int
    first_at: float
    last_at: float
    created_at: float


def begin_file(db: LoomDB, file: ArchiveFile) -> None:
    """Put a file on record that is about to be written."""
    with db.write() as connection:
        connection.execute(insert(archives).values(**columns_of(file)))


def move_file(connection: Connection, id: str, state: FileState) -> None:
    """Change a file's state. None comes back from `leaving`."""
    there = (archives.c.id == id) & (archives.c.state != "leaving")
    connection.execute(update(archives).where(there).values(state=state))


def drop_file(db: LoomDB, id: str) -> None:
    """Take a file off the record that is gone."""
    with db.write() as connection:
        connection.execute(delete(archives).where(archives.c.id == id))


def list_files(
    db: LoomDB, endpoint: str, *, since: float = float("-inf"), until: float = float("inf")
) -> Sequence[ArchiveFile]:
    """An endpoint's files with trajectories that ended between these times, oldest first."""
    within = (archives.c.endpoint == endpoint) & (archives.c.last_at >= since) & (archives.c.first_at <= until)
    query = select(archives).where(within).order_by(archives.c.first_at, archives.c.position)
    with db.read() as connection:
        rows = [dict(row) for row in connection.execute(query).mappings()]
    return [ArchiveFile(**{name: value for name, value in row.items() if name != "position"}) for row in rows]
