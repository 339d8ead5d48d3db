"""Version 1: environments, runs, policies with lineage, evaluations, deployments, feedback, events, and the hub."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

APPEND_ONLY = "events is append-only: write a further event instead"


def upgrade() -> None:
    """Create everything."""
    _create_lineage()
    _create_judgement()
    _create_groups()
    _create_trajectories()
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


def _create_lineage() -> None:
    op.create_table(
        "environments",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("entry_point", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_environments")),
        sa.UniqueConstraint("name", "version", name=op.f("uq_environments_name_version")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("experiment", sa.Text(), nullable=False),
        sa.Column("resolved", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("environments", sa.Text(), nullable=False),
        sa.Column("parent_policy", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), server_default="{}", nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_started_at"), "runs", ["started_at"], unique=False)
    op.create_table(
        "policies",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("algorithm", sa.Text(), nullable=False),
        sa.Column("experiment", sa.Text(), nullable=False),
        sa.Column("parent", sa.Text(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policies")),
        sa.UniqueConstraint("run", "number", name=op.f("uq_policies_run_number")),
    )
    op.create_index(op.f("ix_policies_parent"), "policies", ["parent"], unique=False)
    op.create_index(op.f("ix_policies_run"), "policies", ["run"], unique=False)


def _create_judgement() -> None:
    op.create_table(
        "evaluations",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("policy", sa.Text(), nullable=True),
        sa.Column("report", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_evaluations")),
        sa.UniqueConstraint("id", name=op.f("uq_evaluations_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_evaluations_policy"), "evaluations", ["policy"], unique=False)
    op.create_index(op.f("ix_evaluations_run"), "evaluations", ["run"], unique=False)
    op.create_table(
        "deployments",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_deployments")),
        sa.UniqueConstraint("id", name=op.f("uq_deployments_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_deployments_policy"), "deployments", ["policy"], unique=False)
    op.create_table(
        "feedback",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("trajectory", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_feedback")),
        sa.UniqueConstraint("id", name=op.f("uq_feedback_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_feedback_trajectory"), "feedback", ["trajectory"], unique=False)
    op.create_table(
        "events",
        sa.Column("position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_kind"), "events", ["kind"], unique=False)
    op.create_index(op.f("ix_events_subject"), "events", ["subject"], unique=False)


def _create_groups() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("consumer", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("trained_into", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    op.create_index("leases_by_expiry", "leases", ["state", "expires_at"], unique=False)
    op.create_table(
        "groups",
        sa.Column(
            "position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("needed", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("arrived", sa.Integer(), nullable=False),
        sa.Column("usable", sa.Integer(), nullable=False),
        sa.Column("oldest", sa.Integer(), nullable=True),
        sa.Column("lease", sa.Text(), nullable=True),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.Column("deadline", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["lease"], ["leases.id"], name=op.f("fk_groups_lease")),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_groups")),
        sa.UniqueConstraint("id", name=op.f("uq_groups_id")),
    )
    op.create_index("groups_by_age", "groups", ["state", "oldest"], unique=False)
    op.create_index("groups_by_deadline", "groups", ["state", "deadline"], unique=False)
    op.create_index("groups_in_line", "groups", ["state", "environment", "position"], unique=False)
    op.create_index(op.f("ix_groups_lease"), "groups", ["lease"], unique=False)


def _create_trajectories() -> None:
    op.create_table(
        "trajectories",
        sa.Column(
            "position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False
        ),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("group_position", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("ending", sa.Text(), nullable=False),
        sa.Column("success", sa.Float(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("first_version", sa.Integer(), nullable=False),
        sa.Column("last_version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["group_position"], ["groups.position"], name=op.f("fk_trajectories_group_position")),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_trajectories")),
        sa.UniqueConstraint("id", name=op.f("uq_trajectories_id")),
    )
    op.create_index(op.f("ix_trajectories_group_position"), "trajectories", ["group_position"], unique=False)
    op.create_table(
        "hub_counters",
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("min_share", sa.Float(), nullable=False),
        sa.Column("served", sa.Float(), nullable=False),
        sa.Column("open", sa.Integer(), nullable=False),
        sa.Column("ready", sa.Integer(), nullable=False),
        sa.Column("leased", sa.Integer(), nullable=False),
        sa.Column("acked", sa.Integer(), nullable=False),
        sa.Column("released", sa.Text(), nullable=False),
        sa.Column("trajectories", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("late", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("success_sum", sa.Float(), nullable=False),
        sa.Column("reward_sum", sa.Float(), nullable=False),
        sa.Column("part_sums", sa.Text(), nullable=False),
        sa.Column("recent", sa.Float(), nullable=False),
        sa.Column("recent_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("environment", name=op.f("pk_hub_counters")),
    )
    op.create_table(
        "hub_notes",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_hub_notes")),
    )
