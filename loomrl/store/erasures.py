"""Deletions of people: each is on record before it begins, so that one that was cut off is finished later."""

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, delete, insert, select, update

from loomrl.canonical import as_uuid
from loomrl.store.bus_messages import remove_by_id
from loomrl.store.db import LoomDB
from loomrl.store.events import Event, record
from loomrl.store.judgements import delete_about
from loomrl.store.notes import find_note
from loomrl.store.observations import unit_hash
from loomrl.store.participants import leave, sessions_of
from loomrl.store.rows import Row, from_json
from loomrl.store.sessions import delete_sessions, person_hash
from loomrl.store.tables import erasures, events, feedback, placeholders, rewards, sessions

MOST = 1000
"""Ids in one question."""
ORIGIN = "bus/origin"
"""The note with the beginning of the ids under which events are on the bus (`loomrl.bus.origin`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """A deletion that has begun. A session's id is its trajectory's id."""

    id: str
    endpoint: str
    person: str
    """The hash of the name that callers give."""
    trajectories: tuple[str, ...] = ()
    units: tuple[int, ...] = ()
    """In observations."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was deleted by now."""
    created_at: float


def begin_erasure(db: LoomDB, endpoint: str, user: str, *, at: float) -> Erasure:
    """Put on record what is to be deleted, and forget who spoke in it."""
    person = person_hash(endpoint, user)
    with db.write() as connection:
        found = sessions_of(connection, endpoint, person)
        leave(connection, found)
        begun = Erasure(
            id=uuid.uuid4().hex,
            endpoint=endpoint,
            person=person,
            trajectories=tuple(found),
            units=tuple(unit_hash(name) for name in (user, *found)),
            created_at=at,
        )
        row = {"id": begun.id, "endpoint": endpoint, "person": person, "state": "open", "created_at": at}
        connection.execute(insert(erasures).values(**row, trajectories=json.dumps(found), content=_content(begun)))
    return begun


def open_erasures(db: LoomDB, endpoint: str) -> list[Erasure]:
    """The deletions of an endpoint's people that are not finished, oldest first."""
    mine = (erasures.c.endpoint == endpoint) & (erasures.c.state == "open")
    with db.read() as connection:
        return [_erasure_of(row) for row in connection.execute(select(erasures).where(mine)).mappings()]


def erase(db: LoomDB, trajectories: Sequence[str]) -> dict[str, int]:
    """Delete from LoomDB all that points at these trajectories, their sessions and calls; how many rows of each."""
    with db.write() as connection:
        there = len(connection.execute(select(sessions.c.id).where(sessions.c.id.in_(trajectories))).all())
        counts = {"sessions": there, "calls": delete_sessions(connection, trajectories)}
        return counts | delete_judgements(connection, trajectories)


def delete_judgements(connection: Connection, trajectories: Sequence[str]) -> dict[str, int]:
    """Delete feedback on these trajectories, numbers of placeholders in it, questions to people about them, and their
    rewards, also from our bus.
    """
    made = select(rewards.c.id).where(rewards.c.trajectory.in_(trajectories))
    told = (events.c.kind == "reward.made") & events.c.subject.in_(made)
    origin = find_note(connection, ORIGIN)
    ids = [f"{origin}-{position}" for position in connection.scalars(select(events.c.position).where(told))]
    counts = {"messages": remove_by_id(connection, ids), "questions": delete_about(connection, trajectories)}
    for table in (feedback, rewards):
        done = connection.execute(delete(table).where(table.c.trajectory.in_(trajectories)))
        counts[table.name] = done.rowcount
    connection.execute(delete(placeholders).where(placeholders.c.session.in_(trajectories)))
    return counts


def keep_erasure(db: LoomDB, erasure: Erasure) -> None:
    """Keep how far a deletion has come."""
    where = (erasures.c.id == erasure.id) & (erasures.c.state == "open")
    with db.write() as connection:
        connection.execute(update(erasures).where(where).values(content=_content(erasure)))


def finish_erasure(db: LoomDB, erasure: Erasure, *, at: float) -> Erasure:
    """Record the end of a deletion, once: the person's hash and counts. The rest goes.

    What was told of the trajectories goes last, as nobody can tell it again.
    """
    ids = list(map(as_uuid, erasure.trajectories))
    with db.write() as connection:
        told = sum(remove_by_id(connection, ids[start : start + MOST]) for start in range(0, len(ids), MOST))
        counts = {**erasure.counts, "messages": erasure.counts.get("messages", 0) + told}
        is_open = (erasures.c.id == erasure.id) & (erasures.c.state == "open")
        done = connection.execute(update(erasures).where(is_open).values(state="done", person="", content="{}"))
        if done.rowcount:
            data = {"endpoint": erasure.endpoint, **counts}
            record(connection, Event(kind="person.forgotten", subject=erasure.person, data=data, created_at=at))
    return replace(erasure, counts=counts)


def erased(db: LoomDB, trajectories: Collection[str]) -> set[str]:
    """Those that are being deleted, or were lately: whoever stored something of them meanwhile deletes it."""
    with db.read() as connection:
        return erased_in(connection, trajectories)


def erased_in(connection: Connection, trajectories: Collection[str]) -> set[str]:
    """As `erased`, in the transaction of whoever stores something of them: then nothing is left to delete."""
    found = connection.scalars(select(erasures.c.trajectories)).all()
    return set(trajectories).intersection(set().union(*map(json.loads, found)))


def erase_late(db: LoomDB, trajectories: Collection[str]) -> set[str]:
    """Those that were deleted while somebody stored something of them: what was stored in LoomDB is deleted too."""
    gone = erased(db, trajectories)
    if gone:
        erase(db, sorted(gone))
    return gone


def purge_erasures(db: LoomDB, endpoint: str, *, before: float) -> None:
    """Delete the last traces of deletions that began before then and are finished."""
    old = (erasures.c.endpoint == endpoint) & (erasures.c.state == "done") & (erasures.c.created_at < before)
    with db.read() as connection:
        if connection.execute(select(erasures.c.id).where(old).limit(1)).first() is None:
            return
    with db.write() as connection:
        connection.execute(delete(erasures).where(old))


def _content(erasure: Erasure) -> str:
    return json.dumps({"units": erasure.units, "counts": dict(erasure.counts)})


def _erasure_of(row: Row) -> Erasure:
    content = from_json(row["content"])
    return Erasure(
        id=row["id"],
        endpoint=row["endpoint"],
        person=row["person"],
        trajectories=tuple(json.loads(row["trajectories"])),
        units=tuple(content["units"]),
        counts=content["counts"],
        created_at=row["created_at"],
    )
