"""Any table that is read by cursor, by its name: how many rows it has up to a position or past it, and which."""

from sqlalchemy import func, select

from loomrl.store import hub_tables  # noqa: F401 - puts its tables with the others
from loomrl.store.db import LoomDB
from loomrl.store.tables import metadata


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


def positions_in(db: LoomDB, log: str, *, upto: int) -> set[int]:
    """The positions of a log's rows up to one."""
    table = metadata.tables[log]
    with db.read() as connection:
        return set(connection.scalars(select(table.c.position).where(table.c.position <= upto)))
