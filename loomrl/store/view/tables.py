"""Tables for people who look: the metrics of runs, and an index of trajectories by what people filter them by.

The index is no record: it can be rebuilt from the hubs at any time, and lies in a LoomDB of its own beside the first,
so that updating it never holds the write lock that training needs.
"""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table, Text, UniqueConstraint

from loomrl.store.log import Position, metadata
from loomrl.store.runs import POLICIES, RUNS

_LISTED = ("started_at", "id", "name", "kind", "status", "finished_at")
Index("runs_by_list", *(RUNS.c[name] for name in _LISTED))
Index("policies_by_time", POLICIES.c.created_at, POLICIES.c.id)

metrics = Table(
    "metrics",
    metadata,
    Column("position", Position, primary_key=True, autoincrement=True),
    Column("run", Text, nullable=False),
    Column("number", Integer, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("headline", Float),
    Column("tokens", Float),
    Column("content", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("run", "step"),
    Index("metrics_by_number", "run", "number", "headline"),
    sqlite_autoincrement=True,
)
"""A row per update of a run, `number` from 1. `content` is JSON; `headline` is the metric that a small curve shows;
`tokens` were sampled up to then.
"""

trajectory_index = Table(
    "trajectory_index",
    metadata,
    Column("position", Position, primary_key=True, autoincrement=True),
    Column("hub", Text, nullable=False),
    Column("place", Position, nullable=False),
    Column("id", Text, nullable=False, index=True),
    Column("run", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("level", Integer, nullable=False),
    Column("source", Text, nullable=False),
    Column("ending", Text, nullable=False),
    Column("reward", Float, nullable=False),
    Column("success", Float, nullable=False),
    Column("length", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("hub", "place"),
    Index("trajectory_index_by_run", "run", "position"),
    Index("trajectory_index_by_hub", "hub", "position"),
    Index("trajectory_index_by_family", "environment", "family", "position"),
    Index("trajectory_index_by_environment", "environment", "position"),
    sqlite_autoincrement=True,
)
"""`place` is the position in the hub, `hub` the name of its LoomDB beside the first; `length` counts tokens, steps, or
the characters of what has neither.
"""

index_cursors = Table(
    "index_cursors",
    metadata,
    Column("hub", Text, primary_key=True),
    Column("place", Position, nullable=False),
)
"""How far each hub is in the index."""
