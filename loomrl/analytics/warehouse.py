"""The columnar store, opened: one client for the ClickHouse in a folder (chdb) and for a server."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from loomrl.analytics.place import Place, sole
from loomrl.analytics.schema import ABOUT, TABLES, VERSION, VIEWS, Table
from loomrl.errors import AnalyticsError, there_are

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

INSTALL = "pip install 'loomrl[analytics]'"
WAIT_S = 20.0
"""A question waits this long for whoever uses the folder."""
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


class Warehouse:
    """An open store: for whoever feeds it by `open_warehouse`, for whoever asks by `open_reader`."""

    def __init__(self, client: "Client", place: Place) -> None:
        self._client, self.place = client, place

    def rows(self, sql: str, **parameters: Any) -> Sequence[Sequence[Any]]:
        """The rows of a question of ours."""
        with translated(self.place):
            return self._client.query(sql, parameters=parameters).result_rows

    def raw(self, sql: str, form: str) -> bytes:
        """The result in one of ClickHouse's formats."""
        with translated(self.place):
            return bytes(self._client.raw_query(sql, fmt=form))

    def result(self, sql: str) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
        """Names of columns, and rows."""
        with translated(self.place):
            found = self._client.query(sql)
        return found.column_names, found.result_rows

    def do(self, sql: str, **parameters: Any) -> None:
        """Change something."""
        with translated(self.place):
            self._client.command(sql, parameters=parameters)

    def insert(self, table: Table, columns: Sequence[Sequence[Any]]) -> None:
        """Add rows, given as columns: all or none, as one block of one part."""
        if columns and columns[0]:
            with translated(self.place):
                self._client.insert(
                    table.name,
                    columns,
                    column_names=table.names,
                    column_type_names=table.types,
                    column_oriented=True,
                )

    def about(self) -> dict[str, str]:
        """What the store knows of itself; nothing before it was made."""
        if not self.rows("SELECT 1 FROM system.tables WHERE database = {d:String} AND name = {t:String}",
                         d=self.place.database, t=ABOUT):  # fmt: skip
            return {}
        newest = f"SELECT name, argMax(value, at) AS value FROM {ABOUT} GROUP BY name"
        return dict(self.rows(f"SELECT groupArray((name, value)) FROM ({newest})")[0][0])

    def remember(self, told: Mapping[str, str]) -> None:
        """Keep what the store knows of itself."""
        values = ", ".join(f"({{n{i}:String}}, {{v{i}:String}}, now64(6))" for i in range(len(told)))
        named = {f"n{i}": name for i, name in enumerate(told)} | {f"v{i}": text for i, text in enumerate(told.values())}
        form = "name String, value String, at DateTime64(6)"
        self.do(f"INSERT INTO {ABOUT} SELECT * FROM VALUES('{form}', {values})", **named)

    def close(self) -> None:
        """Give the folder or the connection back."""
        self._client.close()


@contextmanager
def open_warehouse(place: Place, *, origin: str, wait_s: float = WAIT_S, anew: bool = False) -> Iterator[Warehouse]:
    """The store of the LoomDB `origin`, to be fed; made if nobody has yet, or `anew`, in place of what is there."""
    with _opened(place, wait_s, {}) as warehouse:
        if anew:
            make(warehouse, origin)
        else:
            _check(warehouse, origin)
        yield warehouse


@contextmanager
def open_reader(place: Place, settings: Mapping[str, Any], *, wait_s: float = WAIT_S) -> Iterator[Warehouse]:
    """The store, to be asked under these settings."""
    if place.folder is not None and not (place.folder / "data").exists():
        raise AnalyticsError(_never_fed(place))
    with _opened(place, wait_s, settings) as warehouse:
        about = warehouse.about()
        if not about:
            raise AnalyticsError(_never_fed(place))
        _check_schema(place, about)
        yield warehouse


def make(warehouse: Warehouse, origin: str) -> None:
    """Make the tables and views, in place of any that are there. Cut off, it is made again."""
    for name in (ABOUT, *VIEWS, *(table.name for table in TABLES)):
        warehouse.do(f"DROP TABLE IF EXISTS {name} SYNC")
    for table in TABLES:
        warehouse.do(table.ddl)
    for name, select in VIEWS.items():
        warehouse.do(f"CREATE VIEW {name} AS {select}")
    warehouse.do(f"CREATE TABLE {ABOUT} (name String, value String, at DateTime64(6)) ENGINE = MergeTree ORDER BY name")
    warehouse.remember({"schema": VERSION, "origin": origin})


@contextmanager
def translated(place: Place) -> Iterator[None]:
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


def _check(warehouse: Warehouse, origin: str) -> None:
    about, place = warehouse.about(), warehouse.place
    if not about.get("schema"):
        make(warehouse, origin)
        return
    if about["origin"] != origin:
        raise AnalyticsError(
            f"{place.name} has the columns of another LoomDB. Name another place (--analytics), or make it this one's: "
            "loomrl analytics rebuild."
        )
    _check_schema(place, about)


def _check_schema(place: Place, about: Mapping[str, str]) -> None:
    found = about.get("schema")
    if found != VERSION:
        raise AnalyticsError(
            f"{place.name} has schema {found!r}, and this loomrl reads {VERSION!r}. All of it comes from LoomDB: "
            "loomrl analytics rebuild makes it anew."
        )


def _never_fed(place: Place) -> str:
    return f"nothing was loaded into {place.name} yet. loomrl analytics feed does it."


@contextmanager
def _opened(place: Place, wait_s: float, settings: Mapping[str, Any]) -> Iterator[Warehouse]:
    if place.folder is None:
        with _served(place, settings) as warehouse:
            yield warehouse
        return
    said = f"{place.folder} {IN_USE}"
    with sole(place.folder / "lock", wait_s=wait_s, said=said), _embedded(place, settings) as warehouse:
        yield warehouse


@contextmanager
def _embedded(place: Place, settings: Mapping[str, Any]) -> Iterator[Warehouse]:
    assert place.folder is not None
    where: dict[str, Any] = {"interface": "chdb", "path": str(place.folder / "data")}
    with _client(place, **where) as client:
        client.command(f"CREATE DATABASE IF NOT EXISTS {place.database}")
        with _client(place, **where, database=place.database, settings={**_SETTINGS, **settings}) as ours:
            yield Warehouse(ours, place)


@contextmanager
def _served(place: Place, settings: Mapping[str, Any]) -> Iterator[Warehouse]:
    with _client(place, dsn=place.url, database="default") as client, translated(place):
        client.command(f"CREATE DATABASE IF NOT EXISTS `{place.database}`")
    with _client(place, dsn=place.url, database=place.database, settings={**_SETTINGS, **settings}) as ours:
        yield Warehouse(ours, place)


@contextmanager
def _client(place: Place, **where: Any) -> Iterator["Client"]:
    try:
        import clickhouse_connect
    except ModuleNotFoundError:
        raise AnalyticsError(f"analytics: ClickHouse's client is missing. Install it: {INSTALL}.") from None
    logging.getLogger("clickhouse_connect").setLevel(logging.CRITICAL)  # whatever it logs, it raises too
    try:
        with translated(place):
            client = clickhouse_connect.get_client(**where)
    except ImportError:
        raise AnalyticsError(f"analytics: chdb, ClickHouse for a folder, is missing. Install it: {INSTALL}.") from None
    try:
        yield client
    finally:
        client.close()
