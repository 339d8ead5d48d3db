"""Rewards of what was served: written once with all their evidence; the newest of a trajectory holds."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Index, func, select

from loomrl.store.db import LoomDB
from loomrl.store.events import EVENTS, Event
from loomrl.store.log import SLICE, Log, Source, fetch, scalar, scalars, slices, writing


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


REWARDS = Log(
    "rewards",
    StoredReward,
    Index("rewards_by_endpoint", "endpoint", "position"),
    Index("rewards_by_task", "endpoint", "task", "position"),
    index=("trajectory",),
)


def store_rewards(target: Source, new: Sequence[StoredReward]) -> list[StoredReward]:
    """Store rewards, all or none; those that were new. Each is an event `reward.made`.

    An id that is stored already stays as it is: it stands for the same trajectory, judged on the same grounds.
    """
    with writing(target) as connection:
        known = set(find_rewards(connection, [one.id for one in new]))
        fresh = list({one.id: one for one in reversed(new) if one.id not in known}.values())[::-1]
        REWARDS.insert(connection, fresh)
        EVENTS.insert(connection, [_event(one) for one in fresh])
    return fresh


def find_replaced(db: LoomDB, after: int, upto: int) -> dict[int, int]:
    """Rewards past one position and up to another that replaced an earlier one: position → its position."""
    table = REWARDS.table
    earlier = table.alias()
    same = (earlier.c.trajectory == table.c.trajectory) & (earlier.c.position < table.c.position)
    replaced = select(func.max(earlier.c.position)).where(same).scalar_subquery().label("replaced")
    query = select(table.c.position, replaced).where(table.c.position > after, table.c.position <= upto)
    return {row["position"]: row["replaced"] for row in fetch(db, query) if row["replaced"] is not None}


def first_scores(db: LoomDB, endpoint: str, *, after: int, limit: int) -> list[tuple[int, Mapping[str, float]]]:
    """The next rewards past a position: the scores that were the first of their trajectory."""
    return [(at, one.first) for at, one in REWARDS.read(db, after=after, limit=limit, endpoint=endpoint)]


def rewards_of(db: LoomDB, trajectory: str) -> list[StoredReward]:
    """All rewards of a trajectory, oldest first: the last one holds."""
    return REWARDS.fetch(db, REWARDS.select(trajectory=trajectory).order_by(REWARDS.c.position))


def find_rewards(source: Source, ids: Collection[str]) -> dict[str, StoredReward]:
    """Rewards by their ids; those that are not there are left out."""
    queries = [REWARDS.select().where(REWARDS.c.id.in_(some)) for some in slices(ids)]
    return {one.id: one for query in queries for one in REWARDS.fetch(source, query)}


def latest_rewards(db: LoomDB, trajectories: Collection[str]) -> dict[str, StoredReward]:
    """The reward that holds, by trajectory; those without any are left out."""
    found: dict[str, StoredReward] = {}
    for ids in slices(trajectories):
        query = REWARDS.select().where(REWARDS.c.trajectory.in_(ids)).order_by(REWARDS.c.position)
        found |= {one.trajectory: one for one in REWARDS.fetch(db, query)}
    return found


def find_judged(db: LoomDB, trajectories: Collection[str], *, position: int) -> set[str]:
    """Those of these trajectories that have a reward before a position."""
    query = select(REWARDS.c.trajectory).where(REWARDS.c.position < position).distinct()
    return {id for ids in slices(trajectories) for id in scalars(db, query.where(REWARDS.c.trajectory.in_(ids)))}


def reward_before(db: LoomDB, endpoint: str, at: float) -> int:
    """The position of an endpoint's last reward before a time; 0 without any."""
    query = select(func.max(REWARDS.c.position)).where(REWARDS.c.endpoint == endpoint, REWARDS.c.created_at < at)
    return int(scalar(db, query) or 0)


def rewards_since(db: LoomDB, endpoint: str, at: float) -> list[StoredReward]:
    """The rewards that hold of the trajectories that were judged since a time, newest first."""
    found: dict[str, StoredReward] = {}
    before: int | None = None
    while page := REWARDS.recent(db, before=before, limit=SLICE, endpoint=endpoint):
        for position, one in page:
            if one.created_at < at:
                return list(found.values())
            found.setdefault(one.trajectory, one)
            before = position
    return list(found.values())


def are_there(db: LoomDB, endpoint: str, *, after: int, count: int) -> bool:
    """True if so many rewards of an endpoint follow a position."""
    query = select(REWARDS.c.position).where(REWARDS.c.endpoint == endpoint, REWARDS.c.position > after)
    return scalar(db, query.order_by(REWARDS.c.position).offset(count - 1).limit(1)) is not None


def newest_rewards(db: LoomDB, endpoint: str, *, limit: int, task: str | None = None) -> list[tuple[int, StoredReward]]:
    """The rewards that hold of the trajectories judged last, at most `limit` of them, oldest first."""
    found: dict[str, tuple[int, StoredReward]] = {}
    before: int | None = None
    while len(found) < limit and (page := REWARDS.recent(db, before=before, limit=limit, endpoint=endpoint, task=task)):
        for position, one in page:
            if len(found) < limit:
                found.setdefault(one.trajectory, (position, one))
            before = position
    return list(found.values())[::-1]


def _event(one: StoredReward) -> Event:
    about = {"trajectory": one.trajectory, "endpoint": one.endpoint, "total": one.total, "confidence": one.confidence}
    return Event(kind="reward.made", subject=one.id, data=about, created_at=one.created_at)
