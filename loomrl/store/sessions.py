"""Sessions of callers, with their calls as bytes, their speakers, their placeholders and their quarantine.

Also the people who opted out of being recorded.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import (
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from loomrl.store.db import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.log import Log, Position, Records, Source, fetch, metadata, scalar, scalars, to_json

Kept = Literal["new", "repeated", "foreign", "ended"]
"""`foreign`: the session is another key's or another endpoint's."""
QUARANTINE = "session.quarantine"
"""The kind of event by which sessions go into quarantine and out of it."""
MOST_DELETED = 200
"""Sessions in one transaction of `forget`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCall:
    """A call to be kept; it opens its session. `marks` are those of its answers."""

    id: str | None
    """None for acts: nothing repeats them."""
    session: str
    endpoint: str
    key: str
    payload: bytes
    columns: bytes | None
    marks: tuple[bytes, ...] = ()
    person: str = ""
    """The hash of the speaker's name, if the caller gave one."""
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


SESSIONS = Records("sessions", StoredSession, Index("sessions_by_time", "endpoint", "state", "last_at"))
"""`open → ended → stored`."""
CALLS = Log(
    "calls",
    NewCall,
    Index("calls_by_session", "session", "position"),
    beside=("endpoint", "key", "marks", "person"),
)
"""`columns` are the tokens; NULL where they are lost to redaction."""

answers = Table(
    "answers",
    metadata,
    Column("position", Position, primary_key=True, autoincrement=True),
    Column("mark", LargeBinary, nullable=False, index=True),
    Column("session", Text, nullable=False, index=True),
    sqlite_autoincrement=True,
)
"""Marks of conversations that end with an answer on record (`loomrl.serving.thread`)."""

participants = Table(
    "participants",
    metadata,
    Column("session", Text, primary_key=True),
    Column("person", Text, primary_key=True),
    Column("endpoint", Text, nullable=False),
    Index("participants_by_person", "endpoint", "person"),
)
"""Who spoke in a session, by the hash of `OPT_OUTS`. Rows stay as long as the session's trajectory does."""

placeholders = Table(
    "placeholders",
    metadata,
    Column("session", Text, primary_key=True),
    Column("hash", LargeBinary, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("number", Integer, nullable=False),
)
"""Values of a session by a hash whose key only the service has in memory, and the numbers of their placeholders."""


@dataclass(frozen=True, slots=True)
class OptOut:
    """A person who is not recorded, by the hash of their name."""

    person: str
    created_at: float


OPT_OUTS = Records("opt_outs", OptOut, Column("endpoint", Text, primary_key=True), key=("person",))


def keep_calls(db: LoomDB, new: Sequence[NewCall]) -> list[Kept]:
    """Store calls in one transaction, each once; the fate of each."""
    fates: list[Kept] = []
    fresh: list[NewCall] = []
    with db.write(early=True) as connection:  # a session is learnt from once a later commit has ended it
        ids = {call.id for call in new} - {None}
        stored = set(connection.scalars(_STORED, {"ids": list(ids)})) if ids else set()
        sessions = _touch_sessions(connection, new)
        for call in new:
            fates.append(fate := _fate(sessions.get(call.session), call, stored))
            if fate == "new":
                fresh.append(call)
                stored |= {call.id} - {None}
        _insert(connection, fresh)
    return fates


def _touch_sessions(connection: Connection, new: Sequence[NewCall]) -> Mapping[str, StoredSession]:
    """Note the time of calls at their sessions, and open new ones; nothing if all were open for their callers."""
    seen = {(call.session, call.key, call.endpoint): call.created_at for call in new}
    whose = [{"at": id, "by": key, "of": endpoint, "seen": when} for (id, key, endpoint), when in seen.items()]
    if not whose or connection.execute(_SEEN, whose).rowcount == len(whose):
        return {}
    rows = connection.execute(_SESSIONS, {"ids": list({call.session for call in new})}).mappings()
    there = {row["id"]: SESSIONS.parse(row) for row in rows}
    opened = {call.session: _open_session(call) for call in reversed(new) if call.session not in there}
    SESSIONS.insert(connection, list(opened.values()))
    return there | opened


def _open_session(call: NewCall) -> StoredSession:
    at = call.created_at
    return StoredSession(id=call.session, endpoint=call.endpoint, key=call.key, state="open", opened_at=at, last_at=at)


def _fate(session: StoredSession | None, call: NewCall, stored: Collection[str | None]) -> Kept:
    if session is not None and (session.key, session.endpoint) != (call.key, call.endpoint):
        return "foreign"
    if call.id in stored:
        return "repeated"
    return "new" if session is None or session.state == "open" else "ended"


def _insert(connection: Connection, fresh: Sequence[NewCall]) -> None:
    CALLS.insert(connection, fresh)
    if marks := [{"mark": mark, "session": call.session} for call in fresh for mark in call.marks]:
        connection.execute(insert(answers), marks)
    record_participants(connection, {(call.session, call.person): call.endpoint for call in fresh if call.person})


def record_participants(connection: Connection, people: Mapping[tuple[str, str], str]) -> None:
    """Store who spoke, once each: (session, person) → endpoint."""
    if not people:
        return
    there = {(row["session"], row["person"]) for row in fetch(connection, _spoke({session for session, _ in people}))}
    new = [{"session": each[0], "person": each[1], "endpoint": people[each]} for each in sorted(people.keys() - there)]
    if new:
        connection.execute(insert(participants), new)


def _spoke(sessions: Collection[str]) -> Select[Any]:
    return select(participants).where(participants.c.session.in_(sessions))


def people_in(db: LoomDB, sessions: Sequence[str]) -> dict[str, set[str]]:
    """Session → the people who spoke in it; sessions without a known person are left out."""
    found: dict[str, set[str]] = {}
    for row in fetch(db, _spoke(sessions)):
        found.setdefault(row["session"], set()).add(row["person"])
    return found


def sessions_of(source: Source, endpoint: str, person: str) -> list[str]:
    """The sessions of an endpoint in which this person spoke."""
    mine = (participants.c.endpoint == endpoint) & (participants.c.person == person)
    return sorted(scalars(source, select(participants.c.session).where(mine)))


def forget_participants(connection: Connection, sessions: Sequence[str]) -> None:
    """Forget who spoke in these sessions."""
    connection.execute(delete(participants).where(participants.c.session.in_(sessions)))


def read_calls(db: LoomDB, session: str, *, after: int = 0) -> tuple[StoredSession | None, list[StoredCall]]:
    """A session, and its calls past a position in the order in which they were kept."""
    query = select(CALLS.c.position, CALLS.c.payload, CALLS.c.columns)
    query = query.where(CALLS.c.session == session, CALLS.c.position > after).order_by(CALLS.c.position)
    with db.read() as connection:
        found = SESSIONS.find(connection, session)
        return found, [StoredCall(*row.values()) for row in fetch(connection, query)] if found else []


def read_call(db: LoomDB, id: str) -> tuple[str, bytes] | None:
    """The session of a call, and its payload."""
    rows = fetch(db, select(CALLS.c.session, CALLS.c.payload).where(CALLS.c.id == id))
    return next(((row["session"], row["payload"]) for row in rows), None)


def find_session(db: LoomDB, key: str, marks: Sequence[bytes]) -> str | None:
    """The latest open session of a key with an answer of one of these marks; earlier marks first."""
    query = select(answers.c.mark, answers.c.session).join(SESSIONS.table, SESSIONS.c.id == answers.c.session)
    query = query.where(answers.c.mark.in_(list(marks)), SESSIONS.c.key == key, SESSIONS.c.state == "open")
    found = {bytes(row["mark"]): row["session"] for row in fetch(db, query.order_by(answers.c.position))}
    return next((found[mark] for mark in marks if mark in found), None)


def end_session(db: LoomDB, id: str, ending: Mapping[str, Any], *, at: float) -> StoredSession | None:
    """End a session unless it has ended; the session as it is now, None if it is unknown."""
    text = to_json(ending, what=f"the end of session {id!r}")
    is_open = (SESSIONS.c.id == id) & (SESSIONS.c.state == "open")
    with db.write() as connection:
        connection.execute(update(SESSIONS.table).where(is_open).values(state="ended", ended_at=at, ending=text))
        return SESSIONS.find(connection, id)


def end_idle(db: LoomDB, endpoint: str, ending: Mapping[str, Any], *, at: float, idle_s: float) -> int:
    """End the sessions without a call since `idle_s`; how many."""
    over = SESSIONS.c.last_at <= at - idle_s
    return _end(db, endpoint, over, ending, at)


def end_old(db: LoomDB, endpoint: str, ending: Mapping[str, Any], *, at: float, age_s: float) -> int:
    """End the sessions that were opened longer ago than `age_s`; how many."""
    over = SESSIONS.c.opened_at <= at - age_s
    return _end(db, endpoint, over, ending, at)


def _end(db: LoomDB, endpoint: str, over: Any, ending: Mapping[str, Any], at: float) -> int:
    text = to_json(ending, what="the end of a session")
    where = (SESSIONS.c.endpoint == endpoint) & (SESSIONS.c.state == "open") & over
    # Most of the time there is none, and no writer has to wait.
    if scalar(db, select(SESSIONS.c.id).where(where).limit(1)) is None:
        return 0
    with db.write() as connection:
        done = connection.execute(update(SESSIONS.table).where(where).values(state="ended", ended_at=at, ending=text))
        return int(done.rowcount)


def list_ended_sessions(db: LoomDB, endpoint: str, *, limit: int) -> list[StoredSession]:
    """Ended sessions of an endpoint that its hub does not have yet, oldest first."""
    ended = SESSIONS.select(endpoint=endpoint, state="ended")
    return SESSIONS.fetch(db, ended.order_by(SESSIONS.c.last_at).limit(limit))


def mark_stored(db: LoomDB, trajectories: Mapping[str, str]) -> None:
    """Say of ended sessions, by id, which trajectory each became."""
    if trajectories:
        with db.write() as connection:
            connection.execute(_MARK_STORED, [{"at": id, "made": made} for id, made in trajectories.items()])


def count_lost(db: LoomDB, endpoint: str, *, since: float) -> int:
    """The sessions with a call since then that ended and became no trajectory."""
    mine = (SESSIONS.c.endpoint == endpoint, SESSIONS.c.state == "stored", SESSIONS.c.last_at >= since)
    query = select(func.count()).select_from(SESSIONS.table).where(*mine, SESSIONS.c.trajectory == "")
    return int(scalar(db, query))


def forget(db: LoomDB, endpoint: str, *, before: float) -> int:
    """Delete the sessions whose last call was before then, with all their calls; how many."""
    old = (SESSIONS.c.endpoint == endpoint) & (SESSIONS.c.state == "stored") & (SESSIONS.c.last_at < before)
    deleted = 0
    while True:
        with db.write() as connection:
            rows = connection.execute(select(SESSIONS.c.id, SESSIONS.c.trajectory).where(old).limit(MOST_DELETED)).all()
            ids = [row.id for row in rows]
            delete_sessions(connection, ids)
            forget_participants(connection, [row.id for row in rows if not row.trajectory])
        deleted += len(ids)
        if len(ids) < MOST_DELETED:
            return deleted


def delete_sessions(connection: Connection, ids: Sequence[str]) -> int:
    """Delete these sessions with all their calls; how many calls."""
    deleted = connection.execute(delete(CALLS.table).where(CALLS.c.session.in_(ids))).rowcount
    connection.execute(delete(answers).where(answers.c.session.in_(ids)))
    connection.execute(delete(placeholders).where(placeholders.c.session.in_(ids)))
    connection.execute(delete(SESSIONS.table).where(SESSIONS.c.id.in_(ids)))
    return deleted


def opt_out(db: LoomDB, endpoint: str, people: Iterable[str], *, at: float) -> None:
    """From now on these people's calls to the endpoint are not recorded."""
    names = {person_hash(endpoint, one) for one in people}
    with db.write() as connection:
        known = OPT_OUTS.select(endpoint=endpoint).where(OPT_OUTS.c.person.in_(names))
        new = sorted(names - {one.person for one in OPT_OUTS.fetch(connection, known)})
        OPT_OUTS.insert(connection, [OptOut(one, at) for one in new], endpoint=endpoint)


def opt_in(db: LoomDB, endpoint: str, people: Iterable[str]) -> None:
    """Record these people again."""
    names = [person_hash(endpoint, one) for one in people]
    with db.write() as connection:
        connection.execute(delete(OPT_OUTS.table).where(OPT_OUTS.c.endpoint == endpoint, OPT_OUTS.c.person.in_(names)))


def list_opt_outs(db: LoomDB, endpoint: str) -> list[OptOut]:
    """People who opted out of an endpoint, latest first."""
    return OPT_OUTS.fetch(db, OPT_OUTS.select(endpoint=endpoint).order_by(OPT_OUTS.c.created_at.desc()))


def list_opted_out(db: LoomDB) -> frozenset[str]:
    """The hashes of all who opted out."""
    return frozenset(scalars(db, select(OPT_OUTS.c.person)))


def person_hash(endpoint: str, person: str) -> str:
    """The hash that stands for a person in `OPT_OUTS` and `participants`."""
    return hashlib.sha256(f"{endpoint}\0{person}".encode("utf-8", "surrogatepass")).hexdigest()


def person_of(endpoint: str, user: str) -> str:
    """The hash of a caller's name for its user; empty without a name."""
    return person_hash(endpoint, user) if user else ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The values of a session that need a number, by their hashes, and the numbers that its texts have already."""

    values: Mapping[bytes, str] = field(default_factory=dict)
    """Hash → kind."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """Kind → the highest number in a text that came with placeholders in it."""


def number_values(db: LoomDB, wanted: Mapping[str, Wanted]) -> dict[tuple[str, bytes], tuple[str, int]]:
    """The kind and number of each value, by session and hash: as before, or the next of its kind in the session."""
    with db.write() as connection:
        rows = fetch(connection, select(placeholders).where(placeholders.c.session.in_(wanted)))
        known = {(row["session"], bytes(row["hash"])): (row["kind"], row["number"]) for row in rows}
        last: dict[tuple[str, str], int] = {}
        for (session, _), (kind, number) in known.items():
            last[session, kind] = max(last.get((session, kind), 0), number)
        new = []
        for session, one in wanted.items():
            for hash, kind in one.values.items():
                if (session, hash) in known:
                    continue
                number = max(last.get((session, kind), 0), one.taken.get(kind, 0)) + 1
                last[session, kind] = number
                known[session, hash] = (kind, number)
                new.append({"session": session, "hash": hash, "kind": kind, "number": number})
        if new:
            connection.execute(insert(placeholders), new)
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A session taken into quarantine by a rule, or freed by a person."""

    endpoint: str
    session: str
    held: bool
    rule: str = ""
    who: str = ""
    at: float


def record_quarantine(db: LoomDB, change: Quarantine) -> None:
    """Put it on record; gateways follow within a second."""
    data = {"endpoint": change.endpoint, "held": change.held, "rule": change.rule, "who": change.who}
    EVENTS.append(db, [Event(kind=QUARANTINE, subject=change.session, data=data, created_at=change.at)])


def read_quarantine(db: LoomDB, *, after: int = 0) -> list[tuple[int, Quarantine]]:
    """The next changes past a position, oldest first."""
    return [
        (position, Quarantine(session=event.subject, at=event.created_at, **event.data))
        for position, event in EVENTS.read(db, after=after, kind=QUARANTINE)
    ]


def list_quarantined(db: LoomDB, *, endpoint: str = "") -> list[Quarantine]:
    """The sessions in quarantine now, oldest first."""
    there: dict[tuple[str, str], Quarantine] = {}
    after = 0
    while changes := read_quarantine(db, after=after):
        after = changes[-1][0]
        for _, change in changes:
            there.pop((change.endpoint, change.session), None)
            if change.held and endpoint in ("", change.endpoint):
                there[change.endpoint, change.session] = change
    return list(there.values())


# every recorded call waits for these: built once, they are compiled once
_SESSIONS = SESSIONS.select().where(SESSIONS.c.id.in_(bindparam("ids", expanding=True)))
_STORED = select(CALLS.c.id).where(CALLS.c.id.in_(bindparam("ids", expanding=True)))
_SEEN = (
    update(SESSIONS.table)
    .where(SESSIONS.c.id == bindparam("at"), SESSIONS.c.key == bindparam("by"), SESSIONS.c.endpoint == bindparam("of"))
    .where(SESSIONS.c.state == "open")
    .values(last_at=bindparam("seen"))
)
_MARK_STORED = (
    update(SESSIONS.table)
    .where(SESSIONS.c.id == bindparam("at"), SESSIONS.c.state == "ended")
    .values(state="stored", trajectory=bindparam("made"))
)
