"""Endpoints: names that people call, and the policies behind each, by a revision that only grows.

A change is a new row; the newest row of a name holds. Two who change one endpoint at once cannot overwrite each other:
a change made for an old revision is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from sqlalchemy import Connection, select

from loomrl.errors import StoreError, did_you_mean, there_are
from loomrl.store.db import LoomDB
from loomrl.store.deployments import Deployment, deploy, identity_of
from loomrl.store.events import record
from loomrl.store.log import Log, Source, scalars
from loomrl.store.runs import refuse_forgotten
from loomrl.threshold import reaches
from loomrl.types import Stage, Verdict

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Role(StrEnum):
    """The part of an arm: stable answers what no other arm does, shadow gets copies of calls and is only compared."""

    STABLE = "stable"
    CANARY = "canary"
    SHADOW = "shadow"


_RANKS = {Role.SHADOW: 0, Role.CANARY: 1, Role.STABLE: 2}
"""The part that counts if one policy has several."""
_STAGES = {Role.SHADOW: Stage.CANDIDATE, Role.CANARY: Stage.CANARY, Role.STABLE: Stage.PRODUCTION}


class State(StrEnum):
    """A draining endpoint finishes open calls and refuses new ones; a deleted one is gone, but its history stays."""

    SERVING = "serving"
    DRAINING = "draining"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A policy behind an endpoint."""

    name: str
    policy: str
    """Key of the served policy, as replicas announce it: `RUN/12`, a folder, `RUN@newest`."""
    share: float = 1.0
    """Share of the traffic, 0..1; of a shadow, the share of calls that it gets a copy of."""
    role: Role = Role.STABLE
    content: str = ""
    """SHA-256 of a folder's files when the arm was made; empty for a policy version on record."""

    @property
    def identity(self) -> str:
        """The name that the policy is deployed under."""
        return identity_of(self.policy, self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One revision of an endpoint: one stable arm, and shares that sum to 1 without shadows."""

    name: str
    revision: int
    arms: tuple[Arm, ...]
    state: State = State.SERVING
    reason: str = ""
    """The reason of the change, for people."""
    created_at: float

    @property
    def stable(self) -> Arm:
        """The arm that answers what no other does."""
        return next(arm for arm in self.arms if arm.role is Role.STABLE)


ENDPOINTS = Log("endpoints", Endpoint, key=("name", "revision"))


def set_endpoint(
    db: LoomDB, name: str, arms: Sequence[Arm], *, at: float, revision: int | None = None, reason: str = ""
) -> Endpoint:
    """Give the endpoint these arms, and record the deployments.

    `revision` is the one the caller saw (0: none); None overwrites any.
    """
    if not _NAME.fullmatch(name):
        raise StoreError(
            f"endpoint={name!r:.120}: at most 100 letters, digits, '.', '_' and '-' are needed, such as policy-1."
        )
    draft = Endpoint(name=name, revision=0, arms=tuple(arms), reason=reason, created_at=at)
    with db.write() as connection:
        return change_endpoint(connection, draft, revision)


def drain_endpoint(db: LoomDB, name: str, *, at: float, revision: int | None = None, reason: str = "") -> Endpoint:
    """Have the endpoint refuse new calls. `set_endpoint` opens it again."""
    draft = Endpoint(name=name, revision=0, arms=(), state=State.DRAINING, reason=reason, created_at=at)
    with db.write() as connection:
        return change_endpoint(connection, draft, revision)


def delete_endpoint(db: LoomDB, name: str, *, at: float, revision: int | None = None, reason: str = "") -> Endpoint:
    """Delete the endpoint. Its history stays, and a new one of its name continues its revisions."""
    draft = Endpoint(name=name, revision=0, arms=(), state=State.DELETED, reason=reason, created_at=at)
    with db.write() as connection:
        return change_endpoint(connection, draft, revision)


def show_endpoint(db: LoomDB, name: str) -> Endpoint:
    """The endpoint of this name, as it is now; a StoreError names the nearest one."""
    found = ENDPOINTS.newest(db, name=name)
    if found is None or found.state is State.DELETED:
        raise _no_such(db, name)
    return found


def list_endpoints(source: Source) -> list[Endpoint]:
    """Every endpoint as it is now, by name."""
    found = ENDPOINTS.fetch(source, ENDPOINTS.newest_each("name").order_by(ENDPOINTS.c.name))
    return [endpoint for endpoint in found if endpoint.state is not State.DELETED]


def endpoint_names(db: LoomDB) -> list[str]:
    """Every name that an endpoint has had, also of deleted ones."""
    return scalars(db, select(ENDPOINTS.c.name).distinct().order_by(ENDPOINTS.c.name))


def change_endpoint(
    connection: Connection, draft: Endpoint, seen: int | None, *, is_released: bool = False
) -> Endpoint:
    """Store the draft under the next revision, in a transaction of others. Draining and deleting keep the arms.

    The deployments are recorded beside it, unless a release does so itself.
    """
    name = draft.name
    if draft.state is State.SERVING:
        _check(name, draft.arms)
        for arm in draft.arms:
            refuse_forgotten(connection, arm.policy)
    before = ENDPOINTS.newest(connection, name=name)
    held = 0 if before is None or before.state is State.DELETED else before.revision
    if not draft.arms and not held:
        raise _no_such(connection, name)
    if seen is not None and seen != held:
        raise StoreError(
            f"endpoint {name!r} is at revision {held}, and the change was made for revision {seen}: it was "
            "changed meanwhile. Look at it again (`loomrl endpoints show`), and repeat the change."
        )
    revision = 1 if before is None else before.revision + 1
    kept = before.arms if before and not draft.arms else draft.arms
    after = replace(draft, revision=revision, arms=kept)
    ENDPOINTS.append(connection, [after])
    arms = [asdict(arm) for arm in after.arms]
    data = {"revision": revision, "state": after.state, "arms": arms, "reason": after.reason}
    record(connection, "endpoint.changed", name, data, at=after.created_at)
    if not is_released:
        _deploy(connection, before, after)
    return after


def _deploy(connection: Connection, before: Endpoint | None, after: Endpoint) -> None:
    """A deployment for each policy whose part of the endpoint has changed; the newest is the one with most calls."""
    earlier = _parts(before)
    later = _parts(after)
    verdict = Verdict(True, (f"endpoint {after.name}, revision {after.revision}: {after.reason or 'set by hand'}",))
    retired = (Stage.RETIRED, 0.0)
    for policy in sorted({*earlier, *later}, key=lambda policy: (later.get(policy, retired)[1], policy)):
        if earlier.get(policy) == later.get(policy):
            continue
        stage, share = later.get(policy, retired)
        deployment = Deployment(
            id=f"{after.name}@{after.revision}/{policy}",
            policy=policy,
            stage=stage,
            endpoint=after.name,
            share=share,
            verdict=verdict,
            created_at=after.created_at,
        )
        deploy(connection, deployment)


def _parts(endpoint: Endpoint | None) -> dict[str, tuple[Stage, float]]:
    """Policy → its stage and its share of the traffic. Shadows have no share."""
    if endpoint is None or endpoint.state is State.DELETED:
        return {}
    found: dict[str, tuple[Stage, float]] = {}
    for arm in sorted(endpoint.arms, key=lambda arm: _RANKS[arm.role]):
        _, share = found.get(arm.identity, (None, 0.0))
        heard = 0.0 if arm.role is Role.SHADOW else arm.share
        found[arm.identity] = (_STAGES[arm.role], round(share + heard, 9))
    return found


def _no_such(source: Source, name: str) -> StoreError:
    known = [endpoint.name for endpoint in list_endpoints(source)]
    remedy = did_you_mean(name[:100], known) if known else " `loomrl serve VERSION` makes the first one."
    return StoreError(f"there is no endpoint {name!r:.100}. {there_are(known)}{remedy}")


def _check(name: str, arms: Sequence[Arm]) -> None:
    """A StoreError for arms that no call could be divided among."""
    where = f"endpoint {name!r}"
    names = [arm.name for arm in arms]
    twice = sorted({each for each in names if names.count(each) > 1})
    if twice:
        raise StoreError(f"{where}: arms need different names, and {', '.join(twice)} is there twice.")
    stable = [arm.name for arm in arms if arm.role is Role.STABLE]
    if len(stable) != 1:
        found = ", ".join(stable) or "none"
        raise StoreError(f"{where}: one stable arm is needed, which answers what no other does; there is {found}.")
    for arm in arms:
        if not 0 <= arm.share <= 1:
            raise StoreError(f"{where}: share={arm.share} of arm {arm.name!r} must lie between 0 and 1.")
    total = sum(arm.share for arm in arms if arm.role is not Role.SHADOW)
    if not (reaches(total, 1.0) and reaches(1.0, total)):
        raise StoreError(
            f"{where}: the shares of {', '.join(a.name for a in arms if a.role is not Role.SHADOW)} sum to {total:g}, "
            "and must sum to 1 (shadows do not count)."
        )
