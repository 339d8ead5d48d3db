"""Version 8: the bus, where no broker is."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of the bus."""
    op.create_table(
        "bus_messages",
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_bus_messages")),
        sa.UniqueConstraint("id", "stream", name=op.f("uq_bus_messages_id_stream")),
        sqlite_autoincrement=True,
    )
    op.create_index("bus_messages_by_stream", "bus_messages", ["stream", "position"], unique=False)
    op.create_index("bus_messages_by_subject", "bus_messages", ["subject", "position"], unique=False)
    op.create_table(
        "bus_groups",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("next", POSITION, nullable=False),
        sa.PrimaryKeyConstraint("name", "subject", name=op.f("pk_bus_groups")),
    )
    op.create_table(
        "bus_held",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("position", POSITION, autoincrement=False, nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", "subject", "position", name=op.f("pk_bus_held")),
    )
