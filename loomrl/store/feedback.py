"""Later judgements of trajectories: stored once, never edited, read from a cursor."""

from collections.abc import Sequence

from loomrl.errors import StoreError, unknown
from loomrl.store.db import LoomDB
from loomrl.store.events import record
from loomrl.store.log import Log
from loomrl.types import Feedback

SOURCES = ("human", "caller", "implicit")
SAID = ("thumb", "stars", "correction", "choice", "abandoned", "comment", "outcome")
"""Kinds that a person or a caller gives."""
DERIVED = ("asked_again", "corrected", "left")
"""Kinds that are derived from a session."""
KINDS = (*SAID, *DERIVED)
FEEDBACK = Log("feedback", Feedback, index=("trajectory",))


def append_feedback(db: LoomDB, new: Sequence[Feedback]) -> int:
    """Store feedback, all or none, and return how many were new; each is an event `feedback.given`.

    The same id with other content is an `IdTaken`. Another time is not other content: the first one holds.
    """
    for one in new:
        _check(one)
    with db.write() as connection:
        fresh = [one for one in new if FEEDBACK.insert_once(connection, one, changing=("created_at",))]
        for one in fresh:
            told = {"id": one.id, "call": one.call, "source": one.source, "kind": one.kind, "value": one.value}
            record(connection, "feedback.given", one.trajectory, told, at=one.created_at)
    return len(fresh)


def feedback_of(db: LoomDB, trajectories: Sequence[str]) -> list[Feedback]:
    """All feedback of these trajectories, oldest first."""
    query = FEEDBACK.select().where(FEEDBACK.c.trajectory.in_(trajectories))
    return FEEDBACK.fetch(db, query.order_by(FEEDBACK.c.position))


def _check(one: Feedback) -> None:
    if not 0 <= one.value <= 1:
        raise StoreError(f"feedback {one.id!r}: value={one.value} must be within 0..1.")
    if one.source not in SOURCES:
        raise StoreError(f"feedback {one.id!r}: " + unknown("source", one.source, SOURCES))
    if one.kind not in KINDS:
        raise StoreError(f"feedback {one.id!r}: " + unknown("kind", one.kind, KINDS))
