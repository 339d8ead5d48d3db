"""Run by Alembic to migrate. The connection, its transaction and the write lock come from `migration.migrate`."""

from alembic import context

from loomrl.store.migration import VERSION_TABLE

context.configure(connection=context.config.attributes["connection"], version_table=VERSION_TABLE)
context.run_migrations()
