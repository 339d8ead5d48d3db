"""Migration of a database to the schema of this code, by Alembic."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event

from loomrl.errors import StoreError
from loomrl.store.db import LoomDB

VERSION_TABLE = "loom_version"
SCRIPTS = Path(__file__).parent / "migrations"
_NEW: dict[str, list[tuple[str, Any]]] = {}
"""Dialect → the statements that made a database of it here. Another one is made by them, in a quarter of the time."""


def migrate(db: LoomDB) -> None:
    """Bring `db` to the newest schema, whole or not at all; several processes may do this at once."""
    script = _script()
    with db.read() as connection:
        current = current_revision(connection)
    if current == script.get_current_head():
        return
    with db.write() as connection:
        _refuse_newer(db, connection, script)
        dialect = connection.dialect.name
        if current_revision(connection) is not None:
            _upgrade(connection)
        elif dialect in _NEW:
            for statement, parameters in _NEW[dialect]:
                connection.exec_driver_sql(statement, parameters).close()
        else:
            with _recorded(connection) as statements:
                _upgrade(connection)
            _NEW[dialect] = statements


def _upgrade(connection: Connection) -> None:
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextmanager
def _recorded(connection: Connection) -> Iterator[list[tuple[str, Any]]]:
    """What is executed, in order."""
    statements: list[tuple[str, Any]] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        statements.append((statement, parameters))

    event.listen(connection, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(connection, "before_cursor_execute", note)


def current_revision(connection: Connection) -> str | None:
    """The schema version of a database; None if LoomDB has not used it yet."""
    return MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()


def _refuse_newer(db: LoomDB, connection: Connection, script: ScriptDirectory) -> None:
    current = current_revision(connection)
    head = script.get_current_head()
    known = {revision.revision for revision in script.walk_revisions()}
    if current is not None and current not in known:
        raise StoreError(
            f"{db.location} has schema {current!r}, and this loomrl knows up to {head!r}: a newer loomrl made it. "
            "Upgrade loomrl (pip install --upgrade loomrl), or choose another store_url."
        )


@cache
def _script() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
