"""Releases on record: a log of rows for each; the one with the highest number holds.

A row, the endpoint's new revision, the deployments and the stages of policies are one transaction, and only whoever
has seen the newest row may write the next: any number of controllers may run, and any may die at any instant.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, func, insert, select

from loomrl.errors import StoreError, did_you_mean, there_are
from loomrl.store.db import LoomDB
from loomrl.store.deployments import Deployment, deploy, identity_of
from loomrl.store.endpoints import Arm, Endpoint, Role, State, change_endpoint, newest_of
from loomrl.store.events import Event, record
from loomrl.store.policies import move
from loomrl.store.rows import Row, find, from_json, to_json
from loomrl.store.tables import observations, policies, releases
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


def begin(db: LoomDB, first: ReleaseRow, change: Change) -> ReleaseRow:
    """Store the first row of a new release, which gets its name here. A second open one of an endpoint is refused."""
    with db.write() as connection:
        return begin_beside(connection, first, change)


def begin_beside(connection: Connection, first: ReleaseRow, change: Change) -> ReleaseRow:
    """As `begin`, in the transaction of what it comes from. One that has its name already keeps it, or is refused."""
    refuse_open(_newest(connection, first.endpoint))
    name = _next_name(connection, first.endpoint)
    if first.release not in ("", name):
        raise StoreError(f"endpoint {first.endpoint!r}: its next release is {name}, not {first.release}.")
    return _write(connection, replace(first, release=name, number=1), change)


def next_release(db: LoomDB, endpoint: str) -> str:
    """The name that the endpoint's next release will have."""
    with db.read() as connection:
        return _next_name(connection, endpoint)


def refuse_open(newest: ReleaseRow | None) -> None:
    """A StoreError if the endpoint's newest release has not ended."""
    if newest is not None and newest.state == OPEN:
        raise StoreError(
            f"endpoint {newest.endpoint!r}: release {newest.release} is open ({newest.reason}). Wait for its end, or "
            f"end it: loomrl release abort {newest.endpoint}"
        )


def advance(db: LoomDB, row: ReleaseRow, change: Change) -> ReleaseRow | None:
    """Store the next row of a release; None, and nothing is stored, if the release or the endpoint has moved on."""
    with db.write() as connection:
        newest = connection.scalar(select(func.max(releases.c.number)).where(releases.c.release == row.release))
        endpoint = newest_of(connection, row.endpoint)
        if newest != row.number - 1 or endpoint is None or endpoint.revision != change.seen:
            return None
        return _write(connection, row, change)


def newest_release(db: LoomDB, endpoint: str) -> ReleaseRow | None:
    """The newest row of the endpoint's latest release."""
    with db.read() as connection:
        return _newest(connection, endpoint)


def show_release(db: LoomDB, endpoint: str) -> list[ReleaseRow]:
    """The rows of the endpoint's latest release, oldest first; a StoreError if there was none."""
    with db.read() as connection:
        newest = _newest(connection, endpoint)
        if newest is None:
            known = sorted(connection.scalars(select(releases.c.endpoint).distinct()))
            hint = did_you_mean(endpoint[:100], known)
            raise StoreError(f"endpoint {endpoint!r:.100} had no release yet. {there_are(known)}{hint}")
        return _log(connection, newest.release)


def list_releases(db: LoomDB, *, limit: int = 50, endpoint: str | None = None) -> list[ReleaseRow]:
    """The newest row of each release, latest first."""
    last = select(func.max(releases.c.position)).group_by(releases.c.release)
    query = select(releases).where(releases.c.position.in_(last)).order_by(releases.c.position.desc()).limit(limit)
    if endpoint is not None:
        query = query.where(releases.c.endpoint == endpoint)
    with db.read() as connection:
        return [_row_of(row) for row in connection.execute(query).mappings()]


def read_release(db: LoomDB, release: str) -> list[ReleaseRow]:
    """The rows of a release, oldest first."""
    with db.read() as connection:
        return _log(connection, release)


def last_observation(db: LoomDB) -> int:
    """The newest position of the observations; 0 if there are none."""
    with db.read() as connection:
        return connection.scalar(select(func.max(observations.c.position))) or 0


def _next_name(connection: Connection, endpoint: str) -> str:
    known = select(func.count(func.distinct(releases.c.release))).where(releases.c.endpoint == endpoint)
    return f"{endpoint}-{(connection.scalar(known) or 0) + 1}"


def _newest(connection: Connection, endpoint: str) -> ReleaseRow | None:
    query = select(releases).where(releases.c.endpoint == endpoint).order_by(releases.c.position.desc()).limit(1)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _row_of(row)


def _log(connection: Connection, release: str) -> list[ReleaseRow]:
    query = select(releases).where(releases.c.release == release).order_by(releases.c.number)
    return [_row_of(row) for row in connection.execute(query).mappings()]


def _write(connection: Connection, row: ReleaseRow, change: Change) -> ReleaseRow:
    endpoint = newest_of(connection, row.endpoint)
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
    content = {**stored.content, "revision": revision, "reason": row.reason, "who": row.who}
    columns = {
        "release": row.release,
        "number": row.number,
        "endpoint": row.endpoint,
        "state": row.state,
        "content": to_json(content, what=f"release {row.release!r}"),
        "created_at": row.created_at,
    }
    connection.execute(insert(releases).values(**columns))
    said = {"number": row.number, "state": row.state, "revision": revision, "reason": row.reason, "who": row.who}
    event = Event(kind="release.moved", subject=row.release, data=said, created_at=row.created_at)
    record(connection, event)
    _deploy(connection, stored, change)
    return stored


def _deploy(connection: Connection, row: ReleaseRow, change: Change) -> None:
    """Shares of the policies, and stages of those on record."""
    answering = [arm for arm in change.arms or () if arm.role is not Role.SHADOW]
    shares = {arm.policy: arm.share for arm in answering}
    for policy, stage in change.stages.items():
        stored = find(connection, policies, policy)
        if stored is not None and stored["stage"] != stage.value:
            move(
                connection, policy, stage=stage, moved_at=row.created_at, reason=f"release {row.release}: {row.reason}"
            )
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


def _row_of(row: Row) -> ReleaseRow:
    content = from_json(row["content"])
    return ReleaseRow(
        release=row["release"],
        number=row["number"],
        endpoint=row["endpoint"],
        state=row["state"],
        revision=content.pop("revision"),
        reason=content.pop("reason"),
        who=content.pop("who"),
        content=content,
        created_at=row["created_at"],
    )
