"""LoomDB by URL: one door for reading, one for writing.

Writers take turns (the write lock of SQLite, an advisory lock on PostgreSQL). So cursor order is commit order, a reader
at a cursor never misses a row that commits late, and two writers cannot deadlock. Keep write transactions short.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from loomrl.errors import StoreError, unknown

BACKENDS = ("sqlite", "postgresql")
WRITE_LOCK = 0x4C6F6F6D  # "Loom"
BUSY_TIMEOUT_S = 60.0


class LoomDB:
    """An open database at the current schema version. Safe to share between threads; open one per process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot. Never waits for a writer."""
        with translated(self.engine), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """The one writer. Commits durably (fsynced) at the end of the block, or not at all."""
        writer = self.engine.execution_options(loom_write=True)
        with translated(self.engine), writer.begin() as connection:
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": WRITE_LOCK})
            yield connection

    def close(self) -> None:
        """Give every connection back."""
        self.engine.dispose()


def connect(url: str) -> Engine:
    """The engine behind a URL, with nothing created or migrated yet."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError(
            f"store_url={url!r} is no URL. Examples: sqlite:///loom.db, postgresql://user@host/db."
        ) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(parsed)
    if backend == "postgresql":
        return _postgresql(parsed)
    raise StoreError("store_url scheme " + unknown("backend", backend, BACKENDS))


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise StoreError("store_url: an in-memory SQLite database loses everything. Give a file: sqlite:///loom.db.")
    Path(url.database).expanduser().resolve().parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, below: the driver's comes too late to take the write lock
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "wal_autocheckpoint=4000"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get("loom_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"), pool_pre_ping=True, connect_args={"connect_timeout": 10}
        )
    except ModuleNotFoundError:
        raise StoreError(
            "store_url: PostgreSQL needs a driver. Install it: pip install 'loomrl[postgresql]'."
        ) from None


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Database faults, named once: which database, what it said, what to do."""
    try:
        yield
    except DBAPIError as error:
        said = " ".join(str(error.orig).split())
        where = engine.url.render_as_string(hide_password=True)
        raise StoreError(f"{where}: {said}. {_remedy(said)}") from error


def _remedy(said: str) -> str:
    lowered = said.lower()
    remedies = {
        "disk is full": "Free disk space; nothing of this write was kept.",
        "no space left": "Free disk space; nothing of this write was kept.",
        "locked": f"Another process held the write lock for over {BUSY_TIMEOUT_S:.0f} s: end it or retry.",
        "connection": "Is the database server running and reachable at this address?",
        "unable to open": "Is the folder there and writable?",
        "not a database": "This file is not a LoomDB: choose another path.",
        "malformed": "The file is damaged: restore it from a copy.",
        "readonly": "Is the file writable?",
    }
    return next((remedy for sign, remedy in remedies.items() if sign in lowered), "Nothing of this write was kept.")
