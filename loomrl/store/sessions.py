"""Sessions of callers and their calls, as bytes; the people who opted out of being recorded."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from loomrl.store.db import LoomDB
from loomrl.store.participants import leave, take_part
from loomrl.store.rows import Row, from_json, to_json
from loomrl.store.tables import answers, calls, opt_outs, placeholders, sessions

Kept = Literal["new", "repeated", "foreign", "ended"]
"""`foreign`: the session is another key's or another endpoint's."""
MOST_DELETED = 200
"""Sessions in one transaction of `forget`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A call to be kept; it opens its session. `marks` are those of its answers."""

    id: str
    session: str
    endpoint: str
    key: str
    payload: bytes
    columns: bytes | None
    marks: tuple[bytes, ...] = ()
    person: str = ""
    """The hash of whoever spoke, if the caller named somebody."""
    created_at: float


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A call on record."""

    position: int
    payload: bytes
    columns: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session on record."""

    id: str
    endpoint: str
    key: str
    state: str
    opened_at: float
    last_at: float
    ended_at: float | None = None
    ending: Mapping[str, Any] | None = None
    trajectory: str | None = None


def keep_calls(db: LoomDB, new: Sequence[NewCall]) -> list[Kept]:
    """Store calls in one transaction, each once; the fate of each."""
    with db.write() as connection:
        there = _sessions(connection, {call.session for call in new})
        stored = set(connection.scalars(_STORED, {"ids": list({call.id for call in new})}))
        fates: list[Kept] = []
        opened: dict[str, dict[str, Any]] = {}
        seen: dict[str, float] = {}
        fresh: list[NewCall] = []
        for call in new:
            stored_session = there.get(call.session)
            session = dict(stored_session) if stored_session else _fresh_session(opened, call)
            fate = _fate(session, call, stored)
            fates.append(fate)
            if fate == "new":
                stored.add(call.id)
                fresh.append(call)
                seen[call.session] = max(seen.get(call.session, 0.0), call.created_at)
        _insert(connection, fresh, opened, seen)
    return fates


def _fresh_session(opened: dict[str, dict[str, Any]], call: NewCall) -> Mapping[str, Any]:
    begun = {"opened_at": call.created_at, "last_at": call.created_at, "state": "open"}
    return opened.setdefault(call.session, {"id": call.session, "endpoint": call.endpoint, "key": call.key, **begun})


def _fate(session: Mapping[str, Any], call: NewCall, stored: Collection[str]) -> Kept:
    if (session["key"], session["endpoint"]) != (call.key, call.endpoint):
        return "foreign"
    if call.id in stored:
        return "repeated"
    return "new" if session["state"] == "open" else "ended"


def _insert(
    connection: Connection, fresh: Sequence[NewCall], opened: dict[str, dict[str, Any]], seen: dict[str, float]
) -> None:
    if opened:
        connection.execute(insert(sessions), list(opened.values()))
    if later := [{"at": id, "seen": when} for id, when in seen.items()]:
        connection.execute(_SEEN, later)
    if fresh:
        connection.execute(insert(calls), [_row(call) for call in fresh])
    if marks := [{"mark": mark, "session": call.session} for call in fresh for mark in call.marks]:
        connection.execute(insert(answers), marks)
    take_part(connection, {(call.session, call.person): call.endpoint for call in fresh if call.person})


def _row(call: NewCall) -> dict[str, Any]:
    names = ("id", "session", "payload", "columns", "created_at")
    return {name: getattr(call, name) for name in names}


def read_session(db: LoomDB, id: str) -> StoredSession | None:
    """The session of this id."""
    with db.read() as connection:
        return next((_session_of(row) for row in _sessions(connection, {id}).values()), None)


def read_calls(db: LoomDB, session: str, *, after: int = 0) -> tuple[StoredSession | None, list[StoredCall]]:
    """A session, and its calls past a position in the order in which they were kept."""
    query = select(calls.c.position, calls.c.payload, calls.c.columns)
    query = query.where(calls.c.session == session, calls.c.position > after).order_by(calls.c.position)
    with db.read() as connection:
        row = _sessions(connection, {session}).get(session)
        found = [StoredCall(*one) for one in connection.execute(query)] if row else []
    return (None if row is None else _session_of(row)), found


def read_call(db: LoomDB, id: str) -> tuple[str, bytes] | None:
    """The session of a call, and its payload."""
    with db.read() as connection:
        row = connection.execute(select(calls.c.session, calls.c.payload).where(calls.c.id == id)).one_or_none()
    return None if row is None else (row.session, row.payload)


def find_session(db: LoomDB, key: str, marks: Sequence[bytes]) -> str | None:
    """The latest open session of a key with an answer of one of these marks; earlier marks first."""
    query = select(answers.c.mark, answers.c.session).join(sessions, sessions.c.id == answers.c.session)
    query = query.where(answers.c.mark.in_(list(marks)), sessions.c.key == key, sessions.c.state == "open")
    with db.read() as connection:
        found = {bytes(row.mark): row.session for row in connection.execute(query.order_by(answers.c.position))}
    return next((found[mark] for mark in marks if mark in found), None)


def end_session(db: LoomDB, id: str, ending: Mapping[str, Any], *, at: float) -> StoredSession | None:
    """End a session unless it has ended; the session as it is now, None if it is unknown."""
    text = to_json(ending, what=f"the end of session {id!r}")
    is_open = (sessions.c.id == id) & (sessions.c.state == "open")
    with db.write() as connection:
        connection.execute(update(sessions).where(is_open).values(state="ended", ended_at=at, ending=text))
        row = _sessions(connection, {id}).get(id)
        return None if row is None else _session_of(row)


def end_idle(db: LoomDB, endpoint: str, ending: Mapping[str, Any], *, at: float, idle_s: float) -> int:
    """End the sessions without a call since `idle_s`; how many."""
    over = sessions.c.last_at <= at - idle_s
    return _end(db, endpoint, over, ending, at)


def end_old(db: LoomDB, endpoint: str, ending: Mapping[str, Any], *, at: float, age_s: float) -> int:
    """End the sessions that were opened longer ago than `age_s`; how many."""
    over = sessions.c.opened_at <= at - age_s
    return _end(db, endpoint, over, ending, at)


def _end(db: LoomDB, endpoint: str, over: Any, ending: Mapping[str, Any], at: float) -> int:
    text = to_json(ending, what="the end of a session")
    where = (sessions.c.endpoint == endpoint) & (sessions.c.state == "open") & over
    with db.read() as connection:  # most of the time there is none, and nobody has to wait
        if connection.execute(select(sessions.c.id).where(where).limit(1)).first() is None:
            return 0
    with db.write() as connection:
        done = connection.execute(update(sessions).where(where).values(state="ended", ended_at=at, ending=text))
        return int(done.rowcount)


def ended_sessions(db: LoomDB, endpoint: str, *, limit: int) -> list[StoredSession]:
    """Ended sessions of an endpoint that its hub does not have yet, oldest first."""
    where = (sessions.c.endpoint == endpoint) & (sessions.c.state == "ended")
    with db.read() as connection:
        rows = connection.execute(select(sessions).where(where).order_by(sessions.c.last_at).limit(limit)).mappings()
        return [_session_of(row) for row in rows]


def mark_stored(db: LoomDB, trajectories: Mapping[str, str]) -> None:
    """Say of ended sessions, by id, which trajectory each became."""
    if trajectories:
        with db.write() as connection:
            connection.execute(_ARCHIVED, [{"at": id, "made": made} for id, made in trajectories.items()])


def count_lost(db: LoomDB, endpoint: str, *, since: float) -> int:
    """The sessions with a call since then that ended and became no trajectory."""
    mine = (sessions.c.endpoint == endpoint, sessions.c.state == "stored", sessions.c.last_at >= since)
    query = select(func.count()).select_from(sessions).where(*mine, sessions.c.trajectory == "")
    with db.read() as connection:
        return int(connection.scalar(query) or 0)


def forget(db: LoomDB, endpoint: str, *, before: float) -> int:
    """Delete the sessions whose last call was before then, with all their calls; how many."""
    old = (sessions.c.endpoint == endpoint) & (sessions.c.state == "stored") & (sessions.c.last_at < before)
    deleted = 0
    while True:
        with db.write() as connection:
            rows = connection.execute(select(sessions.c.id, sessions.c.trajectory).where(old).limit(MOST_DELETED)).all()
            ids = [row.id for row in rows]
            delete_sessions(connection, ids)
            leave(connection, [row.id for row in rows if not row.trajectory])
        deleted += len(ids)
        if len(ids) < MOST_DELETED:
            return deleted


def delete_sessions(connection: Connection, ids: Sequence[str]) -> int:
    """Delete these sessions with all their calls; how many calls."""
    deleted = connection.execute(delete(calls).where(calls.c.session.in_(ids))).rowcount
    connection.execute(delete(answers).where(answers.c.session.in_(ids)))
    connection.execute(delete(placeholders).where(placeholders.c.session.in_(ids)))
    connection.execute(delete(sessions).where(sessions.c.id.in_(ids)))
    return deleted


def opt_out(db: LoomDB, endpoint: str, people: Iterable[str], *, at: float) -> None:
    """From now on these people's calls to the endpoint are not recorded."""
    names = {person_hash(endpoint, one) for one in people}
    with db.write() as connection:
        query = select(opt_outs.c.person).where(opt_outs.c.endpoint == endpoint, opt_outs.c.person.in_(list(names)))
        new = names - set(connection.scalars(query))
        if new:
            rows = [{"endpoint": endpoint, "person": one, "created_at": at} for one in sorted(new)]
            connection.execute(insert(opt_outs), rows)


def opt_in(db: LoomDB, endpoint: str, people: Iterable[str]) -> None:
    """Record these people again."""
    names = [person_hash(endpoint, one) for one in people]
    with db.write() as connection:
        connection.execute(delete(opt_outs).where(opt_outs.c.endpoint == endpoint, opt_outs.c.person.in_(names)))


@dataclass(frozen=True, slots=True)
class OptOut:
    """Somebody who is not recorded, by their hash."""

    person: str
    created_at: float


def list_opt_outs(db: LoomDB, endpoint: str) -> list[OptOut]:
    """People who opted out of an endpoint, latest first."""
    query = select(opt_outs.c.person, opt_outs.c.created_at).where(opt_outs.c.endpoint == endpoint)
    with db.read() as connection:
        return [OptOut(*row) for row in connection.execute(query.order_by(opt_outs.c.created_at.desc()))]


def opted_out(db: LoomDB) -> frozenset[str]:
    """The hashes of all who opted out."""
    with db.read() as connection:
        return frozenset(connection.scalars(select(opt_outs.c.person)))


def person_hash(endpoint: str, person: str) -> str:
    """The name under which somebody is in the list."""
    return hashlib.sha256(f"{endpoint}\0{person}".encode("utf-8", "surrogatepass")).hexdigest()


def person_of(endpoint: str, user: str) -> str:
    """What is stored of a caller's name for its user: its hash; nothing of nobody."""
    return person_hash(endpoint, user) if user else ""


def _sessions(connection: Connection, ids: Collection[str]) -> dict[str, Row]:
    return {row["id"]: row for row in connection.execute(_SESSIONS, {"ids": list(ids)}).mappings()}


def _session_of(row: Row) -> StoredSession:
    return StoredSession(**(dict(row) | {"ending": None if row["ending"] is None else from_json(row["ending"])}))


_SESSIONS = select(sessions).where(sessions.c.id.in_(bindparam("ids", expanding=True)))
_STORED = select(calls.c.id).where(calls.c.id.in_(bindparam("ids", expanding=True)))
_SEEN = update(sessions).where(sessions.c.id == bindparam("at")).values(last_at=bindparam("seen"))
_ARCHIVED = (
    update(sessions)
    .where(sessions.c.id == bindparam("at"), sessions.c.state == "ended")
    .values(state="stored", trajectory=bindparam("made"))
)
