"""Version 9: data sets of what was served, and the trajectories in them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "datasets",
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_datasets")),
        sa.UniqueConstraint("id", name=op.f("uq_datasets_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_datasets_name"), "datasets", ["name"], unique=False)
    op.create_table(
        "dataset_rows",
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("hub", sa.Text(), nullable=False),
        sa.Column("position", POSITION, nullable=False),
        sa.Column("trajectory", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("versions", sa.Text(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("reward_row", sa.Text(), nullable=False),
        sa.Column("feedback", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("dataset", "number", name=op.f("pk_dataset_rows")),
    )
    op.create_index(op.f("ix_dataset_rows_trajectory"), "dataset_rows", ["trajectory"], unique=False)
