"""Small texts by key, durable: the state that must survive a restart and belongs to no other table."""

from sqlalchemy import Column, Connection, Table, Text, delete, insert, select

from loomrl.store.db import LoomDB
from loomrl.store.log import Source, fetch, metadata, scalar

hub_notes = Table(
    "hub_notes",
    metadata,
    Column("key", Text, primary_key=True),
    Column("text", Text, nullable=False),
)


class Notes:
    """The notes in one LoomDB."""

    def __init__(self, db: LoomDB) -> None:
        self._db = db

    def keep(self, key: str, text: str) -> None:
        """Keep the text under the key, in place of an earlier one."""

        def write() -> None:
            with self._db.write() as connection:
                put_note(connection, key, text)

        self._db.again(write)

    def keep_first(self, key: str, text: str) -> str:
        """Keep the text unless there is one under the key; the one that is there now."""

        def write() -> str:
            with self._db.write() as connection:
                there = find_note(connection, key)
                if there is None:
                    put_note(connection, key, text)
            return text if there is None else there

        return self._db.again(write)

    def drop(self, key: str) -> None:
        """Keep nothing under the key."""

        def write() -> None:
            with self._db.write() as connection:
                connection.execute(delete(hub_notes).where(hub_notes.c.key == key))

        self._db.again(write)

    def find(self, key: str) -> str | None:
        """The text last kept under the key."""
        return find_note(self._db, key)


def put_note(connection: Connection, key: str, text: str) -> None:
    """Keep the text under the key, in the transaction of what it tells about."""
    connection.execute(delete(hub_notes).where(hub_notes.c.key == key))
    connection.execute(insert(hub_notes).values(key=key, text=text))


def find_note(source: Source, key: str) -> str | None:
    """The text last kept under the key."""
    text: str | None = scalar(source, select(hub_notes.c.text).where(hub_notes.c.key == key))
    return text


def list_notes(db: LoomDB, prefix: str) -> dict[str, str]:
    """The notes whose key begins so, by key."""
    query = select(hub_notes).where(hub_notes.c.key.startswith(prefix, autoescape=True)).order_by(hub_notes.c.key)
    return {row["key"]: row["text"] for row in fetch(db, query)}
