"""The tables of LoomDB. JSON columns hold canonical JSON text; times are Unix seconds; `position` is a cursor."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text, UniqueConstraint
from sqlalchemy.schema import SchemaItem

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)
"""Every constraint has a name, so that a later migration can change it on both databases."""

Position = BigInteger().with_variant(Integer, "sqlite")
"""Grows in commit order and is never reused (AUTOINCREMENT on SQLite, a sequence on PostgreSQL)."""


def _log(name: str, *columns: SchemaItem) -> Table:
    """A table read by cursor."""
    position = Column("position", Position, primary_key=True, autoincrement=True)
    return Table(name, metadata, position, *columns, sqlite_autoincrement=True)


environments = _log(
    "environments",
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("entry_point", Text, nullable=False),
    Column("snapshot", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("name", "version"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("experiment", Text, nullable=False),
    Column("resolved", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("environments", Text, nullable=False),
    Column("parent_policy", Text),
    Column("result", Text, nullable=False, server_default="{}"),
    Column("started_at", Float, nullable=False, index=True),
    Column("finished_at", Float),
)

policies = Table(
    "policies",
    metadata,
    Column("id", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    Column("url", Text, nullable=False),
    Column("run", Text, nullable=False, index=True),
    Column("algorithm", Text, nullable=False),
    Column("experiment", Text, nullable=False),
    Column("parent", Text, index=True),
    Column("data", Text, nullable=False),
    Column("code", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("run", "number"),
)

evaluations = _log(
    "evaluations",
    Column("id", Text, nullable=False, unique=True),
    Column("run", Text, index=True),
    Column("policy", Text, index=True),
    Column("report", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

deployments = _log(
    "deployments",
    Column("id", Text, nullable=False, unique=True),
    Column("policy", Text, nullable=False, index=True),
    Column("stage", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("share", Float, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

feedback = _log(
    "feedback",
    Column("id", Text, nullable=False, unique=True),
    Column("trajectory", Text, nullable=False, index=True),
    Column("source", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("value", Float, nullable=False),
    Column("comment", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("call", Text, nullable=False, server_default=""),
    Column("data", Text, nullable=False, server_default="{}"),
)
"""`call` is the answer it is about, empty for the whole session; `data` is JSON."""

rewards = _log(
    "rewards",
    Column("id", Text, nullable=False, unique=True),
    Column("trajectory", Text, nullable=False, index=True),
    Column("endpoint", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("total", Float, nullable=False),
    Column("confidence", Float, nullable=False),
    Column("first", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("rewards_by_endpoint", "endpoint", "position"),
    Index("rewards_by_task", "endpoint", "task", "position"),
)
"""Rewards of what was served: of a trajectory the newest row holds. `first` and `content` are JSON."""

judgements = _log(
    "judgements",
    Column("id", Text, nullable=False, unique=True),
    Column("question", Text, nullable=False),
    Column("conversation", Text, nullable=False),
    Column("choices", Text, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("choice", Text),
    Column("who", Text, nullable=False),
    Column("comment", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

events = _log(
    "events",
    Column("kind", Text, nullable=False, index=True),
    Column("subject", Text, nullable=False, index=True),
    Column("data", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

endpoints = _log(
    "endpoints",
    Column("name", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("arms", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("name", "revision"),
)

replicas = Table(
    "replicas",
    metadata,
    Column("id", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("policy", Text, nullable=False, index=True),
    Column("version", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("started_at", Float, nullable=False),
    Column("beat_at", Float, nullable=False),
)

keys = _log(
    "keys",
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("rate", Float),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("revoked_at", Float),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("endpoint", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("opened_at", Float, nullable=False),
    Column("last_at", Float, nullable=False),
    Column("ended_at", Float),
    Column("ending", Text),
    Column("trajectory", Text),
    Index("sessions_by_time", "endpoint", "state", "last_at"),
)
"""`open → ended → stored`. `ending` is JSON; `trajectory` is set once the endpoint's hub has it."""

calls = _log(
    "calls",
    Column("id", Text, nullable=False, unique=True),
    Column("session", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("columns", LargeBinary),
    Column("created_at", Float, nullable=False),
    Index("calls_by_session", "session", "position"),
)
"""`columns` are the tokens; NULL where they are lost to redaction."""

answers = _log(
    "answers",
    Column("mark", LargeBinary, nullable=False, index=True),
    Column("session", Text, nullable=False, index=True),
)
"""Marks of conversations that end with an answer on record (`loomrl.serving.thread`)."""

placeholders = Table(
    "placeholders", metadata, Column("session", Text, primary_key=True), Column("hash", LargeBinary, primary_key=True),
    Column("kind", Text, nullable=False), Column("number", Integer, nullable=False),
)  # fmt: skip
"""Values of a session by a hash whose key only the service has in memory, and the numbers of their placeholders."""

opt_outs = Table(
    "opt_outs",
    metadata,
    Column("endpoint", Text, primary_key=True),
    Column("person", Text, primary_key=True),
    Column("created_at", Float, nullable=False),
)
"""People who are not recorded: `person` is a hash of the name that callers give."""

participants = Table(
    "participants",
    metadata,
    Column("session", Text, primary_key=True),
    Column("person", Text, primary_key=True),
    Column("endpoint", Text, nullable=False),
    Index("participants_by_person", "endpoint", "person"),
)
"""Who spoke in a session, by the hash of `opt_outs`. Rows stay as long as the session's trajectory does."""

erasures = _log(
    "erasures",
    Column("id", Text, nullable=False, unique=True),
    Column("endpoint", Text, nullable=False),
    Column("person", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("trajectories", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)
"""Deletions of people, `open → done`; one that is done stays for a while, without the person. Both texts are JSON."""

archives = _log(
    "archives",
    Column("id", Text, nullable=False, unique=True),
    Column("endpoint", Text, nullable=False, index=True),
    Column("url", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("count", Integer, nullable=False),
    Column("first_at", Float, nullable=False),
    Column("last_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
)
"""Files of trajectories that have left an endpoint's hub, and when these ended. `writing → kept → leaving`."""

observations = _log(
    "observations",
    Column("endpoint", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Index("observations_by_endpoint", "endpoint", "position"),
)
"""Outcomes of calls, many in a row, as the gateways saw them; `source` is the gateway."""

verdicts = _log(
    "verdicts",
    Column("id", Text, nullable=False, unique=True),
    Column("policy", Text, nullable=False, index=True),
    Column("fingerprint", Text, nullable=False),
    Column("against", Text),
    Column("suite", Text, nullable=False),
    Column("suite_hash", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("report", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)
"""Verdicts of the gate. `fingerprint` is a hash of the policy's files, as a folder's content may change."""

approvals = _log(
    "approvals",
    Column("verdict", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("comment", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("verdict", "who"),
)
"""People's approvals of verdicts."""

releases = _log(
    "releases",
    Column("release", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("endpoint", Text, nullable=False, index=True),
    Column("state", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("release", "number"),
)
"""A release's passage: the row with the highest number holds. `content` is JSON."""

ab_tests = _log(
    "ab_tests",
    Column("name", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("name", "number"),
)
"""The row with the highest number holds. `content` is JSON."""

bus_messages = _log(
    "bus_messages",
    Column("stream", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("headers", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("id", "stream"),
    Index("bus_messages_by_stream", "stream", "position"),
    Index("bus_messages_by_subject", "subject", "position"),
)
"""The bus, where no broker is."""

bus_groups = Table(
    "bus_groups",
    metadata,
    Column("name", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("next", Position, nullable=False),
)
"""Groups of consumers, and the position up to which each was given everything."""

bus_held = Table(
    "bus_held",
    metadata,
    Column("name", Text, primary_key=True),
    Column("subject", Text, primary_key=True),
    Column("position", Position, primary_key=True, autoincrement=False),
    Column("until", Float, nullable=False),
    Column("tries", Integer, nullable=False),
)
"""Messages that a group was given and has not acknowledged."""

datasets = _log(
    "datasets",
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False, index=True),
    Column("sha256", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)
"""Frozen choices of trajectories. `content` is JSON: the selection, the policy to train, what each filter left out."""

dataset_rows = Table(
    "dataset_rows",
    metadata,
    Column("dataset", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("part", Text, nullable=False),
    Column("hub", Text, nullable=False),
    Column("position", Position, nullable=False),
    Column("trajectory", Text, nullable=False, index=True),
    Column("sha256", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("prompt", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("versions", Text, nullable=False),
    Column("reward", Float),
    Column("reward_row", Text, nullable=False),
    Column("feedback", Text, nullable=False),
)
"""The trajectories of data sets, by hub and position there; `prompt` is a hash. Contents stay in the hubs."""

trainings = _log(
    "trainings",
    Column("id", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("id", "number"),
    Index("trainings_by_endpoint", "endpoint", "position"),
    Index("trainings_by_run", "run"),
)
"""Jobs of the coordinator: of each the row with the highest number holds. `content` is JSON."""
