"""Who spoke in which session, by hash: what has to be known to delete everything of a person."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select

from loomrl.store.db import LoomDB
from loomrl.store.tables import participants


def take_part(connection: Connection, people: Mapping[tuple[str, str], str]) -> None:
    """Say who spoke, once each: (session, person) → endpoint."""
    if not people:
        return
    there = connection.execute(_THERE, {"sessions": list({session for session, _ in people})})
    new = people.keys() - {tuple(row) for row in there}
    if rows := [{"session": each[0], "person": each[1], "endpoint": people[each]} for each in sorted(new)]:
        connection.execute(insert(participants), rows)


def people_in(db: LoomDB, sessions: Sequence[str]) -> dict[str, set[str]]:
    """Session → everybody who spoke in it; those of nobody known are left out."""
    found: dict[str, set[str]] = {}
    with db.read() as connection:
        for session, person in connection.execute(_THERE, {"sessions": list(sessions)}):
            found.setdefault(session, set()).add(person)
    return found


def sessions_of(connection: Connection, endpoint: str, person: str) -> list[str]:
    """The sessions of an endpoint in which this person spoke."""
    mine = (participants.c.endpoint == endpoint) & (participants.c.person == person)
    return sorted(connection.scalars(select(participants.c.session).where(mine)))


def leave(connection: Connection, sessions: Sequence[str]) -> None:
    """Forget who spoke in these sessions."""
    connection.execute(delete(participants).where(participants.c.session.in_(sessions)))


_THERE = select(participants.c.session, participants.c.person).where(
    participants.c.session.in_(bindparam("sessions", expanding=True))
)
