"""Releases on record: a log of rows for each; the one with the highest number holds.

A row, the endpoint's new revision, the deployments and the stages of policies are one transaction, and only a writer
that has seen the newest row may write the next: any number of controllers may run, and any may die at any instant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, func, select

from loomrl.errors import StoreError, did_you_mean, there_are
from loomrl.store.db import LoomDB
from loomrl.store.deployments import Deployment, deploy, identity_of
from loomrl.store.endpoints import ENDPOINTS, Arm, Endpoint, Role, State, change_endpoint
from loomrl.store.events import record
from loomrl.store.log import Log, Source, scalar, scalars, writing
from loomrl.store.policies import move_policy
from loomrl.store.runs import POLICIES
from loomrl.types import Stage, Verdict

OPEN = "open"
"""The state of a release that has not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRow:
    """One row of a release's log."""

    release: str
    """`ENDPOINT-N`."""
    number: int
    """From 1."""
    endpoint: str
    state: str
    revision: int
    """The endpoint's, from this row on."""
    reason: str
    who: str
    """The person who decided; empty if the release did."""
    content: Mapping[str, Any] = field(default_factory=dict)
    created_at: float


RELEASES = Log("releases", ReleaseRow, key=("release", "number"), index=("endpoint",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """All that a row changes beside itself."""

    arms: Sequence[Arm] | None
    """None leaves the endpoint as it is."""
    seen: int
    """The endpoint's revision that the arms were made for."""
    stages: Mapping[str, Stage] = field(default_factory=dict)
    """Policy → its stage from now on."""
    contents: Mapping[str, str] = field(default_factory=dict)
    """Folder → SHA-256 of its files."""
    verdict: Verdict


def begin(target: Source, first: ReleaseRow, change: Change) -> ReleaseRow:
    """Store the first row of a new release. One that has its name already keeps it, or is refused.

    A second open release of an endpoint is refused.
    """
    with writing(target) as connection:
        refuse_open(connection, first.endpoint)
        name = next_release(connection, first.endpoint)
        if first.release not in ("", name):
            raise StoreError(f"endpoint {first.endpoint!r}: its next release is {name}, not {first.release}.")
        return _write(connection, replace(first, release=name, number=1), change)


def next_release(source: Source, endpoint: str) -> str:
    """The name that the endpoint's next release will have."""
    known = select(func.count(func.distinct(RELEASES.c.release))).where(RELEASES.c.endpoint == endpoint)
    return f"{endpoint}-{scalar(source, known) + 1}"


def refuse_open(source: Source, endpoint: str) -> None:
    """A StoreError if the endpoint's newest release has not ended."""
    newest = RELEASES.newest(source, endpoint=endpoint)
    if newest is not None and newest.state == OPEN:
        raise StoreError(
            f"endpoint {endpoint!r}: release {newest.release} is open ({newest.reason}). Wait for its end, or end it: "
            f"loomrl release abort {endpoint}"
        )


def advance(db: LoomDB, row: ReleaseRow, change: Change) -> ReleaseRow | None:
    """Store the next row of a release; None, and nothing is stored, if the release or the endpoint has moved on."""
    with db.write() as connection:
        newest = RELEASES.newest(connection, release=row.release)
        endpoint = ENDPOINTS.newest(connection, name=row.endpoint)
        if newest is None or newest.number != row.number - 1 or endpoint is None or endpoint.revision != change.seen:
            return None
        return _write(connection, row, change)


def show_release(db: LoomDB, endpoint: str) -> list[ReleaseRow]:
    """The rows of the endpoint's latest release, oldest first; a StoreError if there was none."""
    newest = RELEASES.newest(db, endpoint=endpoint)
    if newest is None:
        known = sorted(scalars(db, select(RELEASES.c.endpoint).distinct()))
        hint = did_you_mean(endpoint[:100], known)
        raise StoreError(f"endpoint {endpoint!r:.100} had no release yet. {there_are(known)}{hint}")
    return read_release(db, newest.release)


def list_releases(db: LoomDB, *, limit: int = 50, endpoint: str | None = None) -> list[ReleaseRow]:
    """The newest row of each release, latest first."""
    newest = RELEASES.newest_each("release", endpoint=endpoint)
    return RELEASES.fetch(db, newest.order_by(RELEASES.c.position.desc()).limit(limit))


def read_release(db: LoomDB, release: str) -> list[ReleaseRow]:
    """The rows of a release, oldest first."""
    return RELEASES.fetch(db, RELEASES.select(release=release).order_by(RELEASES.c.number))


def _write(connection: Connection, row: ReleaseRow, change: Change) -> ReleaseRow:
    endpoint = ENDPOINTS.newest(connection, name=row.endpoint)
    revision = 0 if endpoint is None else endpoint.revision
    if change.arms is not None and (endpoint is None or tuple(change.arms) != endpoint.arms):
        draft = Endpoint(
            name=row.endpoint,
            revision=0,
            arms=tuple(change.arms),
            state=State.SERVING,
            reason=f"release {row.release}: {row.reason}",
            created_at=row.created_at,
        )
        revision = change_endpoint(connection, draft, change.seen, is_released=True).revision
    stored = replace(row, revision=revision)
    RELEASES.append(connection, [stored])
    said = {"number": row.number, "state": row.state, "revision": revision, "reason": row.reason, "who": row.who}
    record(connection, "release.moved", row.release, said, at=row.created_at)
    _deploy(connection, stored, change)
    return stored


def _deploy(connection: Connection, row: ReleaseRow, change: Change) -> None:
    """Shares of the policies, and stages of those on record."""
    answering = [arm for arm in change.arms or () if arm.role is not Role.SHADOW]
    shares = {arm.policy: arm.share for arm in answering}
    for policy, stage in change.stages.items():
        stored = POLICIES.find(connection, policy)
        if stored is not None and stored.stage is not stage:
            reason = f"release {row.release}: {row.reason}"
            move_policy(connection, policy, stage=stage, moved_at=row.created_at, reason=reason)
        deployment = Deployment(
            id=f"{row.release}/{row.number}/{policy}",
            policy=identity_of(policy, change.contents.get(policy, "")),
            stage=stage,
            endpoint=row.endpoint,
            share=shares.get(policy, 0.0),
            verdict=change.verdict,
            created_at=row.created_at,
        )
        deploy(connection, deployment)
