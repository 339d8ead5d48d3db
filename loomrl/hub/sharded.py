"""One hub over several databases: every group lives whole in one of them, chosen by the hash of its id.

A cursor holds one position per shard. A lease may span shards; its first shard decides what becomes of it. An ack pins
the other parts, is decided there, and then carried out; the next question finishes what a crash left pinned.
"""

import uuid
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from typing_extensions import override

from loomrl.errors import LeaseLost
from loomrl.hub.codec import decode_all
from loomrl.hub.hub import (
    EVERYTHING,
    POSITION_BITS,
    GroupPlan,
    Hub,
    HubStats,
    Lease,
    Ready,
    Selection,
    Shard,
    check_counts,
    check_page,
    merge,
)
from loomrl.types import NO_VERSION, Trajectory

T = TypeVar("T")


class ShardedHub(Hub):
    """The hub over its shards. They must stay the same ones, in the same order."""

    def __init__(self, shards: Sequence[Shard], *, new_id: Callable[[], str] = lambda: uuid.uuid4().hex) -> None:
        self._shards = tuple(shards)
        self._new_id = new_id
        self._threads = ThreadPoolExecutor(len(shards), thread_name_prefix="hub-shard")

    @override
    def append(self, trajectories: Sequence[Trajectory | bytes | memoryview]) -> list[int]:
        decoded = decode_all(trajectories)
        parts = self._parts(decoded, attrgetter("group"))
        if len(parts) > 1:  # all of them or none, though they go to different databases
            for index, part in parts.items():
                self._shards[index].check(part)
        stored = self._threads.map(lambda index: self._shards[index].append(parts[index]), parts)
        cursors = {
            trajectory.id: position << POSITION_BITS * index
            for index, positions in zip(parts, stored, strict=True)
            for trajectory, position in zip(parts[index], positions, strict=True)
        }
        return [cursors[trajectory.id] for trajectory in decoded]

    @override
    def open(self, plans: Sequence[GroupPlan]) -> list[str]:
        admitted: list[str] = []
        for index, part in self._parts(plans, attrgetter("id")).items():
            others = [shard for shard in self._shards if shard is not self._shards[index]]
            elsewhere = sum(shard.stats(version=max(plan.version for plan in plans)).occupied for shard in others)
            admitted += self._shards[index].admit(part, elsewhere=elsewhere)
        return admitted

    @override
    def lease(
        self,
        count: int,
        *,
        version: int,
        consumer: str,
        at_least: int = 1,
        lease_id: str | None = None,
        groups: Sequence[str] | None = None,
    ) -> Lease:
        check_counts(count, at_least)
        self._finish_acks()
        id = self._new_id() if lease_id is None else lease_id
        shards = self._holders(id)
        if shards:
            parts = [shard.lease(count, version=version, consumer=consumer, lease_id=id) for shard in shards]
            return _in_order(self._join(id, parts, at_least=1), groups)
        named = None if groups is None else self._parts(groups, str)
        names = [None if named is None else named.get(index, []) for index in range(len(self._shards))]
        both = list(zip(self._shards, names, strict=True))
        waiting = [shard.available(version=version, groups=names) for shard, names in both]
        if sum(waiting) < at_least:
            return Lease(id, (), 0.0)
        parts = [
            shard.lease(part, version=version, consumer=consumer, lease_id=id, groups=names)
            for (shard, names), part in zip(both, divide(count, waiting), strict=True)
            if part
        ]
        return _in_order(self._join(id, parts, at_least=at_least), groups)

    @override
    def ready(self, *, limit: int = 1000) -> list[Ready]:
        self._finish_acks()
        everywhere = [group for shard in self._shards for group in shard.ready(limit=limit)]
        return sorted(everywhere, key=attrgetter("opened_at"))[:limit]

    @override
    def renew(self, lease_id: str) -> float:
        try:
            return min(shard.renew(lease_id) for shard in self._deciders(lease_id))
        except LeaseLost:
            self.release(lease_id)
            raise

    @override
    def release(self, lease_id: str) -> None:
        first, *others = self._deciders(lease_id)
        first.release(lease_id)
        if first.lease_state(lease_id)[0] != "acked":
            for shard in others:
                shard.release(lease_id)

    @override
    def ack(self, lease_id: str, *, version: int) -> None:
        first, *others = self._deciders(lease_id)
        try:
            for shard in others:
                shard.pin(lease_id)
            first.ack(lease_id, version=version)
        except LeaseLost:
            self.release(lease_id)
            raise
        for shard in others:
            shard.ack(lease_id, version=version)

    @override
    def read(
        self, after: int = 0, *, limit: int = 100, selection: Selection = EVERYTHING
    ) -> list[tuple[int, Trajectory]]:
        page: list[tuple[int, Trajectory]] = []
        check_page(after >> POSITION_BITS * len(self._shards), limit)
        positions = [after >> (POSITION_BITS * index) & (1 << POSITION_BITS) - 1 for index in range(len(self._shards))]
        for index in sorted(range(len(positions)), key=positions.__getitem__):
            rows = self._shards[index].read(positions[index], limit=limit - len(page), selection=selection)
            for position, trajectory in rows:
                after += position - positions[index] << POSITION_BITS * index
                positions[index] = position
                page.append((after, trajectory))
            if len(page) == limit:
                break
        return page

    @override
    def delete(self, ids: Sequence[str]) -> list[str]:
        return [id for part in self._threads.map(lambda shard: shard.delete(ids), self._shards) for id in part]

    @override
    def stats(self, *, version: int = NO_VERSION) -> HubStats:
        self._finish_acks()
        return merge([shard.stats(version=version) for shard in self._shards])

    @override
    def close(self) -> None:
        self._threads.shutdown()
        for shard in self._shards:
            shard.close()

    def _parts(self, items: Sequence[T], group: Callable[[T], str]) -> dict[int, list[T]]:
        """The items by the shard that their group lives in."""
        parts: dict[int, list[T]] = {}
        for item in items:
            parts.setdefault(zlib.crc32(group(item).encode()) % len(self._shards), []).append(item)
        return parts

    def _join(self, id: str, parts: Sequence[Lease], *, at_least: int) -> Lease:
        """One lease of its parts; nothing at all if other consumers left too little meanwhile."""
        groups = tuple(group for part in parts for group in part.groups)
        if len(groups) >= at_least:
            return Lease(id, groups, min(part.expires_at for part in parts))
        for shard in self._holders(id):
            shard.release(id)
        return Lease(id, (), 0.0)

    def _holders(self, lease_id: str) -> list[Shard]:
        """The shards that have a part of the lease, or had."""
        return [shard for shard in self._shards if shard.lease_state(lease_id)[0]]

    def _deciders(self, lease_id: str) -> list[Shard]:
        """The holders, the one that decides first; for an unknown lease a shard that will say so."""
        return self._holders(lease_id) or [self._shards[0]]

    def _finish_acks(self) -> None:
        """Carry out what a crash left pinned, or give it back."""
        for lease_id in [lease_id for shard in self._shards for lease_id in shard.undecided()]:
            self._decide(lease_id)

    def _decide(self, lease_id: str) -> None:
        """Finish an ack that a crash cut in two, as its first shard decided."""
        first, *others = self._deciders(lease_id)
        state, version = first.lease_state(lease_id)
        for shard in others:
            if state == "acked" and version is not None:
                shard.ack(lease_id, version=version)
            elif state != "held":
                shard.release(lease_id)


def _in_order(lease: Lease, names: Sequence[str] | None) -> Lease:
    if names is None:
        return lease
    return replace(lease, groups=tuple(sorted(lease.groups, key=lambda group: names.index(group.id))))


def divide(count: int, waiting: Sequence[int]) -> list[int]:
    """`count` groups over the shards in proportion to what waits there, and never more than that."""
    total = sum(waiting)
    count = min(count, total)
    ends = [sum(waiting[: index + 1]) * count // max(total, 1) for index in range(len(waiting))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
