"""Departures from the hub: leases, their ends, and the groups that time or age removes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, exists, insert, or_, select, update

from loomrl.errors import HubError, LeaseLost
from loomrl.hub.fairness import Claim, allot
from loomrl.hub.ledger import LeaseLedger
from loomrl.store.hub_tables import groups, leases

HELD = ("held", "pinned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """A request for groups, or what came of it: their positions, oldest first."""

    id: str
    consumer: str
    version: int
    expires_at: float
    positions: Sequence[int] = ()


def sweep(ledger: LeaseLedger) -> None:
    """Take back expired leases; decide open groups whose time is up: handed out with the quorum met, else released."""
    _end(ledger, "expired", _expired(ledger.now))
    overdue = _overdue(ledger.now)
    _change(ledger, overdue & (groups.c.usable >= groups.c.needed), "open", "ready", cause="timeout")
    _change(ledger, overdue, "open", "released", cause="timeout")


def release_stale(ledger: LeaseLedger, *, floor: int) -> None:
    """Take groups out that hold an attempt by a version before `floor`; finished or not, nobody may train on them."""
    for state in ("ready", "open"):
        _change(ledger, _is_stale(state, floor), state, "released", cause="stale")


def something_due(now: float) -> Select[tuple[bool]]:
    """The question whether `sweep` would change anything."""
    return select(or_(exists().where(_expired(now)), exists().where(_overdue(now))))


def is_stale(floor: int) -> ColumnElement[bool]:
    """Groups in flight that `release_stale` would take out."""
    return _is_stale("ready", floor) | _is_stale("open", floor)


def choose(ledger: LeaseLedger, count: int, *, at_least: int) -> list[int]:
    """The next groups to lease: environments by their shares, oldest first within each."""
    counters = ledger.environments.values()
    if sum(one.ready for one in counters) < at_least:
        return []
    claims = [Claim(one.environment, one.weight, one.min_share, one.ready, one.served) for one in counters]
    chosen: list[int] = []
    for environment, part in allot(claims, count).items():
        waiting = (groups.c.state == "ready") & (groups.c.environment == environment)
        query = select(groups.c.position).where(waiting).order_by(groups.c.position).limit(part.count)
        chosen += ledger.connection.scalars(query)
        ledger.counters(environment).served = part.served
    return sorted(chosen)


def choose_named(ledger: LeaseLedger, ids: Sequence[str]) -> list[int]:
    """The positions of those of these groups that are ready, in this order."""
    query = select(groups.c.id, groups.c.position, groups.c.state).where(groups.c.id.in_(ids))
    positions = {row.id: row.position for row in ledger.connection.execute(query) if row.state == "ready"}
    return [positions[id] for id in ids if id in positions]


def lent_already(ledger: LeaseLedger, lease_id: str) -> Loan | None:
    """The groups of a lease that was given out before; LeaseLost if it ended."""
    if find(ledger, lease_id) is None:
        return None
    lease = _held(ledger, lease_id)
    query = select(groups.c.position).where(groups.c.lease == lease_id).order_by(groups.c.position)
    return Loan(
        id=lease_id,
        consumer=lease.consumer,
        version=lease.version,
        expires_at=lease.expires_at,
        positions=list(ledger.connection.scalars(query)),
    )


def lend(ledger: LeaseLedger, loan: Loan) -> Loan:
    """Make the groups of the loan its consumer's alone. A loan of nothing leaves no trace."""
    if not loan.positions:
        return loan
    ledger.connection.execute(
        insert(leases).values(
            id=loan.id,
            consumer=loan.consumer,
            state="held",
            version=loan.version,
            created_at=ledger.now,
            expires_at=loan.expires_at,
        )
    )
    _change(ledger, groups.c.position.in_(loan.positions), "ready", "leased", lease=loan.id)
    return loan


def renew(ledger: LeaseLedger, lease_id: str, expires_at: float) -> float:
    """Hold a lease until then; LeaseLost if it is not held."""
    _held(ledger, lease_id)
    ledger.connection.execute(update(leases).where(leases.c.id == lease_id).values(expires_at=expires_at))
    return expires_at


def give_back(ledger: LeaseLedger, lease_id: str) -> None:
    """Put the groups of a held lease back into the queue; without effect on one that ended."""
    _end(ledger, "released", (leases.c.id == lease_id) & leases.c.state.in_(HELD))


def release_corrupt(ledger: LeaseLedger, ids: Sequence[str]) -> None:
    """Take leased groups out whose payload is damaged: they cannot be handed out to anybody."""
    _change(ledger, groups.c.id.in_(ids), "leased", "released", cause="corrupt", lease=None)


def release_deleted(ledger: LeaseLedger, positions: Sequence[int]) -> None:
    """Take groups out that lost an attempt before they were trained on: nobody may have them incomplete."""
    for state in ("open", "ready", "leased"):
        which = groups.c.position.in_(positions) & (groups.c.state == state)
        _change(ledger, which, state, "released", cause="deleted", lease=None)


def pin(ledger: LeaseLedger, lease_id: str) -> None:
    """Keep a lease from expiring until whoever pinned it says ack or release; LeaseLost if it is not held."""
    if _found(ledger, lease_id).state != "acked":
        _held(ledger, lease_id)
        ledger.connection.execute(update(leases).where(leases.c.id == lease_id).values(state="pinned"))


def ack(ledger: LeaseLedger, lease_id: str, version: int) -> None:
    """These groups went into policy `version`; LeaseLost if they went back, HubError if another version has them."""
    lease = _found(ledger, lease_id)
    if lease.state == "acked" and lease.trained_into == version:
        return
    if lease.state == "acked":
        raise HubError(f"Lease {lease_id!r} was acked into version {lease.trained_into} already, not {version}.")
    _held(ledger, lease_id)
    where = leases.c.id == lease_id
    ledger.connection.execute(update(leases).where(where).values(state="acked", trained_into=version))
    _change(ledger, groups.c.lease == lease_id, "leased", "acked")


def find(ledger: LeaseLedger, lease_id: str) -> Row[Any] | None:
    """The row of a lease."""
    return ledger.connection.execute(select(leases).where(leases.c.id == lease_id)).one_or_none()


def _found(ledger: LeaseLedger, lease_id: str) -> Row[Any]:
    lease = find(ledger, lease_id)
    if lease is None:
        raise LeaseLost(f"Lease {lease_id!r} is unknown here. Discard what was learnt from it, and lease again.")
    return lease


def _held(ledger: LeaseLedger, lease_id: str) -> Row[Any]:
    lease = _found(ledger, lease_id)
    if lease.state not in HELD:
        raise LeaseLost(
            f"Lease {lease_id!r} is {lease.state} and its groups went back: discard what was learnt from them, and "
            "lease again. Renew in time, or raise hub.lease_s."
        )
    return lease


def _end(ledger: LeaseLedger, state: str, which: ColumnElement[bool]) -> None:
    ended = ledger.connection.scalars(update(leases).where(which).values(state=state).returning(leases.c.id)).all()
    if ended:
        _change(ledger, groups.c.lease.in_(ended), "leased", "ready", lease=None)


def _change(ledger: LeaseLedger, which: ColumnElement[bool], origin: str, state: str, **values: str | None) -> None:
    """Move groups, all of which are in state `origin`, to another state, and count it.

    `origin` is no condition here: next to a key it would tempt the planner to walk the whole state's index.
    """
    change = update(groups).where(which).values(state=state, **values)
    rows = ledger.connection.execute(change.returning(groups.c.environment)).all()
    ledger.move(rows, origin, state, cause=values.get("cause") or "")


def _expired(now: float) -> ColumnElement[bool]:
    return (leases.c.state == "held") & (leases.c.expires_at <= now)


def _overdue(now: float) -> ColumnElement[bool]:
    return (groups.c.state == "open") & (groups.c.deadline <= now)


def _is_stale(state: str, floor: int) -> ColumnElement[bool]:
    return (groups.c.state == state) & (groups.c.oldest < floor)
