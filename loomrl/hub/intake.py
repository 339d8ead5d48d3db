"""Arrivals at the hub: announced groups and finished attempts, and the change of a group's state by them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from loomrl.errors import Conflict, HubError
from loomrl.gym.guard import is_storable
from loomrl.hub.codec import decode, encode
from loomrl.hub.hub import GroupPlan
from loomrl.hub.ledger import LeaseLedger
from loomrl.store.hub_tables import groups, trajectories
from loomrl.types import NO_VERSION, End, Trajectory

LONGEST_NAME = 500
LARGEST_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Parcel:
    """A checked trajectory with its payload."""

    trajectory: Trajectory
    payload: bytes | memoryview


@dataclass(slots=True)
class Standing:
    """A row of `groups`. It is decided by its last attempt, or by the first one that puts the quorum out of reach."""

    position: int
    id: str
    environment: str
    size: int
    needed: int
    version: int
    opened_at: float
    deadline: float
    state: str = "open"
    cause: str = ""
    arrived: int = 0
    usable: int = 0
    oldest: int | None = None
    lease: str | None = None

    def take(self, trajectory: Trajectory) -> bool:
        """Count one attempt in; False if it comes late, after the group was decided."""
        if self.state != "open":
            return False
        self.arrived += 1
        if trajectory.end is not End.FAILED:
            self.usable += 1
            self._age(trajectory.first_version)
        if self.usable + self.size - self.arrived < self.needed:
            self.state = "released"
            self.cause = "quorum"
        elif self.arrived == self.size:
            self.state = "ready"
        return True

    def row(self) -> dict[str, Any]:
        """The row of `groups`."""
        return {name: getattr(self, name) for name in self.__slots__}

    def progress(self) -> dict[str, Any]:
        """Changes of the row `at` its position by attempts."""
        return {"at": self.position} | {name: getattr(self, name) for name in _PROGRESS}

    def _age(self, version: int) -> None:
        if version != NO_VERSION and (self.oldest is None or version < self.oldest):
            self.oldest = version


@dataclass(frozen=True, slots=True)
class Delivery:
    """Parcels compared with what is stored: cursors by id, what is new, its groups, and the groups yet to open."""

    cursors: dict[str, int]
    fresh: list[Parcel]
    known: dict[str, Standing]
    unknown: list[GroupPlan]


@dataclass(frozen=True, slots=True)
class Intake:
    """Opens groups and stores attempts within one transaction, under the promises it is given."""

    ledger: LeaseLedger
    quorum: float
    timeout_s: float

    def open(self, plans: Sequence[GroupPlan], *, room: int) -> list[str]:
        """The ids of those that are open already or for which there is room."""
        known = self._find_known(plan.id for plan in plans)
        admitted = []
        fresh: dict[str, GroupPlan] = {}
        for plan in plans:
            there = known.get(plan.id) or fresh.get(plan.id)
            if there is not None:
                _agree(plan, there)
            elif len(fresh) < room:
                fresh[plan.id] = plan
            else:
                continue
            admitted.append(plan.id)
        self._insert(self._begin(list(fresh.values())))
        return admitted

    def store(self, parcels: Sequence[Parcel]) -> list[int]:
        """The cursors of the parcels, each stored once."""
        delivery = self.check(parcels)
        fresh = delivery.fresh
        cursors = delivery.cursors
        begun = self._begin(delivery.unknown)
        undecided = [group for group in delivery.known.values() if group.state == "open"]
        standings = delivery.known | {group.id: group for group in begun}
        rows = []
        for position, parcel in zip(self.ledger.positions(trajectories, len(fresh)), fresh, strict=True):
            trajectory = parcel.trajectory
            group = standings[trajectory.group]
            late = not group.take(trajectory)
            self.ledger.counters(group.environment).count(trajectory, late=late, now=self.ledger.now)
            rows.append(_row(parcel, group) | {"position": position, "late": late, "created_at": self.ledger.now})
            cursors[trajectory.id] = position
        self._insert(begun)
        if rows:
            self.ledger.connection.execute(insert(trajectories), rows)
        self._advance(undecided)
        return [cursors[parcel.trajectory.id] for parcel in parcels]

    def check(self, parcels: Sequence[Parcel]) -> Delivery:
        """The effect of storing the parcels; Conflict or HubError if they may not be stored."""
        cursors, fresh = self._sort_out(parcels)
        known = self._find_known(parcel.trajectory.group for parcel in fresh)
        unknown: dict[str, GroupPlan] = {}
        for t in (parcel.trajectory for parcel in fresh):
            plan = GroupPlan(t.group, t.task.environment, t.group_size, t.first_version)
            _agree(plan, known.get(plan.id) or unknown.setdefault(plan.id, plan))
        return Delivery(cursors, fresh, known, list(unknown.values()))

    def _sort_out(self, parcels: Sequence[Parcel]) -> tuple[dict[str, int], list[Parcel]]:
        """The cursors of what is stored already, and what is not, each once."""
        ids = {parcel.trajectory.id for parcel in parcels}
        stored = {row.id: row for row in self.ledger.connection.execute(_STORED, {"ids": list(ids)})}
        fresh: dict[str, Parcel] = {}
        for parcel in parcels:
            id = parcel.trajectory.id
            first = stored[id].payload if id in stored else fresh.setdefault(id, parcel).payload
            if not _equal(first, parcel.payload):
                raise Conflict(
                    f"Trajectory {id!r} is stored already with other content; nothing of this call was stored. "
                    "A trajectory is never edited: give the new attempt a new id."
                )
        return {id: row.position for id, row in stored.items()}, [p for id, p in fresh.items() if id not in stored]

    def _find_known(self, ids: Iterable[str]) -> dict[str, Standing]:
        rows = self.ledger.connection.execute(_KNOWN, {"ids": list(set(ids))})
        return {row.id: Standing(**row._mapping) for row in rows}

    def _begin(self, plans: Sequence[GroupPlan]) -> list[Standing]:
        """New groups, not stored yet."""
        now = self.ledger.now
        return [
            Standing(
                position,
                plan.id,
                plan.environment,
                plan.size,
                math.ceil(self.quorum * plan.size - 1e-9),
                plan.version,
                now,
                now + self.timeout_s,
            )
            for position, plan in zip(self.ledger.positions(groups, len(plans)), plans, strict=True)
        ]

    def _insert(self, begun: Sequence[Standing]) -> None:
        """Store new groups, as far as they have come."""
        for group in begun:
            self.ledger.counters(group.environment).move("", group.state, cause=group.cause)
        if begun:
            self.ledger.connection.execute(insert(groups), [group.row() for group in begun])

    def _advance(self, standings: Sequence[Standing]) -> None:
        """Write what came of groups that were open."""
        for group in standings:
            if group.state != "open":
                self.ledger.counters(group.environment).move("open", group.state, cause=group.cause)
        if standings:
            self.ledger.connection.execute(_ADVANCE, [group.progress() for group in standings])


_STORED = select(trajectories.c.id, trajectories.c.position, trajectories.c.payload).where(
    trajectories.c.id.in_(bindparam("ids", expanding=True))
)
_KNOWN = select(groups).where(groups.c.id.in_(bindparam("ids", expanding=True)))
_ADVANCE = update(groups).where(groups.c.position == bindparam("at"))
_PROGRESS = ("state", "cause", "arrived", "usable", "oldest")


def parcel(trajectory: Trajectory, payload: bytes | memoryview) -> Parcel:
    """A trajectory and its payload, ready to be stored; HubError for what no database or statistic can take."""
    task = trajectory.task
    for what, name in (
        ("id", trajectory.id),
        ("group", trajectory.group),
        ("run", trajectory.run),
        ("task.environment", task.environment),
        ("task.family", task.family),
    ):
        check_name(f"Trajectory {trajectory.id!r:.80}: {what}", name, empty=what in ("run", "task.family"))
    for what, number in (
        ("level", task.level),
        ("group_size", trajectory.group_size),
        ("first_version", trajectory.first_version),
        ("last_version", trajectory.last_version),
    ):
        check_number(f"Trajectory {trajectory.id!r}: {what}", number)
    numbers = (trajectory.reward.total, trajectory.reward.success, *trajectory.reward.parts.values())
    if not all(map(math.isfinite, numbers)):
        raise HubError(f"Trajectory {trajectory.id!r}: {trajectory.reward} is not finite. End it as FAILED instead.")
    return Parcel(trajectory, payload)


def check_number(what: str, number: int) -> None:
    """HubError for an integer that no database column holds."""
    if not -LARGEST_INT <= number <= LARGEST_INT:
        raise HubError(f"{what}={number} is out of range: at most {LARGEST_INT}.")


def check_text(what: str, text: str) -> None:
    """HubError for a text that not every database can hold."""
    if "\0" in text or not is_storable(text):
        raise HubError(f"{what}={text!r:.80}: NUL and half surrogates cannot be stored.")


def check_name(what: str, name: str, *, empty: bool = False) -> None:
    """HubError for a name that no database could hold or find again."""
    check_text(what, name)
    if len(name) > LONGEST_NAME or not (name or empty):
        raise HubError(f"{what}={name!r:.80}: 1 to {LONGEST_NAME} characters are needed.")


def _equal(stored: bytes | memoryview, given: bytes | memoryview) -> bool:
    """True if two payloads hold equal content; other versions may have laid it out in other bytes."""
    return stored is given or bytes(stored) == bytes(given) or encode(decode(stored)) == encode(decode(given))


def _agree(plan: GroupPlan, there: GroupPlan | Standing) -> None:
    if (there.environment, there.size) != (plan.environment, plan.size):
        raise HubError(
            f"Group {plan.id!r} is of {there.environment!r} with {there.size} attempts, not of {plan.environment!r} "
            f"with {plan.size}. Give another group another id."
        )


def _row(parcel: Parcel, group: Standing) -> dict[str, Any]:
    trajectory = parcel.trajectory
    return {
        "id": trajectory.id,
        "group_position": group.position,
        "environment": trajectory.task.environment,
        "family": trajectory.task.family,
        "level": trajectory.task.level,
        "source": trajectory.source.value,
        "ending": trajectory.end.value,
        "success": trajectory.reward.success,
        "run": trajectory.run,
        "first_version": trajectory.first_version,
        "last_version": trajectory.last_version,
        "payload": parcel.payload,
    }
