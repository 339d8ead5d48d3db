"""The tables of LoomDB. JSON columns hold canonical JSON text; times are Unix seconds; `position` is a cursor."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.schema import SchemaItem

metadata = MetaData()

Position = BigInteger().with_variant(Integer, "sqlite")
"""Grows by commit order and is never used twice (AUTOINCREMENT on SQLite, a sequence on PostgreSQL)."""


def _log(name: str, *columns: SchemaItem) -> Table:
    """A table read by cursor."""
    position = Column("position", Position, primary_key=True, autoincrement=True)
    return Table(name, metadata, position, *columns, sqlite_autoincrement=True)


environments = _log(
    "environments",
    Column("name", String(200), nullable=False),
    Column("version", String(50), nullable=False),
    Column("entry_point", Text, nullable=False),
    Column("snapshot", String(64), nullable=False),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("name", "version"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", String(100), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("status", String(20), nullable=False),
    Column("experiment", String(64), nullable=False),
    Column("resolved", Text, nullable=False),
    Column("code", String(100), nullable=False),
    Column("environments", Text, nullable=False),
    Column("parent_policy", String(64)),
    Column("result", Text, nullable=False, server_default="{}"),
    Column("started_at", Float, nullable=False, index=True),
    Column("finished_at", Float),
)

policies = Table(
    "policies",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("number", Integer, nullable=False),
    Column("url", Text, nullable=False),
    Column("run", String(64), nullable=False, index=True),
    Column("algorithm", String(100), nullable=False),
    Column("experiment", String(64), nullable=False),
    Column("parent", String(64), index=True),
    Column("data", Text, nullable=False),
    Column("code", String(100), nullable=False),
    Column("stage", String(20), nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("run", "number"),
)

evaluations = Table(
    "evaluations",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("run", String(64), index=True),
    Column("policy", String(64), index=True),
    Column("report", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

deployments = Table(
    "deployments",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("policy", String(64), nullable=False, index=True),
    Column("stage", String(20), nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("share", Float, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

feedback = _log(
    "feedback",
    Column("id", String(64), nullable=False, unique=True),
    Column("trajectory", String(200), nullable=False, index=True),
    Column("source", String(200), nullable=False),
    Column("kind", String(50), nullable=False),
    Column("value", Float, nullable=False),
    Column("comment", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)

events = _log(
    "events",
    Column("kind", String(50), nullable=False),
    Column("subject", String(200), nullable=False, index=True),
    Column("data", Text, nullable=False),
    Column("created_at", Float, nullable=False),
)
