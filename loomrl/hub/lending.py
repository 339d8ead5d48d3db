"""Departures from the hub: leases, their ends, and the groups that time or age removes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from loomrl.errors import HubError, LeaseLost
from loomrl.gym.curriculum import Stake, shares
from loomrl.hub.hub import MOST_AT_ONCE
from loomrl.hub.ledger import LeaseLedger, highest
from loomrl.store.hub_tables import groups, leases, trajectories
from loomrl.store.notes import hub_notes


@dataclass(frozen=True, slots=True)
class Claim:
    """An environment's demand: its settings, its number of groups, and its virtual time."""

    environment: str
    weight: float
    min_share: float
    ready: int
    served: float = 0.0


@dataclass(slots=True)
class Allotment:
    """The number of an environment's groups that are taken, and its virtual time after that."""

    count: int
    served: float


def allot(claims: Sequence[Claim], count: int) -> dict[str, Allotment]:
    """Divide `count` turns among the claims that have groups; fewer if there are not enough groups."""
    allotted = {claim.environment: Allotment(0, claim.served) for claim in claims}
    now = max((claim.served for claim in claims), default=0.0)
    for _ in range(count):
        waiting = [claim for claim in claims if allotted[claim.environment].count < claim.ready]
        if not waiting:
            break
        share = shares({claim.environment: Stake(claim.weight, claim.min_share) for claim in waiting})
        starts = {name: max(now, allotted[name].served + 1 / share[name]) for name in share}
        winner = min(starts, key=lambda name: (starts[name], name))
        now = starts[winner]
        allotted[winner].count += 1
        allotted[winner].served = now
    return {name: taken for name, taken in allotted.items() if taken.count}


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
    _end(ledger, "expired", _is_expired(ledger.now))
    overdue = _is_overdue(ledger.now)
    _change(ledger, overdue & (groups.c.usable >= groups.c.needed), "open", "ready", cause="timeout")
    _change(ledger, overdue, "open", "released", cause="timeout")


def release_stale(ledger: LeaseLedger, *, floor: int) -> None:
    """Take groups out that hold an attempt by a version before `floor`; finished or not, they are too old."""
    for state in ("ready", "open"):
        _change(ledger, _is_stale(state, floor), state, "released", cause="stale")


def something_due(now: float) -> Select[tuple[bool]]:
    """The question whether `sweep` would change anything."""
    return select(or_(exists().where(_is_expired(now)), exists().where(_is_overdue(now))))


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


def find_loan(ledger: LeaseLedger, lease_id: str) -> Loan | None:
    """The groups of a lease that was given out before; LeaseLost if it ended."""
    if find(ledger, lease_id) is None:
        return None
    lease = _require_held(ledger, lease_id)
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
    _require_held(ledger, lease_id)
    ledger.connection.execute(update(leases).where(leases.c.id == lease_id).values(expires_at=expires_at))
    return expires_at


def give_back(ledger: LeaseLedger, lease_id: str) -> None:
    """Put the groups of a held lease back into the queue; without effect on one that ended."""
    _end(ledger, "released", (leases.c.id == lease_id) & leases.c.state.in_(HELD))


def release_corrupt(ledger: LeaseLedger, ids: Sequence[str]) -> None:
    """Take leased groups out whose payload is damaged: they cannot be handed out."""
    _change(ledger, groups.c.id.in_(ids), "leased", "released", cause="corrupt", lease=None)


def release_deleted(ledger: LeaseLedger, positions: Sequence[int]) -> None:
    """Take groups out that lost an attempt before they were trained on: incomplete groups are not handed out."""
    for state in ("open", "ready", "leased"):
        which = groups.c.position.in_(positions) & (groups.c.state == state)
        _change(ledger, which, state, "released", cause="deleted", lease=None)


def pin(ledger: LeaseLedger, lease_id: str) -> None:
    """Keep a lease from expiring until an ack or a release; LeaseLost if it is not held."""
    if _require(ledger, lease_id).state != "acked":
        _require_held(ledger, lease_id)
        ledger.connection.execute(update(leases).where(leases.c.id == lease_id).values(state="pinned"))


def ack(ledger: LeaseLedger, lease_id: str, version: int) -> None:
    """These groups went into policy `version`; LeaseLost if they went back, HubError if another version has them."""
    lease = _require(ledger, lease_id)
    if lease.state == "acked" and lease.trained_into == version:
        return
    if lease.state == "acked":
        raise HubError(f"Lease {lease_id!r} was acked into version {lease.trained_into} already, not {version}.")
    _require_held(ledger, lease_id)
    where = leases.c.id == lease_id
    ledger.connection.execute(update(leases).where(where).values(state="acked", trained_into=version))
    _change(ledger, groups.c.lease == lease_id, "leased", "acked")


def find(ledger: LeaseLedger, lease_id: str) -> Row[Any] | None:
    """The row of a lease."""
    return ledger.connection.execute(select(leases).where(leases.c.id == lease_id)).one_or_none()


def _require(ledger: LeaseLedger, lease_id: str) -> Row[Any]:
    lease = find(ledger, lease_id)
    if lease is None:
        raise LeaseLost(f"Lease {lease_id!r} is unknown here. Discard what was learnt from it, and lease again.")
    return lease


def _require_held(ledger: LeaseLedger, lease_id: str) -> Row[Any]:
    lease = _require(ledger, lease_id)
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


def _is_expired(now: float) -> ColumnElement[bool]:
    return (leases.c.state == "held") & (leases.c.expires_at <= now)


def _is_overdue(now: float) -> ColumnElement[bool]:
    return (groups.c.state == "open") & (groups.c.deadline <= now)


def _is_stale(state: str, floor: int) -> ColumnElement[bool]:
    return (groups.c.state == state) & (groups.c.oldest < floor)


IDS: BindParameter[Any] = bindparam("ids", expanding=True)


def check_ids(ids: Sequence[str]) -> None:
    """HubError for more than one deletion takes."""
    if len(ids) > MOST_AT_ONCE:
        raise HubError(f"delete: {len(ids)} trajectories, at most {MOST_AT_ONCE} at once.")


def delete_trajectories(ledger: LeaseLedger, ids: Sequence[str]) -> list[str]:
    """Delete these trajectories, and the groups of which nothing is left or will come; the ids that were there."""
    found = ledger.connection.execute(_FOUND, {"ids": list(ids)}).all()
    if not found:
        return []
    _keep_highest(ledger, trajectories)
    ledger.connection.execute(_DELETE, {"ids": [row.id for row in found]})
    touched = sorted({row.group_position for row in found})
    release_deleted(ledger, touched)
    others = set(ledger.connection.scalars(_OTHERS, {"ids": touched}))
    if left := [position for position in touched if position not in others]:
        _keep_highest(ledger, groups)
        ledger.connection.execute(_END, {"ids": left})
    return [row.id for row in found]


def _keep_highest(ledger: LeaseLedger, table: Table) -> None:
    """Remember the table's highest position, which may be about to go."""
    key = highest(table)
    now = ledger.connection.scalar(select(func.max(table.c.position)))
    earlier = ledger.connection.scalar(select(hub_notes.c.text).where(hub_notes.c.key == key))
    if earlier is None:
        ledger.connection.execute(insert(hub_notes).values(key=key, text=str(now)))
    elif now is not None and now > int(earlier):
        ledger.connection.execute(update(hub_notes).where(hub_notes.c.key == key).values(text=str(now)))


_FOUND = select(trajectories.c.id, trajectories.c.group_position).where(trajectories.c.id.in_(IDS))
_DELETE = delete(trajectories).where(trajectories.c.id.in_(IDS))
_OTHERS = select(trajectories.c.group_position).where(trajectories.c.group_position.in_(IDS))
_END = delete(groups).where(groups.c.position.in_(IDS), groups.c.arrived >= groups.c.size)
