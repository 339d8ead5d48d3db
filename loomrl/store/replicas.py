"""Replicas: the processes that serve now, where they are reached, and when each was last heard of.

Times are the database's own on PostgreSQL, so that the clocks of machines need not agree.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlalchemy import delete, insert, select, update

from loomrl.store.db import LoomDB, now
from loomrl.store.log import Records, scalars

BEAT_S = 4.0
"""Time between two signs of life: each is a commit, after which all that follow LoomDB look."""
DEAD_S = 15.0
"""A replica that was silent this long is taken for dead, unless a connection to it holds."""
GONE_S = 60.0
"""A replica that was silent this long is gone."""


class ReplicaRole(StrEnum):
    """The part that a process has in serving."""

    POLICY = "policy"
    GATEWAY = "gateway"
    FRONT = "front"
    COORDINATOR = "coordinator"
    BUS = "bus"
    TRAINER = "trainer"


class ReplicaState(StrEnum):
    """A draining replica finishes open calls and gets no new ones; one that failed could not be opened."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A process that serves, or works beside those that do; one that serves several policies has a row for each."""

    id: str
    role: ReplicaRole
    policy: str = ""
    """Key of the policy it serves, as arms name it; of a trainer its run; else empty."""
    version: str = ""
    """Id of the policy version it holds now."""
    endpoint: str = ""
    """The endpoint of a gateway or front."""
    address: str
    """The address it is reached at: `host:port`, of a front with TLS `https://host:port`."""
    node: str
    """Host name of its machine."""
    pid: int
    state: ReplicaState = ReplicaState.STARTING
    error: str = ""
    """Why it failed."""
    started_at: float = 0.0
    beat_at: float = 0.0

    @property
    def is_up(self) -> bool:
        """False if it has only an error to report."""
        return self.state is not ReplicaState.FAILED


REPLICAS = Records("replicas", Replica, index=("policy",))


def url_of(address: str) -> str:
    """The address of a process as a URL."""
    return address if "://" in address else f"http://{address}"


def beat(db: LoomDB, replica: Replica) -> Replica:
    """Record that the replica lives and what it serves; a row that was taken for dead is there again."""
    with db.write() as connection:
        at = now(db, connection)
        alive = replace(replica, started_at=replica.started_at or at, beat_at=at)
        row = REPLICAS.row(alive)
        if not connection.execute(update(REPLICAS.table).where(REPLICAS.c.id == alive.id).values(**row)).rowcount:
            connection.execute(insert(REPLICAS.table).values(**row))
    return alive


def leave(db: LoomDB, id: str) -> None:
    """Remove a replica that ends."""
    with db.write() as connection:
        connection.execute(delete(REPLICAS.table).where(REPLICAS.c.id == id))


def live_replicas(
    db: LoomDB,
    *,
    role: ReplicaRole | None = None,
    endpoint: str | None = None,
    policies: Iterable[str] | None = None,
    dead_s: float = DEAD_S,
) -> list[Replica]:
    """The replicas that were heard of lately, the eldest first."""
    return [row for row, _ in aged_replicas(db, role=role, endpoint=endpoint, policies=policies, dead_s=dead_s)]


def aged_replicas(
    db: LoomDB,
    *,
    role: ReplicaRole | None = None,
    endpoint: str | None = None,
    policies: Iterable[str] | None = None,
    dead_s: float = GONE_S,
) -> list[tuple[Replica, float]]:
    """The same with the seconds since each was heard of."""
    query = REPLICAS.select(role=role, endpoint=endpoint).order_by(REPLICAS.c.started_at, REPLICAS.c.id)
    if policies is not None:
        query = query.where(REPLICAS.c.policy.in_(list(policies)))
    with db.read() as connection:
        at = now(db, connection)
        rows = REPLICAS.fetch(connection, query.where(REPLICAS.c.beat_at > at - dead_s))
    return [(row, at - row.beat_at) for row in rows]


def front_of(db: LoomDB, endpoint: str) -> str | None:
    """The URL at which an endpoint is served; None if it is not."""
    fronts = live_replicas(db, role=ReplicaRole.FRONT, endpoint=endpoint)
    return url_of(fronts[0].address) if fronts else None


def bury(db: LoomDB, *, dead_s: float = GONE_S) -> list[str]:
    """Remove the rows of those that are gone, and return their ids. It writes only if there are any."""
    with db.read() as connection:
        since = now(db, connection) - dead_s
        dead = scalars(connection, select(REPLICAS.c.id).where(REPLICAS.c.beat_at <= since))
    if not dead:
        return []
    with db.write() as connection:
        silent = REPLICAS.c.id.in_(dead) & (REPLICAS.c.beat_at <= since)
        return list(connection.scalars(delete(REPLICAS.table).where(silent).returning(REPLICAS.c.id)))
