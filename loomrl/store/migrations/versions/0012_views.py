"""Version 12: the metrics of runs, and the index of trajectories that the console keeps."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables, and the index that pages runs."""
    op.create_table(
        "metrics",
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("headline", sa.Float(), nullable=True),
        sa.Column("tokens", sa.Float(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_metrics")),
        sa.UniqueConstraint("run", "step", name=op.f("uq_metrics_run_step")),
        sqlite_autoincrement=True,
    )
    op.create_index("metrics_by_number", "metrics", ["run", "number", "headline"], unique=False)
    op.create_table(
        "trajectory_index",
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        sa.Column("hub", sa.Text(), nullable=False),
        sa.Column("place", POSITION, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("ending", sa.Text(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=False),
        sa.Column("success", sa.Float(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_trajectory_index")),
        sa.UniqueConstraint("hub", "place", name=op.f("uq_trajectory_index_hub_place")),
        sqlite_autoincrement=True,
    )
    for name, columns in {
        op.f("ix_trajectory_index_id"): ["id"],
        "trajectory_index_by_run": ["run", "position"],
        "trajectory_index_by_hub": ["hub", "position"],
        "trajectory_index_by_family": ["environment", "family", "position"],
        "trajectory_index_by_environment": ["environment", "position"],
    }.items():
        op.create_index(name, "trajectory_index", columns, unique=False)
    op.create_table(
        "index_cursors",
        sa.Column("hub", sa.Text(), nullable=False),
        sa.Column("place", POSITION, nullable=False),
        sa.PrimaryKeyConstraint("hub", name=op.f("pk_index_cursors")),
    )
    listed = ["started_at", "id", "name", "kind", "status", "finished_at"]
    op.create_index("runs_by_list", "runs", listed, unique=False)
    op.create_index("policies_by_time", "policies", ["created_at", "id"], unique=False)
