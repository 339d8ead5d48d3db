"""Shared code of all tables: JSON columns, rows that are written once, and counts of what is read by cursor."""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, RowMapping, Table, func, insert, select

from loomrl.canonical import canonical_json
from loomrl.errors import IdTaken, StoreError, did_you_mean, there_are
from loomrl.store import hub_tables  # noqa: F401 - puts its tables with the others
from loomrl.store.db import LoomDB
from loomrl.store.tables import metadata

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = RowMapping


def columns_of(value: "DataclassInstance") -> dict[str, Any]:
    """The fields of a dataclass, unconverted."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def to_json(value: Any, *, what: str) -> str:
    """The text of a JSON column; values that JSON cannot hold (NaN, objects) are refused."""
    try:
        return canonical_json(value).decode()
    except (TypeError, ValueError) as error:
        raise StoreError(f"{what} cannot be stored as JSON: {error}. Use null for what is not a number.") from None


def from_json(text: str) -> dict[str, Any]:
    """The mapping in a JSON column."""
    value: dict[str, Any] = json.loads(text)
    return value


def insert_once(
    connection: Connection, table: Table, row: Mapping[str, Any], *, changing: Collection[str] = ()
) -> bool:
    """Insert a row under a new `id`: True. The same row again: False. The id with other content: IdTaken.

    Columns in `changing` may differ from the stored row, because they change later.
    """
    for name, value in row.items():
        if isinstance(value, str) and "\0" in value:
            raise StoreError(f"{table.name} {row['id']!r}: {name}={value!r:.200} has a NUL character. Remove it.")
    stored = find(connection, table, row["id"])
    if stored is None:
        connection.execute(insert(table).values(**row))
        return True
    for name, value in row.items():
        if stored[name] != value and name not in changing:
            raise IdTaken(
                f"{table.name} {row['id']!r} is stored already with {name}={stored[name]!r:.200}, "
                f"now it comes with {value!r:.200}. Nothing was stored; use a new id."
            )
    return False


def find(connection: Connection, table: Table, id: str) -> Row | None:
    """The row of this id, or None."""
    return connection.execute(select(table).where(table.c.id == id)).mappings().one_or_none()


def require(connection: Connection, table: Table, id: str) -> Row:
    """The row of this id; a StoreError names the nearest id."""
    row = find(connection, table, id)
    if row is None:
        known = sorted(connection.scalars(select(table.c.id)))
        raise StoreError(f"{table.name} has no id {id!r:.100}. {there_are(known)}{did_you_mean(id[:100], known)}")
    return row


def count_rows(db: LoomDB, log: str, *, upto: int) -> int:
    """The rows of a log up to a position."""
    table = metadata.tables[log]
    with db.read() as connection:
        return int(connection.scalar(select(func.count()).select_from(table).where(table.c.position <= upto)) or 0)


def rows_after(db: LoomDB, log: str, after: int) -> int:
    """The rows of a log past a position."""
    table = metadata.tables[log]
    with db.read() as connection:
        return int(connection.scalar(select(func.count()).select_from(table).where(table.c.position > after)) or 0)


def last_row(db: LoomDB, log: str) -> int:
    """The newest position in a log; 0 without any."""
    table = metadata.tables[log]
    with db.read() as connection:
        return int(connection.scalar(select(func.max(table.c.position))) or 0)


def positions_in(db: LoomDB, log: str, *, upto: int) -> set[int]:
    """The positions of a log's rows up to one."""
    table = metadata.tables[log]
    with db.read() as connection:
        return set(connection.scalars(select(table.c.position).where(table.c.position <= upto)))
