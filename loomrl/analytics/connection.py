"""ClickHouse by its own client: the one in a folder (chdb), which then runs in this process, or one on a server."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from loomrl.analytics.place import AnalyticsPlace, sole
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

    def __init__(self, client: "Client", place: AnalyticsPlace) -> None:
        self._client = client
        self._place = place

    def query(self, sql: str, parameters: Mapping[str, Any]) -> tuple[Names, Rows]:
        """Names of columns, and rows."""
        with _translated(self._place):
            found = self._client.query(sql, parameters=dict(parameters))
        return found.column_names, found.result_rows

    def raw(self, sql: str, form: str) -> bytes:
        """The result in one of ClickHouse's formats."""
        with _translated(self._place):
            return bytes(self._client.raw_query(sql, fmt=form))

    def do(self, sql: str, parameters: Mapping[str, Any]) -> None:
        """Change something."""
        with _translated(self._place):
            self._client.command(sql, parameters=dict(parameters))

    def insert(self, table: Table, columns: Rows) -> None:
        """Add rows, given as columns: all or none, as one block of one part."""
        with _translated(self._place):
            self._client.insert(
                table.name,
                columns,
                column_names=table.names,
                column_type_names=table.types,
                column_oriented=True,
            )


@contextmanager
def connected(
    place: AnalyticsPlace, settings: Mapping[str, Any], *, wait_s: float, user: int | None = None
) -> Iterator[ClickHouse]:
    """The database there, made if nobody has yet, under these settings. A folder is ours alone meanwhile: we wait for
    it, and others are told that the process `user`, by default this one, has it.
    """
    if place.folder is None:
        with _served(place, settings) as connection:
            yield connection
        return
    said = f"{place.folder} {IN_USE}"
    with (
        sole(place.folder / "lock", wait_s=wait_s, said=said, user=user),
        _embedded(place, settings) as connection,
    ):
        yield connection


@contextmanager
def _embedded(place: AnalyticsPlace, settings: Mapping[str, Any]) -> Iterator[ClickHouse]:
    assert place.folder is not None
    where: dict[str, Any] = {"interface": "chdb", "path": str(place.folder / "data")}
    with _client(place, **where) as client:
        client.command(f"CREATE DATABASE IF NOT EXISTS {place.database}")
        with _client(place, **where, database=place.database, settings={**_SETTINGS, **settings}) as ours:
            yield ClickHouse(ours, place)


@contextmanager
def _served(place: AnalyticsPlace, settings: Mapping[str, Any]) -> Iterator[ClickHouse]:
    with _client(place, dsn=place.url, database="default") as client, _translated(place):
        client.command(f"CREATE DATABASE IF NOT EXISTS `{place.database}`")
    with _client(place, dsn=place.url, database=place.database, settings={**_SETTINGS, **settings}) as ours:
        yield ClickHouse(ours, place)


@contextmanager
def _client(place: AnalyticsPlace, **where: Any) -> Iterator["Client"]:
    try:
        import clickhouse_connect
    except ModuleNotFoundError:
        raise AnalyticsError(f"analytics: ClickHouse's client is missing. Install it: {INSTALL}.") from None
    logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)  # whatever it logs, it raises too
    try:
        with _translated(place):
            client = clickhouse_connect.get_client(**where)
    except ImportError:
        raise AnalyticsError(f"analytics: chdb, ClickHouse for a folder, is missing. Install it: {INSTALL}.") from None
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _translated(place: AnalyticsPlace) -> Iterator[None]:
    """What ClickHouse refuses, as an AnalyticsError."""
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
