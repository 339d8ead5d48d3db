"""The columnar store, opened: the same in a folder, in the process of an engine, and on a server."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from loomrl.analytics.engine import ChdbEngine, Connection, Names, Rows, open_connection
from loomrl.analytics.place import StoreLocation
from loomrl.analytics.schema import ABOUT, TABLES, VERSION, VIEWS, Table
from loomrl.errors import AnalyticsError

WAIT_S = 20.0
"""Time that a question waits for another user of the folder."""


class Warehouse:
    """An open store: `open_warehouse` opens it for feeding, `open_reader` for questions."""

    def __init__(self, connection: Connection, place: StoreLocation) -> None:
        self._connection = connection
        self.place = place

    def rows(self, sql: str, **parameters: Any) -> Rows:
        """The rows of a question of ours."""
        return self._connection.query(sql, parameters)[1]

    def raw(self, sql: str, form: str) -> bytes:
        """The result in one of ClickHouse's formats."""
        return self._connection.raw(sql, form)

    def result(self, sql: str) -> tuple[Names, Rows]:
        """Names of columns, and rows."""
        return self._connection.query(sql, {})

    def do(self, sql: str, **parameters: Any) -> None:
        """Change something."""
        self._connection.do(sql, parameters)

    def insert(self, table: Table, columns: Sequence[Sequence[Any]]) -> None:
        """Add rows, given as columns: all or none, as one block of one part."""
        if columns and columns[0]:
            self._connection.insert(table, columns)

    def about(self) -> dict[str, str]:
        """Notes in the store; empty before it was created."""
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


@contextmanager
def open_warehouse(
    place: StoreLocation, *, origin: str, wait_s: float = WAIT_S, anew: bool = False, engine: ChdbEngine | None = None
) -> Iterator[Warehouse]:
    """The store of the LoomDB `origin`, to be fed; created if missing, or `anew` in place of the present one."""
    with _open(place, {}, wait_s, engine) as warehouse:
        if anew:
            make(warehouse, origin)
        else:
            _check(warehouse, origin)
        yield warehouse


@contextmanager
def open_reader(
    place: StoreLocation, settings: Mapping[str, Any], *, wait_s: float = WAIT_S, engine: ChdbEngine | None = None
) -> Iterator[Warehouse]:
    """The store, to be asked under these settings."""
    if place.folder is not None and not (place.folder / "data").exists():
        raise AnalyticsError(_never_fed(place))
    with _open(place, settings, wait_s, engine) as warehouse:
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


def _check(warehouse: Warehouse, origin: str) -> None:
    about = warehouse.about()
    place = warehouse.place
    if not about.get("schema"):
        make(warehouse, origin)
        return
    if about["origin"] != origin:
        raise AnalyticsError(
            f"{place.name} has the columns of another LoomDB. Name another place (--analytics), or make it this one's: "
            "loomrl query load --anew."
        )
    _check_schema(place, about)


def _check_schema(place: StoreLocation, about: Mapping[str, str]) -> None:
    found = about.get("schema")
    if found != VERSION:
        raise AnalyticsError(
            f"{place.name} has schema {found!r}, and this loomrl reads {VERSION!r}. All of it comes from LoomDB: "
            "loomrl query load --anew makes it anew."
        )


def _never_fed(place: StoreLocation) -> str:
    return f"nothing was loaded into {place.name} yet. loomrl query load does it."


@contextmanager
def _open(
    place: StoreLocation, settings: Mapping[str, Any], wait_s: float, engine: ChdbEngine | None
) -> Iterator[Warehouse]:
    """By the engine, if there is one; a server needs none."""
    connect = open_connection if engine is None or place.folder is None else engine.open_connection
    with connect(place, settings, wait_s=wait_s) as connection:
        yield Warehouse(connection, place)
