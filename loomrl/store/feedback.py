"""Later judgements of trajectories: stored once, read from a cursor."""

from collections.abc import Sequence

from sqlalchemy import func, select

from loomrl.store.db import LoomDB
from loomrl.store.rows import columns_of, insert_once
from loomrl.store.tables import feedback
from loomrl.types import Feedback


def append_feedback(db: LoomDB, new: Sequence[Feedback]) -> int:
    """Store feedback, all or none, and return how many were new. The same id with other content is a StoreError."""
    with db.write() as connection:
        return sum(insert_once(connection, feedback, columns_of(judgement)) for judgement in new)


def read_feedback(
    db: LoomDB, *, after: int = 0, limit: int = 1000, trajectory: str | None = None
) -> list[tuple[int, Feedback]]:
    """The next feedback past a position, oldest first. Continue reading from the last one's position."""
    query = select(feedback).where(feedback.c.position > after).order_by(feedback.c.position).limit(limit)
    if trajectory is not None:
        query = query.where(feedback.c.trajectory == trajectory)
    with db.read() as connection:
        rows = [dict(row) for row in connection.execute(query).mappings()]
    return [(row.pop("position"), Feedback(**row)) for row in rows]


def last_feedback(db: LoomDB) -> int:
    """The newest position; 0 without any."""
    with db.read() as connection:
        return int(connection.scalar(select(func.max(feedback.c.position))) or 0)
