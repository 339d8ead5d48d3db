"""Connections to ClickHouse: on a server, in this process (chdb on a folder), or in an engine beside a long-lived one.

An engine is a process with chdb that is replaced from time to time: whenever chdb closes a folder, it leaves some five
threads and fifteen descriptors behind until its process ends.

As a program, it is that process: a pickled call in, a pickled answer out, until its standard input is closed.
"""

import gc
import logging
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from loomrl.analytics.place import StoreLocation, sole
from loomrl.analytics.schema import TABLES, VIEWS, Table
from loomrl.errors import AnalyticsError, there_are

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

INSTALL = "pip install 'loomrl[analytics]'"
_SETTINGS = {"mutations_sync": 2, "max_query_size": 1 << 26, "max_insert_threads": 1}
"""Deletions are done when they return; lists of ids may be long; what is inserted together appears together."""
_REST = re.compile(r"^Code: \d+\.\s*|DB::\w*Exception:\s*|\s*\(version [^)]*\)|\s*\([A-Z_]+\)\s*$")
_CUTS = (" Expected one of: ", " In scope ", " Maybe you meant system.")
_CAUSE = re.compile(r"\[Errno -?\d+\] ([^)'\"]+)")
UNKNOWN_TABLE = 60
"""ClickHouse's code."""
IN_USE = (
    "is in use by process {}: a folder is for one process at a time. Wait until it is done, or keep the columns on a "
    "ClickHouse server, which is for many: --analytics http://HOST:8123."
)
UNREACHABLE = "Is the server there, and does it let this user in?"
Names = Sequence[str]
Rows = Sequence[Sequence[Any]]


class Connection(Protocol):
    """An open database. What ClickHouse refuses is an AnalyticsError."""

    def query(self, sql: str, parameters: Mapping[str, Any]) -> tuple[Names, Rows]:
        """Names of columns, and rows."""

    def raw(self, sql: str, form: str) -> bytes:
        """The result in one of ClickHouse's formats."""

    def do(self, sql: str, parameters: Mapping[str, Any]) -> None:
        """Change something."""

    def insert(self, table: Table, columns: Rows) -> None:
        """Add rows, given as columns: all or none, as one block of one part."""


class ClickHouse:
    """A connection of this process."""

    def __init__(self, client: "Client", place: StoreLocation) -> None:
        self._client = client
        self._place = place

    def query(self, sql: str, parameters: Mapping[str, Any]) -> tuple[Names, Rows]:
        """Names of columns, and rows."""
        with _clickhouse_errors(self._place):
            found = self._client.query(sql, parameters=dict(parameters))
        return found.column_names, found.result_rows

    def raw(self, sql: str, form: str) -> bytes:
        """The result in one of ClickHouse's formats."""
        with _clickhouse_errors(self._place):
            return bytes(self._client.raw_query(sql, fmt=form))

    def do(self, sql: str, parameters: Mapping[str, Any]) -> None:
        """Change something."""
        with _clickhouse_errors(self._place):
            self._client.command(sql, parameters=dict(parameters))

    def insert(self, table: Table, columns: Rows) -> None:
        """Add rows, given as columns: all or none, as one block of one part."""
        with _clickhouse_errors(self._place):
            self._client.insert(
                table.name,
                columns,
                column_names=table.names,
                column_type_names=table.types,
                column_oriented=True,
            )


@contextmanager
def open_connection(
    place: StoreLocation, settings: Mapping[str, Any], *, wait_s: float, user: int | None = None
) -> Iterator[ClickHouse]:
    """The database there under these settings, created if missing. A folder is ours alone meanwhile: we wait for
    it, and others are told that the process `user`, by default this one, has it.
    """
    if place.folder is None:
        with _open_server(place, settings) as connection:
            yield connection
        return
    said = f"{place.folder} {IN_USE}"
    with (
        sole(place.folder / "lock", wait_s=wait_s, said=said, user=user),
        _open_embedded(place, settings) as connection,
    ):
        yield connection


@contextmanager
def _open_embedded(place: StoreLocation, settings: Mapping[str, Any]) -> Iterator[ClickHouse]:
    assert place.folder is not None
    where: dict[str, Any] = {"interface": "chdb", "path": str(place.folder / "data")}
    with _client(place, **where) as client:
        client.command(f"CREATE DATABASE IF NOT EXISTS {place.database}")
        with _client(place, **where, database=place.database, settings={**_SETTINGS, **settings}) as ours:
            yield ClickHouse(ours, place)


@contextmanager
def _open_server(place: StoreLocation, settings: Mapping[str, Any]) -> Iterator[ClickHouse]:
    with _client(place, dsn=place.url, database="default") as client, _clickhouse_errors(place):
        client.command(f"CREATE DATABASE IF NOT EXISTS `{place.database}`")
    with _client(place, dsn=place.url, database=place.database, settings={**_SETTINGS, **settings}) as ours:
        yield ClickHouse(ours, place)


@contextmanager
def _client(place: StoreLocation, **where: Any) -> Iterator["Client"]:
    try:
        import clickhouse_connect
    except ModuleNotFoundError:
        raise AnalyticsError(f"analytics: ClickHouse's client is missing. Install it: {INSTALL}.") from None
    logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)  # all that it logs it raises too
    try:
        with _clickhouse_errors(place):
            client = clickhouse_connect.get_client(**where)
    except ImportError:
        raise AnalyticsError(f"analytics: chdb, ClickHouse for a folder, is missing. Install it: {INSTALL}.") from None
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _clickhouse_errors(place: StoreLocation) -> Iterator[None]:
    """Turn ClickHouse's refusals into AnalyticsErrors."""
    from clickhouse_connect.driver.exceptions import ClickHouseError

    try:
        yield
    except ClickHouseError as error:
        hint = "" if getattr(error, "code", None) is not None or place.folder is not None else f" {UNREACHABLE}"
        if getattr(error, "code", None) == UNKNOWN_TABLE:
            hint = f" {there_are([*(table.name for table in TABLES), *VIEWS])}"
        raise AnalyticsError(f"{place.name}: {_said(str(error))}.{hint}") from error


def _said(message: str) -> str:
    """The point of ClickHouse's message."""
    said = " ".join(message.split())
    if cause := _CAUSE.search(said):
        return cause.group(1)
    for cut in _CUTS:
        said = said.partition(cut)[0]
    return _REST.sub("", _REST.sub("", said))[:500].rstrip(". ")


OPENINGS = 20
"""Folders that a process opens: it ends up with some hundred threads and three hundred descriptors."""


class ChdbEngine:
    """Opens folders, one at a time. Its process starts with the first one, and ends with this process however that
    ends, also in the middle of a question.
    """

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._openings = 0
        self._is_open = False

    @contextmanager
    def open_connection(
        self, place: StoreLocation, settings: Mapping[str, Any], *, wait_s: float
    ) -> Iterator[Connection]:
        """Like the function of this name, in the engine's process."""
        assert not self._is_open, "an engine has one folder open at a time"
        process = self._next()
        process.open(place, settings, wait_s)
        self._is_open = True
        try:
            yield process
        finally:
            self._is_open = False
            process.close()

    @property
    def pid(self) -> int | None:
        """Id of its process, while it has one."""
        return None if self._process is None or self._process.has_ended else self._process.pid

    def close(self) -> None:
        """End its process; another one starts with the next opening."""
        if self._process is not None:
            self._process.end()
        self._process = None

    def _next(self) -> "_Process":
        """The process, or its successor if it has opened enough or was killed meanwhile."""
        if self._process is None or self._process.has_ended or self._openings >= OPENINGS:
            self.close()
            self._process = _Process()
            self._openings = 0
        self._openings += 1
        return self._process


class _Process:
    """One process and, between `open` and `close`, the connection that it has."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", "loomrl.analytics.engine", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )
        self._turn = threading.Lock()
        self._place = ""
        self.end = weakref.finalize(self, _end, self._child)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def has_ended(self) -> bool:
        return self._child.poll() is not None

    def open(self, place: StoreLocation, settings: Mapping[str, Any], wait_s: float) -> None:
        self._place = place.name
        self._call("open", place, settings, wait_s)

    def close(self) -> None:
        if not self.has_ended:
            self._call("close")

    def query(self, sql: str, parameters: Mapping[str, Any]) -> tuple[Names, Rows]:
        found: tuple[Names, Rows] = self._call("query", sql, parameters)
        return found

    def raw(self, sql: str, form: str) -> bytes:
        return bytes(self._call("raw", sql, form))

    def do(self, sql: str, parameters: Mapping[str, Any]) -> None:
        self._call("do", sql, parameters)

    def insert(self, table: Table, columns: Rows) -> None:
        self._call("insert", table, columns)

    def _call(self, name: str, *arguments: Any) -> Any:
        with self._turn:
            try:
                answer, error = self._exchange((name, arguments))
            except (EOFError, BrokenPipeError):
                self.end()
                status = self._child.returncode
                said = f"{self._place}: the process of ClickHouse ended with status {status} before it answered."
                raise AnalyticsError(said) from None
            except BaseException:  # interrupted: what it answers later is no answer to the next call
                self.end()
                raise
        if error is not None:
            raise error
        return answer

    def _exchange(self, call: tuple[str, tuple[Any, ...]]) -> tuple[Any, Exception | None]:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickle.dump(call, self._child.stdin)
        self._child.stdin.flush()
        answer: tuple[Any, Exception | None] = pickle.load(self._child.stdout)
        return answer


def _end(child: "subprocess.Popen[bytes]") -> None:
    child.kill()
    child.communicate()


def _serve(user: int) -> None:
    """Answer calls. The cyclic collector would look through a page's rows again and again: it waits for the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the parent process decides
    calls = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    threading.Thread(target=_end_with_input, daemon=True).start()
    gc.disable()
    stack = ExitStack()
    connection = None
    while True:
        name, arguments = pickle.load(calls)
        answer = None
        error = None
        try:
            if name == "open":
                place, settings, wait_s = arguments
                connection = stack.enter_context(open_connection(place, settings, wait_s=wait_s, user=user))
            elif name == "close":
                stack.close()
                gc.collect()
            else:
                assert isinstance(connection, ClickHouse)
                answer = getattr(connection, name)(*arguments)
        except Exception as failure:  # noqa: BLE001 - the boundary: it is raised there
            error = failure
        pickle.dump((answer, error), answers)
        answers.flush()


def _end_with_input() -> None:
    """End at once when the caller is gone: finished inserts are stored."""
    poll = select.poll()
    poll.register(0, 0)  # a closed pipe is told of unasked
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
