"""The contract of a hub that is one of several shards."""

from abc import abstractmethod
from collections.abc import Sequence

from loomrl.errors import HubError
from loomrl.hub.hub import GroupPlan, Hub
from loomrl.types import Trajectory

MOST_AT_ONCE = 10_000
"""Trajectories of one append, groups of one lease."""
POSITION_BITS = 48
"""Of a cursor; a cursor of several shards holds one position of each."""


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
        """Leases that are pinned past their expiry: whoever pinned them may be gone. Others that expired are ended."""

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
