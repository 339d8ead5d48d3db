"""Tables as records: a dataclass, declared once with its table, gives the columns, the rows and what is read back.

Times are Unix seconds. A field that is neither text, a number nor bytes is a column of JSON text.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from enum import Enum, StrEnum
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    RowMapping,
    Select,
    Table,
    Text,
    UniqueConstraint,
    func,
    insert,
    select,
)
from sqlalchemy.schema import SchemaItem

from loomrl.errors import IdTaken, StoreError, did_you_mean, there_are
from loomrl.store.db import LoomDB

T = TypeVar("T", bound=Any)
Row = RowMapping
Source = LoomDB | Connection
"""A database, or the transaction of what is read or written together."""
SLICE = 1000
"""Ids in one query: both databases have a limit."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)
"""Every constraint has a name, so that a later migration can change it on both databases."""

Position = BigInteger().with_variant(Integer, "sqlite")
"""Grows in commit order and is never reused (AUTOINCREMENT on SQLite, a sequence on PostgreSQL)."""


class Json(Text):
    """A column of JSON text."""


_TYPES: dict[Any, Any] = {str: Text, int: Integer, float: Float, bytes: LargeBinary, bool: Boolean}


class Records(Generic[T]):
    """The rows of a table with a primary key, as dataclasses.

    `key` names the primary key; `items` are further columns, constraints and indexes, and replace
    the column of a field of the same name. Fields in `beside` are no columns.
    """

    _options: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        name: str,
        record: type[T],
        *items: SchemaItem,
        key: Sequence[str] = ("id",),
        index: Sequence[str] = (),
        newest: Sequence[str] = (),
        beside: Collection[str] = (),
    ) -> None:
        self.record = record
        own = {item.name for item in items if isinstance(item, Column)}
        hints = get_type_hints(record)
        self._names = [field.name for field in fields(record) if field.name not in beside]
        columns = [_column(one, hints[one], is_key=one in key) for one in self._names if one not in own]
        indexes = [Index(None, column) for column in index]
        self.table = Table(name, metadata, *columns, *items, *indexes, **self._options)
        self.c = self.table.c
        self._json = {name for name in self._names if isinstance(self.c[name].type, Json)}
        self._newest = [self.c[one] for one in newest]
        self._insert = insert(self.table)  # built once, it is compiled once

    def row(self, one: T, **more: Any) -> dict[str, Any]:
        """The row of a record; StoreError for what JSON cannot hold."""
        return {name: self._plain(name, one) for name in self._names} | more

    def parse(self, row: Row) -> T:
        """The record in a row."""
        columns = {name: row[name] for name in self._names}
        columns |= {name: json.loads(columns[name]) for name in self._json if columns[name] is not None}
        try:
            record: T = msgspec.convert(columns, self.record)
        except msgspec.ValidationError as error:
            raise StoreError(f"{self.table.name} has a row that cannot be read: {error}. Restore a copy.") from None
        return record

    def select(self, **equal: Any) -> Select[Any]:
        """A query of the rows with these values; None leaves a column free."""
        query = select(self.table)
        for name, value in equal.items():
            if value is not None:
                query = query.where(self.c[name] == value)
        return query

    def fetch(self, source: Source, query: Select[Any]) -> list[T]:
        """The records that a query of whole rows finds."""
        return [self.parse(row) for row in fetch(source, query)]

    def first(self, source: Source, query: Select[Any]) -> T | None:
        """The first record that a query of whole rows finds."""
        return next(iter(self.fetch(source, query.limit(1))), None)

    def find(self, source: Source, id: str) -> T | None:
        """The record of this id, or None."""
        return self.first(source, self.select(id=id))

    def require(self, source: Source, id: str) -> T:
        """The record of this id; a StoreError names the nearest id."""
        found = self.find(source, id)
        if found is None:
            known = sorted(scalars(source, select(self.c.id).distinct()))
            there = f"{there_are(known)}{did_you_mean(id[:100], known)}"
            raise StoreError(f"{self.table.name} has no id {id!r:.100}. {there}")
        return found

    def latest(self, source: Source, *, limit: int = 50, **equal: Any) -> list[T]:
        """The newest records with these values, newest first."""
        query = self.select(**equal).order_by(*(column.desc() for column in self._newest)).limit(limit)
        return self.fetch(source, query)

    def insert(self, connection: Connection, new: Sequence[T], **more: Any) -> None:
        """Store records in one statement."""
        if new:
            connection.execute(self._insert, [self.row(one, **more) for one in new])

    def insert_once(self, connection: Connection, one: T, *, changing: Collection[str] = ()) -> bool:
        """Store a record under a new id: True. The same one again: False. The id with other content: IdTaken.

        Fields in `changing` may differ from the stored record, because they change later.
        """
        row = self.row(one)
        for name, value in row.items():
            if isinstance(value, str) and "\0" in value:
                raise StoreError(f"{self._describe(one)}: {name}={value!r:.200} has a NUL character. Remove it.")
        stored = next(iter(fetch(connection, self.select(id=row["id"]))), None)
        if stored is None:
            connection.execute(self._insert.values(**row))
            return True
        for name, value in row.items():
            if name not in changing and stored[name] != value and not self._is_same_json(name, stored[name], value):
                raise IdTaken(
                    f"{self._describe(one)} is stored already with {name}={stored[name]!r:.200}, "
                    f"now it comes with {value!r:.200}. Nothing was stored; use a new id."
                )
        return False

    def _is_same_json(self, name: str, stored: str | None, new: str | None) -> bool:
        """True for equal JSON, whose keys may come in another order."""
        return name in self._json and None not in (stored, new) and json.loads(stored or "") == json.loads(new or "")

    def _plain(self, name: str, one: T) -> Any:
        value = getattr(one, name)
        if name in self._json:
            return None if value is None else to_json(value, what=f"{self._describe(one)}: {name}")
        return value.value if isinstance(value, Enum) else value

    def _describe(self, one: T) -> str:
        return f"{self.table.name} {getattr(one, 'id', '')!r:.100}"


class Log(Records[T]):
    """Records that are read by cursor: `position` grows in commit order."""

    _options: Mapping[str, Any] = MappingProxyType({"sqlite_autoincrement": True})

    def __init__(
        self, name: str, record: type[T], *items: SchemaItem, key: Sequence[str] = ("id",), **how: Any
    ) -> None:
        position = Column("position", Position, primary_key=True, autoincrement=True)
        unique = [UniqueConstraint(*key)] if key else []
        super().__init__(name, record, position, *items, *unique, key=(), newest=("position",), **how)

    def append(self, target: Source, new: Sequence[T]) -> list[int]:
        """Store records in this order, all or none; their positions."""
        if not new:
            return []
        rows = [self.row(one) for one in new]
        statement = insert(self.table).returning(self.c.position, sort_by_parameter_order=True)
        with writing(target) as connection:
            return list(connection.scalars(statement, rows))

    def read(self, source: Source, *, after: int = 0, limit: int = 1000, **equal: Any) -> list[tuple[int, T]]:
        """The next records past a position, oldest first. Continue from the last one's position."""
        query = self.select(**equal).where(self.c.position > after).order_by(self.c.position).limit(limit)
        return self.numbered(source, query)

    def recent(
        self, source: Source, *, before: int | None = None, limit: int = 50, **equal: Any
    ) -> list[tuple[int, T]]:
        """The next records older than a position, newest first."""
        query = self.select(**equal).order_by(self.c.position.desc()).limit(limit)
        return self.numbered(source, query if before is None else query.where(self.c.position < before))

    def numbered(self, source: Source, query: Select[Any]) -> list[tuple[int, T]]:
        """The records that a query of whole rows finds, each behind its position."""
        return [(row["position"], self.parse(row)) for row in fetch(source, query)]

    def newest(self, source: Source, **equal: Any) -> T | None:
        """The newest record with these values."""
        return next(iter(self.latest(source, limit=1, **equal)), None)

    def newest_each(self, name: str, **equal: Any) -> Select[Any]:
        """A query of the newest row for each value of a column, without an order."""
        last = select(func.max(self.c.position)).group_by(self.c[name])
        for column, value in equal.items():
            if value is not None:
                last = last.where(self.c[column] == value)
        return select(self.table).where(self.c.position.in_(last))

    def last(self, source: Source, **equal: Any) -> int:
        """The newest position with these values; 0 without any."""
        query = self.select(**equal).with_only_columns(func.max(self.c.position))
        return int(scalar(source, query) or 0)


def _column(name: str, hint: Any, *, is_key: bool) -> Column[Any]:
    kinds = [hint]
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    is_word = get_origin(kinds[0]) is Literal or (isinstance(kinds[0], type) and issubclass(kinds[0], StrEnum))
    kind = Text if is_word else _TYPES.get(kinds[0], Json)
    return Column(name, kind, primary_key=is_key, nullable=kinds != [hint])


@contextmanager
def writing(target: Source) -> Iterator[Connection]:
    """A transaction of its own, or the one that is given."""
    if isinstance(target, Connection):
        yield target
        return
    with target.write() as connection:
        yield connection


def fetch(source: Source, query: Select[Any]) -> Sequence[Row]:
    """The rows that a query finds; a LoomDB whose server goes away meanwhile is asked again."""
    if isinstance(source, Connection):
        return source.execute(query).mappings().all()

    def read() -> Sequence[Row]:
        with source.read() as connection:
            return connection.execute(query).mappings().all()

    return source.again(read)


def scalars(source: Source, query: Select[Any]) -> list[Any]:
    """The values of a query's first column."""
    return [next(iter(row.values())) for row in fetch(source, query)]


def scalar(source: Source, query: Select[Any]) -> Any:
    """The one value that a query finds; None without any."""
    return next(iter(scalars(source, query)), None)


def slices(ids: Collection[str]) -> Iterator[list[str]]:
    """Ids, as many as one query takes at a time."""
    every = list(ids)
    for start in range(0, len(every), SLICE):
        yield every[start : start + SLICE]


def count_rows(db: LoomDB, log: str, *, upto: int | None = None, after: int = 0) -> int:
    """The rows of a log past one position and up to another."""
    position = metadata.tables[log].c.position
    query = select(func.count(position)).where(position > after)
    return int(scalar(db, query if upto is None else query.where(position <= upto)))


def last_row(db: LoomDB, log: str) -> int:
    """The newest position in a log; 0 without any."""
    return int(scalar(db, select(func.max(metadata.tables[log].c.position))) or 0)


def positions_in(db: LoomDB, log: str, *, upto: int) -> set[int]:
    """The positions of a log's rows up to one."""
    position = metadata.tables[log].c.position
    return set(scalars(db, select(position).where(position <= upto)))


def columns_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, unconverted."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def to_json(value: Any, *, what: str) -> str:
    """The text of a JSON column; values that JSON cannot hold (NaN, objects) are refused."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_as_json)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{what} cannot be stored as JSON: {error}. Use null for what is not a number.") from None


def _as_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def from_json(text: str) -> dict[str, Any]:
    """The mapping in a JSON column."""
    value: dict[str, Any] = json.loads(text)
    return value
