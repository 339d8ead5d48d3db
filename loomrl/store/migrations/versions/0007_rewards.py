"""Version 7: rewards of what was served."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "rewards",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("trajectory", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("total", sa.Float(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("first", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_rewards")),
        sa.UniqueConstraint("id", name=op.f("uq_rewards_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_rewards_trajectory"), "rewards", ["trajectory"], unique=False)
    op.create_index("rewards_by_endpoint", "rewards", ["endpoint", "position"], unique=False)
    op.create_index("rewards_by_task", "rewards", ["endpoint", "task", "position"], unique=False)
