"""Deletions of people: each is on record before it begins, so that one that was cut off is finished later."""

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlalchemy import ColumnElement, Connection, delete, select, update

from loomrl.canonical import as_uuid
from loomrl.store.bus_messages import remove_by_id
from loomrl.store.db import LoomDB
from loomrl.store.events import EVENTS, record
from loomrl.store.feedback import FEEDBACK
from loomrl.store.judgements import delete_about
from loomrl.store.log import Log, Source, scalar, scalars, slices, to_json, writing
from loomrl.store.notes import find_note
from loomrl.store.observations import unit_hash
from loomrl.store.rewards import REWARDS
from loomrl.store.sessions import SESSIONS, delete_sessions, forget_participants, person_hash, placeholders, sessions_of

ORIGIN = "bus/origin"
"""The note with the beginning of the ids under which events are on the bus (`loomrl.bus.agent`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """A deletion that has begun. A session's id is its trajectory's id."""

    id: str
    endpoint: str
    person: str
    """The hash of the name that callers give."""
    state: Literal["open", "done"] = "open"
    """One that is done stays for a while, without the person."""
    trajectories: tuple[str, ...] = ()
    units: tuple[int, ...] = ()
    """In observations."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Rows deleted so far, by kind."""
    created_at: float


ERASURES = Log("erasures", Erasure)


def begin_erasure(target: Source, endpoint: str, user: str, *, at: float) -> Erasure:
    """Put on record what is to be deleted, and forget who spoke in it."""
    person = person_hash(endpoint, user)
    with writing(target) as connection:
        found = sessions_of(connection, endpoint, person)
        forget_participants(connection, found)
        begun = Erasure(
            id=uuid.uuid4().hex,
            endpoint=endpoint,
            person=person,
            trajectories=tuple(found),
            units=tuple(unit_hash(name) for name in (user, *found)),
            created_at=at,
        )
        ERASURES.append(connection, [begun])
    return begun


def open_erasures(db: LoomDB, endpoint: str) -> list[Erasure]:
    """The deletions of an endpoint's people that are not finished, oldest first."""
    return [erasure for _, erasure in ERASURES.read(db, endpoint=endpoint, state="open")]


def erase(db: LoomDB, trajectories: Sequence[str]) -> dict[str, int]:
    """Delete from LoomDB all that points at these trajectories, their sessions and calls; how many rows of each."""
    with db.write() as connection:
        there = len(scalars(connection, select(SESSIONS.c.id).where(SESSIONS.c.id.in_(trajectories))))
        counts = {"sessions": there, "calls": delete_sessions(connection, trajectories)}
        return counts | delete_judgements(connection, trajectories)


def delete_judgements(connection: Connection, trajectories: Sequence[str]) -> dict[str, int]:
    """Delete feedback on these trajectories, numbers of placeholders in it, questions to people about them, and their
    rewards, also from our bus.
    """
    made = select(REWARDS.c.id).where(REWARDS.c.trajectory.in_(trajectories))
    told = (EVENTS.c.kind == "reward.made") & EVENTS.c.subject.in_(made)
    origin = find_note(connection, ORIGIN)
    ids = [f"{origin}-{position}" for position in scalars(connection, select(EVENTS.c.position).where(told))]
    counts = {"messages": remove_by_id(connection, ids), "questions": delete_about(connection, trajectories)}
    for table in (FEEDBACK.table, REWARDS.table):
        done = connection.execute(delete(table).where(table.c.trajectory.in_(trajectories)))
        counts[table.name] = done.rowcount
    connection.execute(delete(placeholders).where(placeholders.c.session.in_(trajectories)))
    return counts


def keep_erasure(db: LoomDB, erasure: Erasure) -> None:
    """Keep how far a deletion has come."""
    text = to_json(erasure.counts, what="counts")
    with db.write() as connection:
        connection.execute(update(ERASURES.table).where(_is_open(erasure)).values(counts=text))


def finish_erasure(db: LoomDB, erasure: Erasure, *, at: float) -> Erasure:
    """Record the end of a deletion, once: the person's hash and counts. The rest goes.

    The trajectories' own messages go last: after this row, nothing names them any more.
    """
    ids = list(map(as_uuid, erasure.trajectories))
    with db.write() as connection:
        told = sum(remove_by_id(connection, some) for some in slices(ids))
        counts = {**erasure.counts, "messages": erasure.counts.get("messages", 0) + told}
        nothing = {"person": "", "units": "[]", "counts": "{}"}
        done = connection.execute(update(ERASURES.table).where(_is_open(erasure)).values(state="done", **nothing))
        if done.rowcount:
            data = {"endpoint": erasure.endpoint, **counts}
            record(connection, "person.forgotten", erasure.person, data, at=at)
    return replace(erasure, counts=counts)


def find_erased(source: Source, trajectories: Collection[str]) -> set[str]:
    """Those that are being deleted, or were lately. A writer that stored something of them meanwhile deletes it.

    In the transaction that stores something of them, nothing is left to delete.
    """
    found = scalars(source, select(ERASURES.c.trajectories))
    return set(trajectories).intersection(set().union(*map(json.loads, found)))


def erase_late(db: LoomDB, trajectories: Collection[str]) -> set[str]:
    """Those that were deleted while something of them was stored: what was stored in LoomDB is deleted too."""
    gone = find_erased(db, trajectories)
    if gone:
        erase(db, sorted(gone))
    return gone


def purge_erasures(db: LoomDB, endpoint: str, *, before: float) -> None:
    """Delete the last traces of deletions that began before then and are finished."""
    old = (ERASURES.c.endpoint == endpoint) & (ERASURES.c.state == "done") & (ERASURES.c.created_at < before)
    if scalar(db, select(ERASURES.c.id).where(old).limit(1)) is None:
        return
    with db.write() as connection:
        connection.execute(delete(ERASURES.table).where(old))


def _is_open(erasure: Erasure) -> ColumnElement[bool]:
    return (ERASURES.c.id == erasure.id) & (ERASURES.c.state == "open")
