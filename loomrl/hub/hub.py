"""The contract of a hub. The same in process, sharded, as a Ray actor and over HTTP; safe to call from any thread.

Exactly-once training, for a consumer: stage checkpoint n together with the lease's id, then `ack(lease, version=n)`,
and believe checkpoint n only once the ack returned. After a crash ack again: it returns if the first ack arrived, and
raises LeaseLost if the groups went back – then continue from checkpoint n - 1.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import mul

from loomrl.errors import HubError
from loomrl.process import Closing
from loomrl.types import NO_VERSION, Group, Source, Trajectory


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group that is about to be attempted: `size` attempts by policy `version`."""

    id: str
    environment: str
    size: int
    version: int = NO_VERSION


@dataclass(frozen=True, slots=True)
class Ready:
    """A group that can be leased now."""

    id: str
    environment: str
    size: int
    opened_at: float


@dataclass(frozen=True, slots=True)
class Lease:
    """Groups that are this consumer's alone until `expires_at`. One without groups needs no ack."""

    id: str
    groups: tuple[Group, ...]
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The stored trajectories to read; bounds are inclusive, None takes all.

    `acked=True` takes what was trained on, False what was not. Versions are compared with `first_version`.
    """

    acked: bool | None = None
    environment: str | None = None
    family: str | None = None
    source: Source | None = None
    run: str | None = None
    level: tuple[int | None, int | None] = (None, None)
    success: tuple[float | None, float | None] = (None, None)
    version: tuple[int | None, int | None] = (None, None)
    stored: tuple[float | None, float | None] = (None, None)
    """When the hub took it in, in seconds since 1970."""
    ids: tuple[str, ...] | None = None


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentStats:
    """One environment's counters in the hub. Groups are counted by state, attempts since the beginning.

    Means are over the attempts that did not fail; `rate` is attempts per second over about the last minute.
    """

    weight: float
    min_share: float
    open: int
    ready: int
    leased: int
    acked: int
    released: Mapping[str, int]
    trajectories: int
    failures: int
    late: int
    tokens: int
    success: float
    reward: float
    parts: Mapping[str, float]
    rate: float


@dataclass(frozen=True, slots=True)
class HubStats:
    """The hub's content by environment, and its capacity of groups in flight (open, ready or leased).

    `leaving` of those in flight will only be released: they are overdue, or stale at the version that was asked for.
    """

    environments: Mapping[str, EnvironmentStats] = field(default_factory=dict)
    capacity: int = 0
    leaving: int = 0

    @property
    def in_flight(self) -> int:
        """Groups that are open, ready or leased."""
        return sum(stats.open + stats.ready + stats.leased for stats in self.environments.values())

    @property
    def ready(self) -> int:
        """Groups that can be leased now."""
        return sum(stats.ready for stats in self.environments.values())

    @property
    def occupied(self) -> int:
        """Groups in flight, without those that are leaving."""
        return self.in_flight - self.leaving

    @property
    def room(self) -> int:
        """Groups that may start now such that none is stale before its turn."""
        return max(self.capacity - self.occupied, 0)


def merge(parts: Sequence[HubStats]) -> HubStats:
    """The statistics of several shards as one."""
    found: dict[str, list[EnvironmentStats]] = {}
    for part in parts:
        for name, stats in part.environments.items():
            found.setdefault(name, []).append(stats)
    environments = {name: _sum(same) for name, same in found.items()}
    return HubStats(environments, parts[0].capacity, sum(part.leaving for part in parts))


def _sum(same: Sequence[EnvironmentStats]) -> EnvironmentStats:
    judged = [stats.trajectories - stats.failures for stats in same]

    def mean(values: Sequence[float]) -> float:
        total: float = sum(map(mul, values, judged))
        return total / max(sum(judged), 1)

    counted = ("open", "ready", "leased", "acked", "trajectories", "failures", "late", "tokens", "rate")
    causes = {cause for stats in same for cause in stats.released}
    parts = {part for stats in same for part in stats.parts}
    return replace(
        same[0],
        **{name: sum(getattr(stats, name) for stats in same) for name in counted},
        released={cause: sum(stats.released.get(cause, 0) for stats in same) for cause in causes},
        success=mean([stats.success for stats in same]),
        reward=mean([stats.reward for stats in same]),
        parts={part: mean([stats.parts.get(part, 0.0) for stats in same]) for part in parts},
    )


class Hub(Closing):
    """A durable queue of groups: idempotent append, lease → ack → gone, bounded staleness, fair shares, replay.

    Expired leases are taken back and groups whose time is up are decided at each call for groups or counts.
    """

    @abstractmethod
    def append(self, trajectories: Sequence[Trajectory | bytes | memoryview]) -> list[int]:
        """Store them durably and return their cursors; a repeated id with equal content returns its first cursor.

        A repeated id with other content raises Conflict, and nothing of the call is stored. A group that was not opened
        is opened by its first trajectory. One that comes after its group was decided is kept as late. What is encoded
        already (`loomrl.hub.codec`) is stored as it is.
        """

    @abstractmethod
    def open(self, plans: Sequence[GroupPlan]) -> list[str]:
        """Announce groups before their attempts start; the ids admitted now. A repeated plan is admitted again.

        At most `groups_per_update * (max_staleness + 1)` groups are in flight. So the group admitted last is trained,
        at the latest, in the update that many updates ahead, exactly `max_staleness` versions after it started.
        """

    @abstractmethod
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
        """Up to `count` ready groups to train policy `version` on; none at all if fewer than `at_least` are ready.

        Environments take turns by weight and minimum share, oldest group first within each; or only the named
        `groups` are leased, in the order of the names. A group whose oldest policy version is more than
        `max_staleness` behind is released instead. A repeated `lease_id` that is still held gives the same lease
        again; one that ended raises LeaseLost.
        """

    @abstractmethod
    def ready(self, *, limit: int = 1000) -> list[Ready]:
        """The groups that can be leased now, oldest first over all environments."""

    @abstractmethod
    def renew(self, lease_id: str) -> float:
        """Hold the lease for another full term; the new expiry. LeaseLost if it is not held any more."""

    @abstractmethod
    def release(self, lease_id: str) -> None:
        """Give the groups back now. Without effect on a lease that ended already."""

    @abstractmethod
    def ack(self, lease_id: str, *, version: int) -> None:
        """The commit point of training: these groups went into policy `version` and are gone. Repeating it is harmless.

        LeaseLost if the groups went back meanwhile.
        """

    @abstractmethod
    def read(
        self, after: int = 0, *, limit: int = 100, selection: Selection = EVERYTHING
    ) -> list[tuple[int, Trajectory]]:
        """The next stored trajectories behind a cursor, with their cursors, in commit order; empty at the end."""

    @abstractmethod
    def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete these trajectories for good; the ids of those that were there.

        No cursor is used again. A group that loses an attempt before it was trained on is released with the cause
        `deleted`; a lease goes on with its other groups. Counts of what came in stay as they are.
        """

    @abstractmethod
    def stats(self, *, version: int = NO_VERSION) -> HubStats:
        """Counts and means by environment, as of now, and the room for groups that start at policy `version`."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is being written and give every resource back."""

    def replay(
        self, *, selection: Selection = Selection(acked=True), after: int = 0, page: int = 100
    ) -> Iterator[tuple[int, Trajectory]]:
        """Every stored trajectory of the selection, with its cursor; one page in memory at a time."""
        while batch := self.read(after, limit=page, selection=selection):
            yield from batch
            after = batch[-1][0]


MOST_AT_ONCE = 10_000
"""Trajectories of one append, groups of one lease."""
POSITION_BITS = 48
"""Bits of one shard's position in a cursor; a cursor of several shards holds one position of each."""


class Shard(Hub):
    """A hub that can be one of several: it tells how full it is, and takes part in acks that are decided elsewhere."""

    @abstractmethod
    def share(self, environment: str, *, weight: float = 1.0, min_share: float = 0.0) -> None:
        """Set this environment's share of leased groups, from now on. New ones have weight 1."""

    @abstractmethod
    def check(self, trajectories: Sequence[Trajectory]) -> None:
        """Raise what `append` would raise, and store nothing."""

    @abstractmethod
    def admit(self, plans: Sequence[GroupPlan], *, elsewhere: int) -> list[str]:
        """`open`, while so many groups are in flight in other shards."""

    @abstractmethod
    def available(self, *, version: int, groups: Sequence[str] | None = None) -> int:
        """The number of groups, or of those named, that `lease` could hand out at this version."""

    @abstractmethod
    def pin(self, lease_id: str) -> None:
        """First step of an ack that spans shards: the lease cannot expire until it is acked or released."""

    @abstractmethod
    def undecided(self) -> list[str]:
        """Leases that are pinned past their expiry, perhaps by a dead process. Others that expired are ended."""

    @abstractmethod
    def lease_state(self, lease_id: str) -> tuple[str, int | None]:
        """The state of a lease and the version it was acked into; the state is empty for an unknown one."""


def check_counts(count: int, at_least: int) -> None:
    """HubError for a lease that asks for no sensible number of groups."""
    if not 1 <= at_least <= count <= MOST_AT_ONCE:
        raise HubError(f"lease: 1 <= at_least={at_least} <= count={count} <= {MOST_AT_ONCE} is needed.")


def check_page(after: int, limit: int) -> None:
    """HubError for a page that cannot be read."""
    if limit < 1 or not 0 <= after < 1 << POSITION_BITS:
        raise HubError(f"read: after={after} is no cursor of this hub, or limit={limit} is not at least 1.")
