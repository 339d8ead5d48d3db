"""LoomDB by URL: one way to read, one to write.

Writers take turns (the write lock of SQLite, an advisory lock on PostgreSQL). So cursor order is commit order, a reader
at a cursor never misses a row that commits late, and two writers cannot deadlock. Keep write transactions short.
"""

import glob
import itertools
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.pool import QueuePool
from sqlalchemy.schema import CreateSchema

from loomrl.errors import StoreAway, StoreError, unknown
from loomrl.files import HeldFile, make_private
from loomrl.process import Closing

T = TypeVar("T")
P = ParamSpec("P")
BACKENDS = ("sqlite", "postgresql")
WRITE_LOCK = 0x4C6F6F6D  # "Loom"
SCHEMA = "schema"
"""Query key of a PostgreSQL URL: the schema of this LoomDB."""
AWAKE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
"""Keepalives of libpq: a dead server is detected within 15 s. The URL may override them."""
BUSY_TIMEOUT_S = 60.0
PAGE_BYTES = 8192
"""Page size of a new SQLite file. Payloads span many pages; twice SQLite's default halves their time in the kernel."""
RETRY_S = 0.25
MOST_TIMES = 3
"""Attempts for work interrupted by a lost connection."""
APART_S = 5.0
"""Leases, schedules and windows are written with the clocks of several hosts, and compared."""
STUCK_WRITER_S = 8.0
"""PostgreSQL ends a writer that is silent this long in its transaction: a machine that is frozen, off or cut off.

All others wait for it, so it is less than a caller's usual deadline. What a slow machine loses by it is repeated.
"""
GONE_WRITER = {
    "tcp_keepalives_idle": "2s",
    "tcp_keepalives_interval": "1s",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "5s",
}
"""PostgreSQL forgets a machine that is off or cut off after five seconds, so that those of its writers that wait do not
get the lock one after the other, to be silent for `STUCK_WRITER_S` each.
"""


class LoomDB(Closing):
    """An open database at the current schema version. Safe to share between threads; open one per process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._turn = threading.Lock()
        self._looks = itertools.count()
        self._watch: Any = None
        # On PostgreSQL the writer must see what the writer before it committed, so it stays at READ COMMITTED.
        # A write through a reader would go past the write lock, so readers are read-only there.
        snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reader = engine if self.is_sqlite else engine.execution_options(**snapshot)
        self._writer = engine.execution_options(loom_write=True)
        self._early = self._writer.execution_options(loom_early=True)

    @property
    def location(self) -> str:
        """Its URL, without the password."""
        return self.engine.url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent snapshot. Never waits for a writer."""
        with self._translate_errors(), self._reader.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, *, early: bool = False) -> Iterator[Connection]:
        """The only writer. Commits durably (fsynced) at the end of the context, or not at all. Not nestable.

        `early`: others see what was written to SQLite, and may write, while this waits for the disk. Only for rows by
        which nothing is done outside of LoomDB before a later commit, since that puts them on the disk, too.
        """
        writer = self._early if early else self._writer
        with self._our_turn(), self._translate_errors(), writer.begin() as connection:
            if not self.is_sqlite:
                connection.execute(_TAKE_WRITE_LOCK)
            yield connection

    def version(self) -> int:
        """A number that stays the same while nothing is committed, so that who polls need not read: microseconds.

        PostgreSQL has none: there it is always another one.
        """
        if not self.is_sqlite:
            return next(self._looks)
        try:
            # of a connection that writes nothing: its own commits would not count
            self._watch = self._watch or self.engine.raw_connection()
            return int(self._watch.driver_connection.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error as error:
            raise StoreError(f"{self.location}: {error}. {_remedy(str(error))}") from error

    def again(self, work: Callable[[], T]) -> T:
        """The result of `work`, repeated if the server goes away under it: it must not matter if it was done before."""
        for _ in range(MOST_TIMES - 1):
            with suppress(StoreAway):
                return work()
        return work()

    @contextmanager
    def _our_turn(self) -> Iterator[None]:
        """Threads of one process queue here, where waiting needs neither a connection nor polling."""
        if not self._turn.acquire(timeout=BUSY_TIMEOUT_S):
            raise StoreError(
                f"{self.location}: a thread of this process held the write lock for over {BUSY_TIMEOUT_S:.0f} s. "
                "Keep writes short, and never write inside a write."
            )
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate database errors: the database, its message, the remedy."""
        try:
            yield
        except (DBAPIError, PoolTimeout, sqlite3.OperationalError) as error:
            said = " ".join(str(getattr(error, "orig", error)).split())
            kind = StoreAway if isinstance(error, DBAPIError) and _is_away(error) else StoreError
            raise kind(f"{self.location}: {said}. {_remedy(said)}") from error
        except UnicodeEncodeError as error:
            raise StoreError(f"{self.location}: text that is no Unicode cannot be stored: {error}.") from error

    def close(self) -> None:
        """Close every connection. An SQLite file is complete then, unless others still use it."""
        if self._watch is not None:
            self._watch.close()
        pool = self.engine.pool
        if self.is_sqlite and isinstance(pool, QueuePool) and pool.checkedin():
            with closing(self.engine.raw_connection()) as connection, suppress(sqlite3.Error):  # the log has it still
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")
        self.engine.dispose()


NORMAL = 1
"""SQLite's level of `synchronous` at which a commit does not wait for the disk, and only the last ones can be lost."""
_PRAGMAS = (
    "synchronous=FULL",  # a commit is on the disk when it returns
    "foreign_keys=ON",
    "wal_autocheckpoint=32000",  # pages, 256 MB: the file is written in long strokes
    "cache_size=-65536",  # KiB: a large commit stays in memory until it is one
)
_NAME = re.compile(r"[\w.-]{1,50}", re.ASCII)
_SETTINGS = {
    "lock_timeout": f"{BUSY_TIMEOUT_S:.0f}s",
    "idle_in_transaction_session_timeout": f"{STUCK_WRITER_S:.0f}s",
    **GONE_WRITER,
}
_CHOSEN = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in _SETTINGS.items())
_TAKE_WRITE_LOCK = text(f"SELECT {_CHOSEN}, pg_advisory_xact_lock({WRITE_LOCK}, hashtext(current_schema()))")


def repeated(work: Callable[Concatenate[LoomDB, P], T]) -> Callable[Concatenate[LoomDB, P], T]:
    """`LoomDB.again`, as a decorator."""

    @wraps(work)
    def patient(db: LoomDB, /, *args: P.args, **named: P.kwargs) -> T:
        return db.again(lambda: work(db, *args, **named))

    return patient


def _is_away(error: DBAPIError) -> bool:
    """True if the connection was lost: the server ended, or ended it, or is heard no more."""
    return error.connection_invalidated or str(getattr(error.orig, "sqlstate", None)).startswith(("57P0", "25P03"))


def now(db: LoomDB, connection: Connection) -> float:
    """Seconds since 1970, by the database."""
    if db.is_sqlite:  # one machine
        return time.time()
    return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())


def refuse_other_time(db: LoomDB) -> None:
    """A StoreError if this host's clock and the database's are apart by more than their question's time explains."""
    if db.is_sqlite:
        return
    with db.read() as connection:
        before = time.time()
        theirs = now(db, connection)
        after = time.time()
    apart = max(theirs - after, before - theirs)
    if apart > APART_S:
        side = "behind" if theirs > after else "ahead of"
        raise StoreError(
            f"{db.location}: the clock of this host is {apart:,.0f} s {side} the database's, and leases would be taken "
            f"for over, or for alive, that are not. At most {APART_S:g} s: set it by NTP, here or there (chronyc "
            "makestep)."
        )


def beside(url: str, name: str) -> str:
    """The URL of another LoomDB beside this one: `loom-NAME.db`, or the schema NAME of the same PostgreSQL database."""
    if not _NAME.fullmatch(name):
        raise StoreError(f"name={name!r}: at most 50 letters, digits, '.', '_' and '-' are needed.")
    parsed = _parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        file = Path(parsed.database or "")
        return str(parsed.set(database=str(file.with_name(f"{file.stem}-{name}{file.suffix}"))))
    before = parsed.query.get(SCHEMA)
    schema = parsed.update_query_dict({SCHEMA: f"{before}-{name}" if before else name})
    return schema.render_as_string(hide_password=False)


def is_there(url: str) -> bool:
    """True if a LoomDB was opened at this URL before. Creates nothing."""
    parsed = _parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return Path(parsed.database or "").expanduser().is_file()
    schema = str(parsed.query.get(SCHEMA, "public"))
    with LoomDB(_postgresql(parsed.difference_update_query([SCHEMA]))) as db, db.read() as connection:
        return schema in inspect(connection).get_schema_names()


def neighbours(url: str) -> list[str]:
    """The names of the LoomDBs beside this one: those that `beside` takes."""
    parsed = _parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        file = Path(parsed.database or "").expanduser().absolute()
        return sorted(
            other.name.removeprefix(f"{file.stem}-").removesuffix(file.suffix)
            for other in file.parent.glob(f"{glob.escape(file.stem)}-*{glob.escape(file.suffix)}")
        )
    before = parsed.query.get(SCHEMA)
    prefix = f"{before}-" if before else ""
    with LoomDB(_postgresql(parsed.difference_update_query([SCHEMA]))) as db, db.read() as connection:
        schemas = inspect(connection).get_schema_names()
    return sorted(name.removeprefix(prefix) for name in schemas if name.startswith(prefix) and name != prefix)


def copy_files(url: str, folder: Path, *, most_bytes: float) -> str:
    """The URL of a copy of a LoomDB and of those beside it, in a folder; a StoreError for a server, or too much."""
    parsed = _parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        raise StoreError(f"store_url={url}: only files of SQLite can be copied.")
    urls = [url, *(beside(url, name) for name in neighbours(url))]
    files = [Path(_parse_url(each).database or "").expanduser().absolute() for each in urls]
    size = sum(file.stat().st_size for file in files)
    if size > most_bytes:
        raise StoreError(f"store_url={url}: {size / 1e9:.1f} GB are more than the {most_bytes / 1e9:g} GB to copy.")
    for file in files:
        with (
            closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(folder / file.name)) as new,
        ):
            old.backup(new)
    return f"sqlite:///{folder / files[0].name}"


def make_schema(url: str) -> None:
    """Create the PostgreSQL schema in the URL, if the URL names one and it does not exist."""
    parsed = _parse_url(url)
    schema = parsed.query.get(SCHEMA)
    if schema is None or parsed.get_backend_name() == "sqlite":
        return
    with LoomDB(_postgresql(parsed.difference_update_query([SCHEMA]))) as db, db.write() as connection:
        connection.execute(CreateSchema(str(schema), if_not_exists=True))


def connect(url: str, *, reconnect_s: float = 0.0) -> Engine:
    """The engine behind a URL; creates and migrates nothing."""
    parsed = _parse_url(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(parsed)
    if backend == "postgresql":
        engine = _postgresql(parsed)
        if reconnect_s:
            _await_server(engine, reconnect_s)
        return engine
    raise StoreError("store_url scheme " + unknown("backend", backend, BACKENDS))


def _parse_url(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):  # of a port, int() says
        raise StoreError(f"store_url={url!r} is no URL, as sqlite:///loom.db or postgresql://user@host/db.") from None


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise StoreError("store_url: an in-memory SQLite database loses everything. Give a file: sqlite:///loom.db.")
    if url.query or "\0" in url.database:
        raise StoreError(f"store_url={str(url)!r}: nothing may follow the file's path, and no NUL be in it.")
    file = Path(url.database).expanduser().absolute()
    try:
        if file.is_dir():
            raise StoreError(f"store_url={str(url)!r} is a folder. Give a file in it: {url}/loom.db.")
        make_private(file.parent)
    except OSError as error:
        raise StoreError(f"store_url={str(url)!r}: its folder cannot be used: {error}. Choose another path.") from None
    held = HeldFile(file)

    def open_file() -> sqlite3.Connection:
        with suppress(OSError):  # SQLite says why
            held.create()  # its log and shared memory get the same mode
        settings: dict[str, Any] = {"timeout": BUSY_TIMEOUT_S, "check_same_thread": False, "factory": _Checked}
        made: sqlite3.Connection = sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, **settings)
        return made

    engine = create_engine(url.set(drivername="sqlite", database=str(file)), creator=open_file)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, below: the driver's comes too late to take the write lock
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        _enter_wal(connection, file)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.watch(held)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("loom_write", False):
            connection.exec_driver_sql("BEGIN")
            return
        driver: Any = connection.connection.driver_connection
        driver.begin_write(early=options.get("loom_early", False))

    return engine


class _Checked(sqlite3.Connection):
    """A commit returns only if the path still names the file that it went to, with its log beside it."""

    def watch(self, file: HeldFile) -> None:
        self._file = file
        self._log = Path(f"{file.path}-wal")
        self._changes = self.total_changes
        self._usual = self._level = self.execute("PRAGMA synchronous").fetchone()[0]
        self._check()

    def begin_write(self, *, early: bool) -> None:
        """Begin with the write lock; `early` as `LoomDB.write` has it."""
        level = min(NORMAL, self._usual) if early else self._usual
        if level != self._level:
            self.execute(f"PRAGMA synchronous={level}")
            self._level = level
        self.execute("PRAGMA busy_timeout=0")  # SQLite itself would sleep up to 100 ms while others take the lock
        try:
            _retry_locked(lambda: self.execute("BEGIN IMMEDIATE"))
        finally:
            self.execute(f"PRAGMA busy_timeout={1000 * BUSY_TIMEOUT_S:.0f}")

    def commit(self) -> None:
        super().commit()
        if self._check() and self._level == NORMAL:
            self._flush()

    def _flush(self) -> None:
        try:
            log = os.open(self._log, os.O_RDONLY)
            try:
                os.fsync(log)
            finally:
                os.close(log)
        except OSError as error:
            raise StoreError(f"{self._log}: {error}. Is the disk failing? The last write may be lost.") from error

    def _check(self) -> bool:
        """True if the transaction wrote something."""
        wrote = self.total_changes != self._changes
        self._changes = self.total_changes
        if not self._file.is_there() or (wrote and not self._log.exists()):
            raise StoreError(
                f"{self._file.path}: the file or its log was deleted, moved or replaced while it was open. What was "
                "written since is lost. Restart all processes that use it."
            )
        return wrote


def _enter_wal(connection: sqlite3.Connection, file: Path) -> None:
    """Switch a new file to WAL: the only step at which SQLite fails at once if another process is writing."""
    (mode,) = _retry_locked(lambda: connection.execute("PRAGMA journal_mode=WAL")).fetchone()
    if mode != "wal":
        raise StoreError(f"{file}: this file system cannot hold a database in WAL mode. Use a local disk.")


def _retry_locked(work: Callable[[], T]) -> T:
    """The result of `work` once no other process has the lock, which is asked for again as soon as it may be free."""
    began = time.monotonic()
    while True:
        try:
            return work()
        except sqlite3.OperationalError as error:
            waited = time.monotonic() - began
            if "locked" not in str(error) or waited > BUSY_TIMEOUT_S:
                raise
        time.sleep(min(max(waited / 10, 0.0003), 0.01))


def _postgresql(url: URL) -> Engine:
    schema = url.query.get(SCHEMA)
    settings = {name: value for name, value in AWAKE.items() if name not in url.query}
    if schema is not None:
        settings["options"] = f'-csearch_path="{schema}"'
    plain = url.difference_update_query([SCHEMA]).set(drivername="postgresql+psycopg")
    try:
        return create_engine(plain, pool_pre_ping=True, connect_args=settings)
    except ModuleNotFoundError:
        raise StoreError("store_url: PostgreSQL needs a driver: pip install 'loomrl[postgresql]'.") from None


def _await_server(engine: Engine, seconds: float) -> None:
    """Once it has been there, a server that refuses connections is asked again for so long."""
    was_there = False

    @event.listens_for(engine, "do_connect")
    def _connect(dialect: Any, _record: Any, words: Any, settings: Any) -> Any:
        nonlocal was_there
        until = time.monotonic() + (seconds if was_there else 0.0)
        while True:
            try:
                made = dialect.connect(*words, **settings)
            except dialect.loaded_dbapi.OperationalError:
                if time.monotonic() >= until:
                    raise
                time.sleep(RETRY_S)
            else:
                was_there = True
                return made


_REMEDIES = {
    "disk is full": "Free disk space; nothing of this write was kept.",
    "no space left": "Free disk space; nothing of this write was kept.",
    "disk i/o error": "Is the disk full or failing? Nothing of this write was kept.",
    "locked": f"Another process held the write lock for over {BUSY_TIMEOUT_S:.0f} s: end it or retry.",
    "lock timeout": f"Another process held the write lock for over {BUSY_TIMEOUT_S:.0f} s: end it or retry.",
    "queuepool": "Too many threads read at once: read less at a time.",
    "authentication failed": "Check user name and password in store_url.",
    "no password supplied": "Give the password in store_url: postgresql://USER:PASSWORD@HOST/NAME.",
    "does not exist": "Create it on the server, such as with createdb, or choose another store_url.",
    "connection": "Is the database server running and reachable at this address?",
    "unable to open": "Is the folder there and writable? Was the file deleted?",
    "not a database": "This file is not a LoomDB: choose another path.",
    "malformed": "The file is damaged: restore it from a copy.",
    "readonly": "Is the file writable?",
    "permission denied": "The user in store_url needs more rights in this database.",
    "already exists": "Something else lives in this database: choose another store_url.",
}
"""Part of the database's message → the remedy; the first match counts."""


def _remedy(said: str) -> str:
    lowered = said.lower()
    return next((remedy for sign, remedy in _REMEDIES.items() if sign in lowered), "Nothing of this write was kept.")
