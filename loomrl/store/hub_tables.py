"""The hub's tables. `position` is assigned under the write lock (highest + 1), so cursor order is commit order.

A group is `open → ready → leased → acked`, or `released` with a cause. A lease is `held → acked | expired | released`;
`pinned` is the moment between the two steps of an ack that spans shards.
"""

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, LargeBinary, Table, Text

from loomrl.store.log import Position, metadata

leases = Table(
    "leases",
    metadata,
    Column("id", Text, primary_key=True),
    Column("consumer", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("trained_into", Integer),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Index("leases_by_expiry", "state", "expires_at"),
)

groups = Table(
    "groups",
    metadata,
    Column("position", Position, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    Column("environment", Text, nullable=False),
    Column("size", Integer, nullable=False),
    Column("needed", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("arrived", Integer, nullable=False),
    Column("usable", Integer, nullable=False),
    Column("oldest", Integer),
    Column("lease", Text, ForeignKey("leases.id"), index=True),
    Column("opened_at", Float, nullable=False),
    Column("deadline", Float, nullable=False),
    Index("groups_in_line", "state", "environment", "position"),
    Index("groups_by_deadline", "state", "deadline"),
    Index("groups_by_age", "state", "oldest"),
)
"""`needed` usable attempts make the quorum; `oldest` is the lowest first policy version among them, or NULL."""

trajectories = Table(
    "trajectories",
    metadata,
    Column("position", Position, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False, unique=True),
    Column("group_position", Position, ForeignKey("groups.position"), nullable=False, index=True),
    Column("late", Boolean, nullable=False),
    Column("environment", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("level", Integer, nullable=False),
    Column("source", Text, nullable=False),
    Column("ending", Text, nullable=False),
    Column("success", Float, nullable=False),
    Column("run", Text, nullable=False),
    Column("first_version", Integer, nullable=False),
    Column("last_version", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)
"""`late` ones arrived after their group was decided: kept, never trained."""

hub_counters = Table(
    "hub_counters",
    metadata,
    Column("environment", Text, primary_key=True),
    Column("weight", Float, nullable=False),
    Column("min_share", Float, nullable=False),
    Column("served", Float, nullable=False),
    Column("open", Integer, nullable=False),
    Column("ready", Integer, nullable=False),
    Column("leased", Integer, nullable=False),
    Column("acked", Integer, nullable=False),
    Column("released", Text, nullable=False),
    Column("trajectories", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("late", Integer, nullable=False),
    Column("tokens", Position, nullable=False),
    Column("success_sum", Float, nullable=False),
    Column("reward_sum", Float, nullable=False),
    Column("part_sums", Text, nullable=False),
    Column("recent", Float, nullable=False),
    Column("recent_at", Float, nullable=False),
)
"""Counts per environment, updated by every write, so that nothing is counted by scanning.

`released` (by cause) and `part_sums` (by reward part) are JSON; `served` is its virtual time in the fair queue;
`recent` arrivals decay with time and give the rate.
"""
