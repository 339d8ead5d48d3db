"""The hub over one database."""

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlalchemy import Connection, func, select
from typing_extensions import override

from loomrl.config import HubConfig
from loomrl.errors import HubError
from loomrl.hub import lending, query
from loomrl.hub.codec import decode_all, encode
from loomrl.hub.commit import Committer
from loomrl.hub.hub import (
    EVERYTHING,
    MOST_AT_ONCE,
    GroupPlan,
    HubStats,
    Lease,
    Ready,
    Selection,
    Shard,
    check_counts,
    check_page,
)
from loomrl.hub.intake import Intake, Parcel, check_name, check_number, parcel
from loomrl.hub.ledger import ALL_COUNTERS, Counters, LeaseLedger
from loomrl.hub.lending import Loan, check_ids, delete_trajectories
from loomrl.store.db import LoomDB
from loomrl.store.hub_tables import groups, leases
from loomrl.types import NO_VERSION, Trajectory

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Promises:
    """A hub's guarantees: the settings, and the number of groups in one update of the learner."""

    settings: HubConfig
    groups_per_update: int

    @property
    def capacity(self) -> int:
        """Groups that may be in flight.

        Groups are trained oldest first, `groups_per_update` at a time. With no more than this many in flight, a group
        that starts at version v is trained by the update that starts from version v + max_staleness at the latest.
        """
        return self.groups_per_update * (self.settings.max_staleness + 1)

    def floor(self, version: int) -> int:
        """The oldest policy version that may still be trained on."""
        return version - self.settings.max_staleness


class LocalHub(Shard):
    """A hub over one LoomDB, in this process. Several processes may open the same database."""

    def __init__(
        self,
        db: LoomDB,
        promises: Promises,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._db = db
        self._promises = promises
        self._clock = clock
        self._new_id = new_id
        self._committer = Committer(db, clock)

    @override
    def append(self, trajectories: Sequence[Trajectory | bytes | memoryview]) -> list[int]:
        if len(trajectories) > MOST_AT_ONCE:
            raise HubError(f"append: {len(trajectories)} trajectories, at most {MOST_AT_ONCE} at once.")
        parcels = [
            parcel(decoded, encode(decoded) if isinstance(given, Trajectory) else given)
            for decoded, given in zip(decode_all(trajectories), trajectories, strict=True)
        ]
        return self._committer.run_together(self._take_in, parcels) if parcels else []

    @override
    def check(self, trajectories: Sequence[Trajectory]) -> None:
        parcels = [parcel(trajectory, encode(trajectory)) for trajectory in trajectories]
        self._committer.run(lambda ledger: self._intake(ledger).check(parcels))

    @override
    def open(self, plans: Sequence[GroupPlan]) -> list[str]:
        return self.admit(plans, elsewhere=0)

    @override
    def admit(self, plans: Sequence[GroupPlan], *, elsewhere: int) -> list[str]:
        for plan in plans:
            _check(plan)

        def job(ledger: LeaseLedger) -> list[str]:
            self._clear(ledger, max(plan.version for plan in plans))
            room = self._promises.capacity - elsewhere - _in_flight(ledger.environments.values())
            return self._intake(ledger).open(plans, room=room)

        return self._committer.run(job) if plans else []

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

        def pick(ledger: LeaseLedger) -> list[int]:
            if groups is None:
                return lending.choose(ledger, count, at_least=at_least)
            named = lending.choose_named(ledger, groups)[:count]
            return named if len(named) >= at_least else []

        return self._lend(pick, version, consumer, lease_id)

    @override
    def ready(self, *, limit: int = 1000) -> list[Ready]:
        check_page(0, limit)
        self._sweep()

        def look(connection: Connection) -> list[Ready]:
            counters = [Counters.of(row) for row in connection.execute(ALL_COUNTERS)]
            return query.read_ready(connection, [one.environment for one in counters if one.ready], limit)

        return self._look(look)

    @override
    def available(self, *, version: int, groups: Sequence[str] | None = None) -> int:
        def job(ledger: LeaseLedger) -> int:
            self._clear(ledger, version)
            if groups is not None:
                return len(lending.choose_named(ledger, groups))
            return sum(one.ready for one in ledger.environments.values())

        return self._committer.run(job)

    @override
    def renew(self, lease_id: str) -> float:
        return self._committer.run(lambda ledger: lending.renew(ledger, lease_id, self._expiry(ledger)))

    @override
    def release(self, lease_id: str) -> None:
        self._committer.run(lambda ledger: lending.give_back(ledger, lease_id))

    @override
    def ack(self, lease_id: str, *, version: int) -> None:
        check_number("version", version)
        self._committer.run(lambda ledger: lending.ack(ledger, lease_id, version))

    @override
    def read(
        self, after: int = 0, *, limit: int = 100, selection: Selection = EVERYTHING
    ) -> list[tuple[int, Trajectory]]:
        check_page(after, limit)
        return self._look(lambda connection: query.read_page(connection, after, limit, selection))

    @override
    def delete(self, ids: Sequence[str]) -> list[str]:
        check_ids(ids)
        return self._committer.run(lambda ledger: delete_trajectories(ledger, ids)) if ids else []

    @override
    def stats(self, *, version: int = NO_VERSION) -> HubStats:
        self._sweep()
        now = self._clock()
        stale = lending.is_stale(self._promises.floor(version))

        def look(connection: Connection) -> HubStats:
            counters = [Counters.of(row) for row in connection.execute(ALL_COUNTERS)]
            leaving = connection.scalar(select(func.count()).select_from(groups).where(stale)) or 0
            return HubStats({one.environment: one.stats(now) for one in counters}, self._promises.capacity, leaving)

        return self._look(look)

    @override
    def share(self, environment: str, *, weight: float = 1.0, min_share: float = 0.0) -> None:
        check_name("environment", environment)
        if not (0 < weight < math.inf and 0 <= min_share <= 1):
            raise HubError(f"{environment!r}: weight={weight} must be above 0, min_share={min_share} within 0..1.")

        def job(ledger: LeaseLedger) -> None:
            counters = ledger.counters(environment)
            counters.weight = weight
            counters.min_share = min_share

        self._committer.run(job)

    @override
    def close(self) -> None:
        self._committer.close()
        self._db.close()

    @override
    def pin(self, lease_id: str) -> None:
        self._committer.run(lambda ledger: lending.pin(ledger, lease_id))

    @override
    def undecided(self) -> list[str]:
        self._sweep()
        waiting = (leases.c.state == "pinned") & (leases.c.expires_at <= self._clock())
        return self._look(lambda connection: list(connection.scalars(select(leases.c.id).where(waiting))))

    @override
    def lease_state(self, lease_id: str) -> tuple[str, int | None]:
        query = select(leases.c.state, leases.c.trained_into).where(leases.c.id == lease_id)
        row = self._look(lambda connection: connection.execute(query).one_or_none())
        return (row.state, row.trained_into) if row else ("", None)

    def _look(self, look: Callable[[Connection], T]) -> T:
        def read() -> T:
            with self._db.read() as connection:
                return look(connection)

        return self._db.again(read)

    def _take_in(self, ledger: LeaseLedger, parcels: list[Parcel]) -> list[int]:
        return self._intake(ledger).store(parcels)

    def _intake(self, ledger: LeaseLedger) -> Intake:
        settings = self._promises.settings
        return Intake(ledger, settings.quorum, settings.group_timeout_s)

    def _expiry(self, ledger: LeaseLedger) -> float:
        return ledger.now + self._promises.settings.lease_s

    def _sweep(self) -> None:
        """Write only if there is something to take back or to decide."""
        if self._look(lambda connection: connection.scalar(lending.something_due(self._clock()))):
            self._committer.run(lending.sweep)

    def _clear(self, ledger: LeaseLedger, version: int) -> None:
        lending.sweep(ledger)
        lending.release_stale(ledger, floor=self._promises.floor(version))

    def _lend(
        self, pick: Callable[[LeaseLedger], list[int]], version: int, consumer: str, lease_id: str | None
    ) -> Lease:
        id = self._new_id() if lease_id is None else lease_id
        check_number("version", version)
        check_name("consumer", consumer)
        check_name("lease_id", id)

        def job(ledger: LeaseLedger) -> Loan:
            self._clear(ledger, version)
            loan = Loan(id=id, consumer=consumer, version=version, expires_at=self._expiry(ledger))
            return lending.find_loan(ledger, id) or lending.lend(ledger, replace(loan, positions=pick(ledger)))

        loan = self._committer.run(job)
        whole, damaged = self._look(lambda connection: query.read_groups(connection, loan.positions))
        if damaged:
            log.error("Groups %s have damaged payloads and are released as corrupt.", damaged)
            self._committer.run(lambda ledger: lending.release_corrupt(ledger, damaged))
        return Lease(id, tuple(whole), loan.expires_at)


def _in_flight(counters: Iterable[Counters]) -> int:
    return sum(one.open + one.ready + one.leased for one in counters)


def _check(plan: GroupPlan) -> None:
    check_name(f"Group {plan.id!r:.80}: id", plan.id)
    check_name(f"Group {plan.id!r:.80}: environment", plan.environment)
    check_number(f"Group {plan.id!r}: version", plan.version)
    check_number(f"Group {plan.id!r}: size", plan.size)
    if plan.size < 1:
        raise HubError(f"{plan}: a size of at least 1 is needed.")
