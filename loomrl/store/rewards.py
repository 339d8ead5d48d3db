"""Rewards of what was served: written once with all their evidence; the newest of a trajectory holds."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select

from loomrl.store.db import LoomDB
from loomrl.store.events import Event, record_all
from loomrl.store.rows import Row, columns_of, from_json, to_json
from loomrl.store.tables import rewards

AT_ONCE = 1000
"""Ids in one question: both databases have a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReward:
    """A reward of a trajectory, from the pipeline (`loomrl.feedback.reward`)."""

    id: str
    """A UUID, made from the trajectory and from what the reward is based on."""
    trajectory: str
    endpoint: str
    task: str
    """The type of its task: what its turns and tokens are compared with."""
    total: float
    confidence: float
    """The share of the weights for which there was evidence."""
    first: Mapping[str, float] = field(default_factory=dict)
    """The scores of components that had none of this trajectory before."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """Every component with its score, weight, reasoning and evidence."""
    created_at: float


def append_rewards(db: LoomDB, new: Sequence[StoredReward]) -> int:
    """Store rewards, all or none, and return how many were new; each is an event `reward.made`."""
    with db.write() as connection:
        return len(store_rewards(connection, new))


def store_rewards(connection: Connection, new: Sequence[StoredReward]) -> list[StoredReward]:
    """Store rewards in the transaction of whoever made them; those that were new.

    An id that is stored already stays as it is: it stands for the same trajectory, judged on the same grounds.
    """
    known = _known(connection, [one.id for one in new])
    fresh = list({one.id: one for one in reversed(new) if one.id not in known}.values())[::-1]
    if fresh:
        connection.execute(insert(rewards), [_row(one) for one in fresh])
        record_all(connection, [_event(one) for one in fresh])
    return fresh


def read_rewards(
    db: LoomDB, *, after: int = 0, limit: int = 1000, endpoint: str | None = None
) -> list[tuple[int, StoredReward]]:
    """The next rewards past a position, oldest first. Continue reading from the last one's position."""
    query = select(rewards).where(rewards.c.position > after).order_by(rewards.c.position).limit(limit)
    if endpoint is not None:
        query = query.where(rewards.c.endpoint == endpoint)
    return _read(db, query)


def replaced_between(db: LoomDB, after: int, upto: int) -> dict[int, int]:
    """Of the rewards past one position and up to another: position → that of the reward that it took the place of."""
    earlier = rewards.alias()
    same = (earlier.c.trajectory == rewards.c.trajectory) & (earlier.c.position < rewards.c.position)
    query = select(rewards.c.position, select(func.max(earlier.c.position)).where(same).scalar_subquery())
    with db.read() as connection:
        rows = connection.execute(query.where(rewards.c.position > after, rewards.c.position <= upto)).all()
    return {position: replaced for position, replaced in rows if replaced is not None}


def list_rewards(db: LoomDB, *, limit: int = 50, endpoint: str | None = None) -> list[StoredReward]:
    """The latest rewards, newest first."""
    query = select(rewards).order_by(rewards.c.position.desc()).limit(limit)
    if endpoint is not None:
        query = query.where(rewards.c.endpoint == endpoint)
    return [one for _, one in _read(db, query)]


def first_scores(db: LoomDB, endpoint: str, *, after: int, limit: int) -> list[tuple[int, dict[str, float]]]:
    """Of the next rewards past a position: the scores that were the first of their trajectory."""
    query = select(rewards.c.position, rewards.c.first).where(rewards.c.endpoint == endpoint)
    query = query.where(rewards.c.position > after).order_by(rewards.c.position).limit(limit)
    with db.read() as connection:
        return [(row.position, from_json(row.first)) for row in connection.execute(query)]


def rewards_of(db: LoomDB, trajectory: str) -> list[StoredReward]:
    """All rewards of a trajectory, oldest first: the last one holds."""
    query = select(rewards).where(rewards.c.trajectory == trajectory).order_by(rewards.c.position)
    return [one for _, one in _read(db, query)]


def find_rewards(db: LoomDB, ids: Collection[str]) -> dict[str, StoredReward]:
    """Rewards by their ids; those that are not there are left out."""
    queries = [select(rewards).where(rewards.c.id.in_(some)) for some in _slices(ids)]
    return {one.id: one for query in queries for _, one in _read(db, query)}


def latest_rewards(db: LoomDB, trajectories: Collection[str]) -> dict[str, StoredReward]:
    """The reward that holds, by trajectory; those without any are left out."""
    found: dict[str, StoredReward] = {}
    for ids in _slices(trajectories):
        query = select(rewards).where(rewards.c.trajectory.in_(ids)).order_by(rewards.c.position)
        found |= {one.trajectory: one for _, one in _read(db, query)}
    return found


def judged_before(db: LoomDB, trajectories: Collection[str], *, position: int) -> set[str]:
    """Those of these trajectories that have a reward before a position."""
    found: set[str] = set()
    for ids in _slices(trajectories):
        query = select(rewards.c.trajectory).where(rewards.c.trajectory.in_(ids), rewards.c.position < position)
        with db.read() as connection:
            found |= set(connection.scalars(query.distinct()))
    return found


def last_reward(connection: Connection, endpoint: str) -> int:
    """The position of an endpoint's newest reward; 0 without any."""
    query = select(func.max(rewards.c.position)).where(rewards.c.endpoint == endpoint)
    return int(connection.scalar(query) or 0)


def reward_before(db: LoomDB, endpoint: str, at: float) -> int:
    """The position of an endpoint's last reward before a time; 0 without any."""
    mine = (rewards.c.endpoint == endpoint, rewards.c.created_at < at)
    with db.read() as connection:
        return int(connection.scalar(select(func.max(rewards.c.position)).where(*mine)) or 0)


def rewards_since(db: LoomDB, endpoint: str, at: float) -> list[StoredReward]:
    """The rewards that hold of the trajectories that were judged since a time, newest first."""
    found: dict[str, StoredReward] = {}
    before: int | None = None
    while page := _read(db, _backwards(endpoint, None, before, AT_ONCE)):
        for position, one in page:
            if one.created_at < at:
                return list(found.values())
            found.setdefault(one.trajectory, one)
            before = position
    return list(found.values())


def are_there(db: LoomDB, endpoint: str, *, after: int, count: int) -> bool:
    """True if so many rewards of an endpoint follow a position."""
    query = select(rewards.c.position).where(rewards.c.endpoint == endpoint, rewards.c.position > after)
    with db.read() as connection:
        query = query.order_by(rewards.c.position).offset(count - 1).limit(1)
        return connection.execute(query).first() is not None


def newest_rewards(db: LoomDB, endpoint: str, *, limit: int, task: str | None = None) -> list[tuple[int, StoredReward]]:
    """The rewards that hold of the trajectories judged last, at most `limit` of them, oldest first."""
    found: dict[str, tuple[int, StoredReward]] = {}
    before: int | None = None
    while len(found) < limit and (page := _read(db, _backwards(endpoint, task, before, limit))):
        for position, one in page:
            if len(found) < limit:
                found.setdefault(one.trajectory, (position, one))
            before = position
    return list(found.values())[::-1]


def forget_rewards(db: LoomDB, trajectories: Collection[str]) -> int:
    """Delete all rewards of these trajectories; how many."""
    deleted = 0
    for ids in _slices(trajectories):
        with db.write() as connection:
            deleted += connection.execute(delete(rewards).where(rewards.c.trajectory.in_(ids))).rowcount
    return deleted


def _known(connection: Connection, ids: Sequence[str]) -> set[str]:
    queries = [select(rewards.c.id).where(rewards.c.id.in_(some)) for some in _slices(ids)]
    return {id for query in queries for id in connection.scalars(query)}


def _slices(ids: Collection[str]) -> Iterator[list[str]]:
    rest = list(ids)
    while rest:
        yield rest[:AT_ONCE]
        rest = rest[AT_ONCE:]


def _backwards(endpoint: str, task: str | None, before: int | None, limit: int) -> Select[tuple[Any, ...]]:
    query = select(rewards).where(rewards.c.endpoint == endpoint).order_by(rewards.c.position.desc()).limit(limit)
    if task is not None:
        query = query.where(rewards.c.task == task)
    return query if before is None else query.where(rewards.c.position < before)


def _row(one: StoredReward) -> dict[str, Any]:
    texts = {name: to_json(getattr(one, name), what=f"reward {one.id!r}: {name}") for name in ("first", "content")}
    return columns_of(one) | texts


def _event(one: StoredReward) -> Event:
    about = {"trajectory": one.trajectory, "endpoint": one.endpoint, "total": one.total, "confidence": one.confidence}
    return Event(kind="reward.made", subject=one.id, data=about, created_at=one.created_at)


def _read(db: LoomDB, query: Select[tuple[Any, ...]]) -> list[tuple[int, StoredReward]]:
    with db.read() as connection:
        return [_reward_of(row) for row in connection.execute(query).mappings()]


def _reward_of(row: Row) -> tuple[int, StoredReward]:
    columns = dict(row) | {name: from_json(row[name]) for name in ("first", "content")}
    return columns.pop("position"), StoredReward(**columns)
