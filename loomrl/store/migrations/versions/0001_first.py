"""Version 1: all tables, and the triggers that keep events as they are."""

from alembic import op

from loomrl.store.log import metadata
from loomrl.store.migration import FIRST

revision = FIRST
down_revision = None

APPEND_ONLY = "events is append-only: write a further event instead"


def upgrade() -> None:
    """Create everything."""
    # Until the first release the tables are declared once, in the code. The release freezes them here, as the
    # operations that Alembic's autogenerate prints for an empty database; each later change is a version of its own.
    metadata.create_all(op.get_bind(), checkfirst=False)
    if op.get_bind().dialect.name == "sqlite":
        _forbid_changes_on_sqlite()
    else:
        _forbid_changes_on_postgresql()


def _forbid_changes_on_sqlite() -> None:
    for change in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER events_refuse_{change.lower()} BEFORE {change} ON events "
            f"BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY}'); END"
        )
    op.execute(  # INSERT OR REPLACE deletes without firing the trigger above
        "CREATE TRIGGER events_refuse_replace BEFORE INSERT ON events "
        "WHEN EXISTS (SELECT 1 FROM events WHERE position = NEW.position) "
        f"BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY}'); END"
    )


def _forbid_changes_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION events_refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{APPEND_ONLY}'; END $$"
    )
    op.execute(
        "CREATE TRIGGER events_refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON events "
        "FOR EACH STATEMENT EXECUTE FUNCTION events_refuse_change()"
    )
