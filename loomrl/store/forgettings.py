"""People taken out of weights: each forgetting is on record before it begins, and its certificate once it is done."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import update

from loomrl.errors import StoreError
from loomrl.store.datasets import DATASET_ROWS, DatasetRow
from loomrl.store.db import LoomDB
from loomrl.store.endpoints import list_endpoints
from loomrl.store.erasures import begin_erasure
from loomrl.store.events import record
from loomrl.store.log import Log, Source, fetch, slices, to_json
from loomrl.store.policies import move_policy
from loomrl.store.runs import POLICIES, served_version
from loomrl.store.sessions import person_hash, sessions_of
from loomrl.types import PolicyVersion, Stage

MOST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """People of an endpoint whose sessions leave the weights."""

    id: str
    endpoint: str
    people: tuple[str, ...]
    """The hashes of their names."""
    state: Literal["open", "done"] = "open"
    plan: Mapping[str, Any]
    """`loomrl.experiments.forget.plan.WeightPlan`: all that could not be found once their record is deleted."""
    certificate: Mapping[str, Any] = field(default_factory=dict)
    """Empty until it is done."""
    created_at: float


FORGETTINGS = Log("forgettings", Forgetting, index=("endpoint",))


def begin_forgetting(db: LoomDB, begun: Forgetting, names: Sequence[str]) -> None:
    """Put it on record, and begin to delete the record of these people; a StoreError if they spoke meanwhile."""
    with db.write() as connection:
        if spoken(connection, begun.endpoint, names) != set(begun.plan["trajectories"]):
            raise StoreError("the people spoke while the plan was made: give the same command again.")
        FORGETTINGS.append(connection, [begun])
        for name in names:
            begin_erasure(connection, begun.endpoint, name, at=begun.created_at)


def open_forgettings(db: LoomDB, endpoint: str | None = None) -> list[Forgetting]:
    """Those that are not finished, oldest first; of one endpoint, or of all."""
    return [one for _, one in FORGETTINGS.read(db, state="open", endpoint=endpoint)]


def finish_forgetting(db: LoomDB, done: Forgetting, certificate: Mapping[str, Any], *, at: float) -> Forgetting:
    """Put the certificate on record, once; the one that is there then."""
    text = to_json(certificate, what="certificate")
    still = (FORGETTINGS.c.id == done.id) & (FORGETTINGS.c.state == "open")
    with db.write() as connection:
        changed = connection.execute(update(FORGETTINGS.table).where(still).values(state="done", certificate=text))
        if changed.rowcount:
            told = {"endpoint": done.endpoint, "people": list(done.people)}
            record(connection, "weights.forgotten", done.id, told, at=at)
        return FORGETTINGS.require(connection, done.id)


def spoken(source: Source, endpoint: str, names: Collection[str]) -> set[str]:
    """The sessions on record in which these people spoke."""
    return {id for name in names for id in sessions_of(source, endpoint, person_hash(endpoint, name))}


def find_rows(source: Source, trajectories: Collection[str]) -> dict[str, list[DatasetRow]]:
    """Data set → its rows of these trajectories."""
    found: dict[str, list[DatasetRow]] = {}
    for some in slices(trajectories):
        query = DATASET_ROWS.select().where(DATASET_ROWS.c.trajectory.in_(some))
        for row in fetch(source, query):
            found.setdefault(row["dataset"], []).append(DATASET_ROWS.parse(row))
    return found


def list_replaced(source: Source) -> list[tuple[str, str, int]]:
    """Each run that was made again, the run in its place, and its last version that was replaced; the latest first."""
    return [
        (replay["run"], replay["into"], max(int(version.rpartition("/")[2]) for version in replay["targets"]))
        for one in FORGETTINGS.latest(source, limit=MOST)
        for replay in one.plan["replays"]
    ]


def find_learners(source: Source, untouched: Mapping[str, int]) -> dict[str, PolicyVersion]:
    """The versions, by id, that learnt from rows of people, and those that descend from such.

    `untouched`: run that has the rows among its data → its last version that had learnt from none of them.
    """
    versions = POLICIES.latest(source, limit=MOST)
    children: dict[str, list[PolicyVersion]] = {}
    for version in versions:
        children.setdefault(version.parent or "", []).append(version)
    waiting = [one for one in versions if one.number > untouched.get(one.run, one.number)]
    found: dict[str, PolicyVersion] = {}
    while waiting:
        version = waiting.pop()
        if version.id not in found:
            found[version.id] = version
            waiting += children.get(version.id, [])
    return found


def retire_learners(db: LoomDB, forgetting: str, untouched: Mapping[str, int], *, at: float) -> list[PolicyVersion]:
    """Mark every version that learnt from the people as forgotten; a StoreError while an endpoint names one.

    From then on none of them is served, copied, or trained further.
    """
    with db.write() as connection:
        found = find_learners(connection, untouched)
        for (endpoint, _), policy in named_policies(connection).items():
            if served_version(connection, policy) in found:
                raise StoreError(
                    f"endpoint {endpoint!r} names {policy!r}, which learnt from a person who is being forgotten. "
                    f"Release another version (loomrl release VERSION --to {endpoint}), and repeat the command."
                )
        reason = f"it learnt from a person who was forgotten since (forgetting {forgetting})"
        for version in found.values():
            if version.stage is not Stage.FORGOTTEN:
                move_policy(connection, version.id, stage=Stage.FORGOTTEN, moved_at=at, reason=reason)
    return list(found.values())


def named_policies(source: Source) -> dict[tuple[str, str], str]:
    """Endpoint and arm → the key of the policy behind it."""
    return {(endpoint.name, arm.name): arm.policy for endpoint in list_endpoints(source) for arm in endpoint.arms}
