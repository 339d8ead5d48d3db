"""Migration of a database to the schema of this code, by Alembic."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event
from sqlalchemy.schema import CreateIndex, CreateTable

from loomrl.errors import StoreError
from loomrl.store import (  # noqa: F401 - each puts its tables into `metadata`
    ab_tests,
    archives,
    datasets,
    environments,
    erasures,
    forgettings,
    hub_tables,
    keys,
    replicas,
    trainings,
    verdicts,
)
from loomrl.store.db import LoomDB
from loomrl.store.log import metadata
from loomrl.store.view import tables  # noqa: F401

VERSION_TABLE = "loom_version"
SCRIPTS = Path(__file__).parent / "migrations"
_NEW: dict[str, list[tuple[str, Any]]] = {}
"""Dialect → the statements that made a database here. The next one is made by them, in a quarter of the time."""
_STATEMENTS = [
    str(statement)
    for table in metadata.sorted_tables
    for statement in (CreateTable(table), *map(CreateIndex, sorted(table.indexes, key=lambda index: str(index.name))))
]
FIRST = f"0001_{sha256(''.join(_STATEMENTS).encode()).hexdigest()[:8]}"
"""The first version, by its tables: a database that an earlier state of them made is refused by name."""


def migrate(db: LoomDB) -> None:
    """Bring `db` to the newest schema, whole or not at all; several processes may do this at once."""
    with db.read() as connection:
        current = read_revision(connection)
    if current == _script().get_current_head():
        return
    with db.write() as connection:
        _refuse_unknown(db, connection)
        dialect = connection.dialect.name
        if read_revision(connection) is not None:
            _upgrade(connection)
        elif dialect in _NEW:
            for statement, parameters in _NEW[dialect]:
                connection.exec_driver_sql(statement, parameters).close()
        else:
            with _recording(connection) as statements:
                _upgrade(connection)
            _NEW[dialect] = statements


def _upgrade(connection: Connection) -> None:
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextmanager
def _recording(connection: Connection) -> Iterator[list[tuple[str, Any]]]:
    """The statements that are executed meanwhile, in order."""
    statements: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        statements.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(connection, "before_cursor_execute", note)


def read_revision(connection: Connection) -> str | None:
    """The schema version of a database; None if LoomDB has not used it yet."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def _refuse_unknown(db: LoomDB, connection: Connection) -> None:
    current = read_revision(connection)
    known = {revision.revision for revision in _script().walk_revisions()}
    if current is not None and current not in known:
        raise StoreError(
            f"{db.location} has schema {current!r}, and this loomrl knows up to {_script().get_current_head()!r}: "
            "another version of loomrl made it. Use that one, or choose another store_url."
        )


@cache
def _script() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
