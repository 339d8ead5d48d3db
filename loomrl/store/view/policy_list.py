"""Policy versions as lists and pictures show them."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import and_, or_, select

from loomrl.store.db import LoomDB
from loomrl.store.evaluations import Evaluation
from loomrl.store.policies import policy_of
from loomrl.store.rows import from_json
from loomrl.store.tables import evaluations, policies
from loomrl.types import PolicyVersion

Place = tuple[float, str]


class PolicyPage(NamedTuple):
    """Versions, newest first, and the place to continue from; None at the end."""

    policies: list[PolicyVersion]
    next: Place | None


def page_of_policies(db: LoomDB, *, run: str, stage: str, after: Place | None, limit: int) -> PolicyPage:
    """The next versions behind a place, which is a time and an id."""
    query = select(policies)
    if run:
        query = query.where(policies.c.run == run)
    if stage:
        query = query.where(policies.c.stage == stage)
    if after is not None:
        at, id = after
        older = and_(policies.c.created_at == at, policies.c.id < id)
        query = query.where(or_(policies.c.created_at < at, older))
    query = query.order_by(policies.c.created_at.desc(), policies.c.id.desc()).limit(limit + 1)
    with db.read() as connection:
        found = [policy_of(row) for row in connection.execute(query).mappings()]
    last = found[limit - 1] if len(found) > limit else None
    return PolicyPage(found[:limit], None if last is None else (last.created_at, last.id))


def find_policy(db: LoomDB, id: str) -> PolicyVersion | None:
    """The version of this id, if there is one."""
    with db.read() as connection:
        row = connection.execute(select(policies).where(policies.c.id == id)).mappings().one_or_none()
    return None if row is None else policy_of(row)


def ancestors_of(db: LoomDB, policy: PolicyVersion, *, most: int) -> list[PolicyVersion]:
    """The version's parent, its parent's, and so on: nearest first, at most so many."""
    found: list[PolicyVersion] = []
    known = {policy.id}
    parent = policy.parent
    while parent is not None and parent not in known and len(found) < most:
        above = find_policy(db, parent)
        if above is None:
            break
        found.append(above)
        known.add(parent)
        parent = above.parent
    return found


def children_of(db: LoomDB, ids: Sequence[str], *, most: int) -> list[PolicyVersion]:
    """Versions that were made from these, at most so many."""
    query = select(policies).where(policies.c.parent.in_(ids)).order_by(policies.c.created_at, policies.c.id)
    with db.read() as connection:
        return [policy_of(row) for row in connection.execute(query.limit(most)).mappings()]


def evaluations_of(db: LoomDB, ids: Sequence[str]) -> dict[str, Evaluation]:
    """The newest evaluation of each of these versions."""
    query = select(evaluations).where(evaluations.c.policy.in_(ids)).order_by(evaluations.c.position)
    found: dict[str, Evaluation] = {}
    with db.read() as connection:
        for row in connection.execute(query).mappings():
            columns = {name: row[name] for name in ("id", "run", "policy", "created_at")}
            found[row["policy"]] = Evaluation(**columns, report=from_json(row["report"]))
    return found
