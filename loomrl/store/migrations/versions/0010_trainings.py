"""Version 10: trainings that a coordinator asks for, starts, and follows to their release."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "trainings",
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_trainings")),
        sa.UniqueConstraint("id", "number", name=op.f("uq_trainings_id_number")),
        sqlite_autoincrement=True,
    )
    op.create_index("trainings_by_endpoint", "trainings", ["endpoint", "position"], unique=False)
    op.create_index("trainings_by_run", "trainings", ["run"], unique=False)
