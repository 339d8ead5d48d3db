"""Version 1: all tables, and the triggers that keep events as they are."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
APPEND_ONLY = "events is append-only: write a further event instead"


def upgrade() -> None:
    """Create everything."""
    _create_lineage()
    _create_judgement()
    _create_groups()
    _create_trajectories()
    _create_serving()
    _create_sessions()
    _create_release()
    _create_retention()
    _create_rewards()
    _create_bus()
    if op.get_bind().dialect.name == "sqlite":
        _forbid_changes_on_sqlite()
    else:
        _forbid_changes_on_postgresql()


def _create_lineage() -> None:
    _log(
        "environments",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("entry_point", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.UniqueConstraint("name", "version", name=op.f("uq_environments_name_version")),
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
    op.create_index(op.f("ix_runs_started_at"), "runs", ["started_at"])
    op.create_index("runs_by_list", "runs", ["started_at", "id", "name", "kind", "status", "finished_at"])
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
    op.create_index(op.f("ix_policies_parent"), "policies", ["parent"])
    op.create_index(op.f("ix_policies_run"), "policies", ["run"])
    op.create_index("policies_by_time", "policies", ["created_at", "id"])
    _log(
        "metrics",
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("headline", sa.Float(), nullable=True),
        sa.Column("tokens", sa.Float(), nullable=True),
        sa.Column("content", sa.Text(), nullable=False),
        sa.UniqueConstraint("run", "step", name=op.f("uq_metrics_run_step")),
    )
    op.create_index("metrics_by_number", "metrics", ["run", "number", "headline"])


def _create_judgement() -> None:
    _log(
        "evaluations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=True),
        sa.Column("policy", sa.Text(), nullable=True),
        sa.Column("report", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name=op.f("uq_evaluations_id")),
    )
    op.create_index(op.f("ix_evaluations_policy"), "evaluations", ["policy"])
    op.create_index(op.f("ix_evaluations_run"), "evaluations", ["run"])
    _log(
        "deployments",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name=op.f("uq_deployments_id")),
    )
    op.create_index(op.f("ix_deployments_policy"), "deployments", ["policy"])
    op.create_table(
        "feedback",
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("trajectory", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("call", sa.Text(), server_default="", nullable=False),
        sa.Column("data", sa.Text(), server_default="{}", nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_feedback")),
        sa.UniqueConstraint("id", name=op.f("uq_feedback_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_feedback_trajectory"), "feedback", ["trajectory"])
    _log(
        "judgements",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("conversation", sa.Text(), nullable=False),
        sa.Column("choices", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("choice", sa.Text(), nullable=True),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name=op.f("uq_judgements_id")),
    )
    _log(
        "events",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
    )
    op.create_index(op.f("ix_events_kind"), "events", ["kind"])
    op.create_index(op.f("ix_events_subject"), "events", ["subject"])


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
    op.create_index("leases_by_expiry", "leases", ["state", "expires_at"])
    op.create_table(
        "groups",
        sa.Column("position", POSITION, autoincrement=False, nullable=False),
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
    op.create_index("groups_by_age", "groups", ["state", "oldest"])
    op.create_index("groups_by_deadline", "groups", ["state", "deadline"])
    op.create_index("groups_in_line", "groups", ["state", "environment", "position"])
    op.create_index(op.f("ix_groups_lease"), "groups", ["lease"])


def _create_trajectories() -> None:
    op.create_table(
        "trajectories",
        sa.Column("position", POSITION, autoincrement=False, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("group_position", POSITION, nullable=False),
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
    op.create_index(op.f("ix_trajectories_group_position"), "trajectories", ["group_position"])
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
        sa.Column("tokens", POSITION, nullable=False),
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
    _log(
        "trajectory_index",
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
        sa.UniqueConstraint("hub", "place", name=op.f("uq_trajectory_index_hub_place")),
    )
    op.create_index(op.f("ix_trajectory_index_id"), "trajectory_index", ["id"])
    op.create_index("trajectory_index_by_environment", "trajectory_index", ["environment", "position"])
    op.create_index("trajectory_index_by_family", "trajectory_index", ["environment", "family", "position"])
    op.create_index("trajectory_index_by_hub", "trajectory_index", ["hub", "position"])
    op.create_index("trajectory_index_by_run", "trajectory_index", ["run", "position"])
    op.create_table(
        "index_cursors",
        sa.Column("hub", sa.Text(), nullable=False),
        sa.Column("place", POSITION, nullable=False),
        sa.PrimaryKeyConstraint("hub", name=op.f("pk_index_cursors")),
    )


def _create_serving() -> None:
    _log(
        "endpoints",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("arms", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.UniqueConstraint("name", "revision", name=op.f("uq_endpoints_name_revision")),
    )
    op.create_table(
        "replicas",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("beat_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replicas")),
    )
    op.create_index(op.f("ix_replicas_policy"), "replicas", ["policy"])
    op.create_table(
        "keys",
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("rate", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_keys")),
        sa.UniqueConstraint("id", name=op.f("uq_keys_id")),
        sqlite_autoincrement=True,
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
    op.create_index("sessions_by_time", "sessions", ["endpoint", "state", "last_at"])
    _log(
        "calls",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("columns", sa.LargeBinary(), nullable=True),
        sa.UniqueConstraint("id", name=op.f("uq_calls_id")),
    )
    op.create_index("calls_by_session", "calls", ["session", "position"])
    op.create_table(
        "answers",
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        sa.Column("mark", sa.LargeBinary(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_answers")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_answers_mark"), "answers", ["mark"])
    op.create_index(op.f("ix_answers_session"), "answers", ["session"])
    op.create_table(
        "participants",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("session", "person", name=op.f("pk_participants")),
    )
    op.create_index("participants_by_person", "participants", ["endpoint", "person"])
    op.create_table(
        "placeholders",
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("session", "hash", name=op.f("pk_placeholders")),
    )
    op.create_table(
        "opt_outs",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("person", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", "person", name=op.f("pk_opt_outs")),
    )


def _create_release() -> None:
    _log(
        "observations",
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
    )
    op.create_index("observations_by_endpoint", "observations", ["endpoint", "position"])
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
    op.create_index(op.f("ix_verdicts_policy"), "verdicts", ["policy"])
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
    op.create_index(op.f("ix_releases_endpoint"), "releases", ["endpoint"])
    _log(
        "ab_tests",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.UniqueConstraint("name", "number", name=op.f("uq_ab_tests_name_number")),
    )


def _create_retention() -> None:
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
    op.create_index(op.f("ix_archives_endpoint"), "archives", ["endpoint"])


def _create_rewards() -> None:
    _log(
        "rewards",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("trajectory", sa.Text(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("total", sa.Float(), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("first", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name=op.f("uq_rewards_id")),
    )
    op.create_index(op.f("ix_rewards_trajectory"), "rewards", ["trajectory"])
    op.create_index("rewards_by_endpoint", "rewards", ["endpoint", "position"])
    op.create_index("rewards_by_task", "rewards", ["endpoint", "task", "position"])
    _log(
        "datasets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", name=op.f("uq_datasets_id")),
    )
    op.create_index(op.f("ix_datasets_name"), "datasets", ["name"])
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
    op.create_index(op.f("ix_dataset_rows_trajectory"), "dataset_rows", ["trajectory"])
    _log(
        "trainings",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("run", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.UniqueConstraint("id", "number", name=op.f("uq_trainings_id_number")),
    )
    op.create_index("trainings_by_endpoint", "trainings", ["endpoint", "position"])
    op.create_index("trainings_by_run", "trainings", ["run"])


def _create_bus() -> None:
    _log(
        "bus_messages",
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("headers", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("id", "stream", name=op.f("uq_bus_messages_id_stream")),
    )
    op.create_index("bus_messages_by_stream", "bus_messages", ["stream", "position"])
    op.create_index("bus_messages_by_subject", "bus_messages", ["subject", "position"])
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


def _log(name: str, *columns: sa.schema.SchemaItem) -> None:
    """Create a table of rows that are numbered and dated."""
    op.create_table(
        name,
        sa.Column("position", POSITION, autoincrement=True, nullable=False),
        *columns,
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f(f"pk_{name}")),
        sqlite_autoincrement=True,
    )


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
