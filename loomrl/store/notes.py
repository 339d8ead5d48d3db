"""Small texts by key, durable: the state that must survive a restart and belongs to no other table."""

from sqlalchemy import Connection, delete, insert, select

from loomrl.store.db import LoomDB, repeated
from loomrl.store.hub_tables import hub_notes


class Notes:
    """The notes in one LoomDB."""

    def __init__(self, db: LoomDB) -> None:
        self._db = db

    def keep(self, key: str, text: str) -> None:
        """Keep the text under the key, in place of an earlier one."""
        _keep(self._db, key, text)

    def keep_first(self, key: str, text: str) -> str:
        """The text under the key: the first that anybody kept."""
        return _keep_first(self._db, key, text)

    def find(self, key: str) -> str | None:
        """The text last kept under the key."""
        return _find(self._db, key)


@repeated
def _keep(db: LoomDB, key: str, text: str) -> None:
    with db.write() as connection:
        put_note(connection, key, text)


@repeated
def _keep_first(db: LoomDB, key: str, text: str) -> str:
    with db.write() as connection:
        there = find_note(connection, key)
        if there is None:
            connection.execute(insert(hub_notes).values(key=key, text=text))
    return text if there is None else there


@repeated
def _find(db: LoomDB, key: str) -> str | None:
    with db.read() as connection:
        return find_note(connection, key)


def put_note(connection: Connection, key: str, text: str) -> None:
    """Keep the text under the key, in the transaction of what it tells about."""
    connection.execute(delete(hub_notes).where(hub_notes.c.key == key))
    connection.execute(insert(hub_notes).values(key=key, text=text))


def find_note(connection: Connection, key: str) -> str | None:
    """The text last kept under the key."""
    text: str | None = connection.scalar(select(hub_notes.c.text).where(hub_notes.c.key == key))
    return text


def list_notes(db: LoomDB, prefix: str) -> dict[str, str]:
    """The notes whose key begins so, by key."""
    query = select(hub_notes).where(hub_notes.c.key.startswith(prefix, autoescape=True)).order_by(hub_notes.c.key)
    with db.read() as connection:
        return {row.key: row.text for row in connection.execute(query)}
