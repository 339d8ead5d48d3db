"""Version 4: sessions, their calls, and the people who are not recorded."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables of the recorder."""
    _create_sessions()
    _create_calls()
    op.create_table(
        "opt_outs",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", "person", name=op.f("pk_opt_outs")),
    )


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("ending", sa.Text(), nullable=True),
        sa.Column("trajectory", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    op.create_index("sessions_by_time", "sessions", ["endpoint", "state", "last_at"], unique=False)


def _create_calls() -> None:
    position = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "calls",
        sa.Column("position", position, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("columns", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_calls")),
        sa.UniqueConstraint("id", name=op.f("uq_calls_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("calls_by_session", "calls", ["session", "position"], unique=False)
    op.create_table(
        "answers",
        sa.Column("position", position, autoincrement=True, nullable=False),
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_answers")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_answers_mark"), "answers", ["mark"], unique=False)
    op.create_index(op.f("ix_answers_session"), "answers", ["session"], unique=False)
