"""Policy versions and their origins."""

from sqlalchemy import Connection, select, update

from loomrl.errors import StoreError
from loomrl.store.db import LoomDB, repeated
from loomrl.store.events import Event, record
from loomrl.store.rows import Row, columns_of, from_json, insert_once, require, to_json
from loomrl.store.runs import Claim, held
from loomrl.store.tables import policies, runs
from loomrl.types import PolicyVersion, Stage


@repeated
def record_policy(db: LoomDB, policy: PolicyVersion, *, claim: Claim | None = None) -> None:
    """Store a version once. Its run and its parent must be stored; the same id with other content is a StoreError.

    RunTaken if `claim`, of its trainer, is not held any more.
    """
    data = to_json(dict(policy.data), what=f"policy {policy.id!r} data")
    row = columns_of(policy) | {"data": data, "stage": policy.stage.value}
    made = {"run": policy.run, "number": policy.number}
    with db.write() as connection:
        if claim is not None:
            held(connection, claim)
        require(connection, runs, policy.run)
        if policy.parent is not None:
            require(connection, policies, policy.parent)
        _refuse_taken_number(connection, policy)
        if insert_once(connection, policies, row, changing={"stage"}):
            record(connection, Event(kind="policy.made", subject=policy.id, data=made, created_at=policy.created_at))


def move_policy(db: LoomDB, id: str, *, stage: Stage, moved_at: float, reason: str) -> None:
    """Move a version to another stage, and record the reason."""
    with db.write() as connection:
        move(connection, id, stage=stage, moved_at=moved_at, reason=reason)


def move(connection: Connection, id: str, *, stage: Stage, moved_at: float, reason: str) -> None:
    """Move a version in a transaction of others."""
    before = require(connection, policies, id)["stage"]
    connection.execute(update(policies).where(policies.c.id == id).values(stage=stage.value))
    data = {"from": before, "to": stage.value, "reason": reason}
    record(connection, Event(kind="policy.moved", subject=id, data=data, created_at=moved_at))


@repeated
def show_policy(db: LoomDB, id: str) -> PolicyVersion:
    """The version of this id."""
    with db.read() as connection:
        return policy_of(require(connection, policies, id))


@repeated
def list_policies(
    db: LoomDB, *, limit: int = 50, run: str | None = None, stage: Stage | None = None
) -> list[PolicyVersion]:
    """The latest versions, newest first."""
    query = select(policies).order_by(policies.c.created_at.desc(), policies.c.number.desc()).limit(limit)
    if run is not None:
        query = query.where(policies.c.run == run)
    if stage is not None:
        query = query.where(policies.c.stage == stage)
    with db.read() as connection:
        return [policy_of(row) for row in connection.execute(query).mappings()]


def policy_of(row: Row) -> PolicyVersion:
    """The version in a row."""
    return PolicyVersion(**{**row, "data": from_json(row["data"]), "stage": Stage(row["stage"])})


def _refuse_taken_number(connection: Connection, policy: PolicyVersion) -> None:
    same_number = policies.c.run == policy.run, policies.c.number == policy.number
    holder = connection.scalar(select(policies.c.id).where(*same_number))
    if holder not in (None, policy.id):
        raise StoreError(
            f"policy {policy.id!r}: number {policy.number} of run {policy.run!r} is taken by {holder!r}. "
            "Give it the next number."
        )
