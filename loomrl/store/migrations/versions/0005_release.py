"""Version 5: observations of arms, verdicts of gates with their approvals, releases, and A/B tests."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of the release."""
    _log(
        "observations",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
    )
    op.create_index("observations_by_endpoint", "observations", ["endpoint", "position"], unique=False)
    _log(
        "verdicts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("against", sa.Text(), nullable=True),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("suite_hash", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name=op.f("uq_verdicts_id")),
    )
    op.create_index(op.f("ix_verdicts_policy"), "verdicts", ["policy"], unique=False)
    _log(
        "approvals",
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.UniqueConstraint("verdict", "who", name=op.f("uq_approvals_verdict_who")),
    )
    _log(
        "releases",
        sa.Column("release", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.UniqueConstraint("release", "number", name=op.f("uq_releases_release_number")),
    )
    op.create_index(op.f("ix_releases_endpoint"), "releases", ["endpoint"], unique=False)
    _log(
        "ab_tests",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.UniqueConstraint("name", "number", name=op.f("uq_ab_tests_name_number")),
    )


def _log(name: str, *columns: sa.schema.SchemaItem) -> None:
    op.create_table(
        name,
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        *columns,
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f(f"pk_{name}")),
        sqlite_autoincrement=True,
    )
