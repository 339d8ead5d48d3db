"""Deployments: each policy's share of an endpoint's traffic over time, with the verdict behind it."""

from dataclasses import dataclass

from sqlalchemy import Connection

from loomrl.store.events import record
from loomrl.store.log import Log
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


DEPLOYMENTS = Log("deployments", Deployment, index=("policy",))


def identity_of(policy: str, content: str) -> str:
    """The name that a policy is deployed under: its key, of a folder with the hash of its files."""
    return f"{policy}{CONTENT}{content}" if content else policy


def deploy(connection: Connection, deployment: Deployment) -> None:
    """Store a deployment in a transaction of others, also of a policy that no run of this record made."""
    step = {
        "policy": deployment.policy,
        "stage": deployment.stage,
        "share": deployment.share,
        "allowed": deployment.verdict.allowed,
        "reasons": list(deployment.verdict.reasons),
    }
    if DEPLOYMENTS.insert_once(connection, deployment):
        record(connection, "deployment.made", deployment.id, step, at=deployment.created_at)
