"""Policy versions, with their evaluations, their origins and their descendants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, literal, select, update

from loomrl.errors import StoreError
from loomrl.store.db import LoomDB, repeated
from loomrl.store.deployments import DEPLOYMENTS
from loomrl.store.events import record
from loomrl.store.log import Log, Row, Source, fetch, from_json, scalar, scalars
from loomrl.store.runs import POLICIES, RUNS, Claim, hold, refuse_forgotten
from loomrl.types import PolicyVersion, Stage

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A report and its subject. A scripted policy such as the oracle has no version."""

    id: str
    report: Mapping[str, Any]
    created_at: float
    run: str | None = None
    policy: str | None = None


EVALUATIONS = Log("evaluations", Evaluation, index=("run", "policy"))


@repeated
def record_policy(db: LoomDB, policy: PolicyVersion, *, claim: Claim | None = None) -> None:
    """Store a version once. Its run and its parent must be stored; the same id with other content is a StoreError.

    Raises RunTaken if `claim`, of its trainer, is not held any more.
    """
    with db.write() as connection:
        if claim is not None:
            hold(connection, claim)
        RUNS.require(connection, policy.run)
        if policy.parent is not None:
            POLICIES.require(connection, policy.parent)
            refuse_forgotten(connection, policy.parent)
        _refuse_taken_number(connection, policy)
        if POLICIES.insert_once(connection, policy, changing={"stage"}):
            made = {"run": policy.run, "number": policy.number}
            record(connection, "policy.made", policy.id, made, at=policy.created_at)


def move_policy(connection: Connection, id: str, *, stage: Stage, moved_at: float, reason: str) -> None:
    """Move a version to another stage, and record the reason."""
    before = POLICIES.require(connection, id).stage
    connection.execute(update(POLICIES.table).where(POLICIES.c.id == id).values(stage=stage.value))
    record(connection, "policy.moved", id, {"from": before, "to": stage, "reason": reason}, at=moved_at)


@repeated
def record_evaluation(db: LoomDB, evaluation: Evaluation) -> None:
    """Store an evaluation once. Its run and policy must be stored; the same id with other content is a StoreError."""
    about = {"run": evaluation.run, "policy": evaluation.policy}
    with db.write() as connection:
        if evaluation.run is not None:
            RUNS.require(connection, evaluation.run)
        if evaluation.policy is not None:
            POLICIES.require(connection, evaluation.policy)
        if EVALUATIONS.insert_once(connection, evaluation):
            record(connection, "evaluation.made", evaluation.id, about, at=evaluation.created_at)


def lineage(db: LoomDB, id: str) -> Tree:
    """A policy version's origin, its ancestors with theirs, and its descendants, as plain data.

    `ancestors` is a list, nearest first: a run of many updates makes a chain that is too deep to nest.
    """
    with db.read() as connection:
        POLICIES.require(connection, id)
        itself, *ancestors = [_describe_origin(row) for row in fetch(connection, _chain(id))]
        return {
            **itself,
            "ancestors": ancestors,
            "children": _ids(connection, POLICIES, parent=id),
            "evaluations": _ids(connection, EVALUATIONS, policy=id),
            "deployments": _ids(connection, DEPLOYMENTS, policy=id),
        }


def _chain(id: str) -> Select[Any]:
    """The version and its ancestors, nearest first, each beside the run that made it."""
    start = select(POLICIES.c.id, POLICIES.c.parent, literal(0).label("depth")).where(POLICIES.c.id == id)
    chain = start.cte("chain", recursive=True)
    parent = select(POLICIES.c.id, POLICIES.c.parent, chain.c.depth + 1).where(POLICIES.c.id == chain.c.parent)
    chain = chain.union_all(parent)
    run = RUNS.c.kind, RUNS.c.name, RUNS.c.environments, RUNS.c.parent_policy
    made_by = select(POLICIES.table, *run).join(chain, POLICIES.c.id == chain.c.id)
    return made_by.join(RUNS.table, POLICIES.c.run == RUNS.c.id).order_by(chain.c.depth)


def _describe_origin(row: Row) -> Tree:
    policy = {name: row[name] for name in ("id", "number", "algorithm", "url", "stage", "parent", "created_at")}
    run = {"id": row["run"], "name": row["name"], "kind": row["kind"], "parent_policy": row["parent_policy"]}
    made_from = {
        "run": run,
        "experiment": row["experiment"],
        "code": row["code"],
        "data": from_json(row["data"]),
        "environments": from_json(row["environments"]),
    }
    return {**policy, "made_from": made_from}


def _ids(source: Source, records: Any, **equal: str) -> list[str]:
    return sorted(scalars(source, records.select(**equal).with_only_columns(records.c.id)))


def _refuse_taken_number(connection: Connection, policy: PolicyVersion) -> None:
    same_number = POLICIES.select(run=policy.run, number=policy.number)
    holder = scalar(connection, same_number.with_only_columns(POLICIES.c.id))
    if holder not in (None, policy.id):
        raise StoreError(
            f"policy {policy.id!r}: number {policy.number} of run {policy.run!r} is taken by {holder!r}. "
            "Give it the next number."
        )
