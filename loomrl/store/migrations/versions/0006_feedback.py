"""Version 6: feedback on one answer, who spoke in a session, deletions of people, and archives of trajectories."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns and create the tables."""
    op.add_column("feedback", sa.Column("call", sa.Text(), server_default="", nullable=False))
    op.add_column("feedback", sa.Column("data", sa.Text(), server_default="{}", nullable=False))
    op.create_table(
        "participants",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("session", "person", name=op.f("pk_participants")),
    )
    op.create_index("participants_by_person", "participants", ["endpoint", "person"], unique=False)
    _log(
        "erasures",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("trajectories", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name=op.f("uq_erasures_id")),
    )
    _log(
        "archives",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("first_at", sa.Float(), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.UniqueConstraint("id", name=op.f("uq_archives_id")),
    )
    op.create_index(op.f("ix_archives_endpoint"), "archives", ["endpoint"], unique=False)


def _log(name: str, *columns: sa.schema.SchemaItem) -> None:
    op.create_table(
        name,
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        *columns,
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f(f"pk_{name}")),
        sqlite_autoincrement=True,
    )
