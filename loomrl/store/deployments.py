"""Deployments: each policy's share of an endpoint's traffic over time, with the verdict behind it."""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from loomrl.store.db import LoomDB
from loomrl.store.events import Event, record
from loomrl.store.rows import Row, columns_of, from_json, insert_once, require, to_json
from loomrl.store.tables import deployments, policies
from loomrl.types import Stage, Verdict

CONTENT = "@sha256:"
"""Between a folder and the hash of its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One step of a release. A new share or stage is a new deployment; the newest of an endpoint holds."""

    id: str
    policy: str
    """A version on record, `FOLDER@sha256:HEX`, or a run that is followed (`RUN@newest`)."""
    stage: Stage
    endpoint: str
    share: float
    """Share of the endpoint's traffic, 0..1."""
    verdict: Verdict
    """The verdict that allowed it."""
    created_at: float


def identity_of(policy: str, content: str) -> str:
    """The name that a policy is deployed under: its key, of a folder with the hash of its files."""
    return f"{policy}{CONTENT}{content}" if content else policy


def record_deployment(db: LoomDB, deployment: Deployment) -> None:
    """Store a deployment once. Its policy must be stored; the same id with other content is a StoreError."""
    with db.write() as connection:
        require(connection, policies, deployment.policy)
        deploy(connection, deployment)


def deploy(connection: Connection, deployment: Deployment) -> None:
    """Store a deployment in a transaction of others, also of a policy that no run of this record made."""
    verdict = {"allowed": deployment.verdict.allowed, "reasons": list(deployment.verdict.reasons)}
    row = columns_of(deployment) | {
        "stage": deployment.stage.value,
        "verdict": to_json(verdict, what=f"deployment {deployment.id!r} verdict"),
    }
    step = {"policy": deployment.policy, "stage": deployment.stage.value, "share": deployment.share, **verdict}
    if insert_once(connection, deployments, row):
        created_at = deployment.created_at
        record(connection, Event(kind="deployment.made", subject=deployment.id, data=step, created_at=created_at))


def show_deployment(db: LoomDB, id: str) -> Deployment:
    """The deployment of this id."""
    with db.read() as connection:
        return _deployment_of(require(connection, deployments, id))


def list_deployments(
    db: LoomDB, *, limit: int = 50, policy: str | None = None, endpoint: str | None = None
) -> list[Deployment]:
    """The latest deployments, newest first."""
    query = select(deployments).order_by(deployments.c.position.desc()).limit(limit)
    if policy is not None:
        query = query.where(deployments.c.policy == policy)
    if endpoint is not None:
        query = query.where(deployments.c.endpoint == endpoint)
    with db.read() as connection:
        return [_deployment_of(row) for row in connection.execute(query).mappings()]


def _deployment_of(row: Row) -> Deployment:
    verdict = from_json(row["verdict"])
    columns = {
        **row,
        "stage": Stage(row["stage"]),
        "verdict": Verdict(verdict["allowed"], tuple(verdict["reasons"])),
    }
    del columns["position"]
    return Deployment(**columns)
