"""Policy versions as lists and pictures show them."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import and_, or_

from loomrl.store.db import LoomDB
from loomrl.store.policies import EVALUATIONS, Evaluation
from loomrl.store.runs import POLICIES
from loomrl.types import PolicyVersion

Place = tuple[float, str]


class PolicyPage(NamedTuple):
    """Versions, newest first, and the place to continue from; None at the end."""

    policies: list[PolicyVersion]
    next: Place | None


def page_of_policies(db: LoomDB, *, run: str, stage: str, after: Place | None, limit: int) -> PolicyPage:
    """The next versions behind a place, which is a time and an id."""
    query = POLICIES.select()
    if run:
        query = query.where(POLICIES.c.run == run)
    if stage:
        query = query.where(POLICIES.c.stage == stage)
    if after is not None:
        at, id = after
        older = and_(POLICIES.c.created_at == at, POLICIES.c.id < id)
        query = query.where(or_(POLICIES.c.created_at < at, older))
    query = query.order_by(POLICIES.c.created_at.desc(), POLICIES.c.id.desc()).limit(limit + 1)
    found = POLICIES.fetch(db, query)
    last = found[limit - 1] if len(found) > limit else None
    return PolicyPage(found[:limit], None if last is None else (last.created_at, last.id))


def ancestors_of(db: LoomDB, policy: PolicyVersion, *, most: int) -> list[PolicyVersion]:
    """The version's parent, its parent's, and so on: nearest first, at most so many."""
    found: list[PolicyVersion] = []
    known = {policy.id}
    parent = policy.parent
    while parent is not None and parent not in known and len(found) < most:
        above = POLICIES.find(db, parent)
        if above is None:
            break
        found.append(above)
        known.add(parent)
        parent = above.parent
    return found


def children_of(db: LoomDB, ids: Sequence[str], *, most: int) -> list[PolicyVersion]:
    """Versions that were made from these, at most so many."""
    query = POLICIES.select().where(POLICIES.c.parent.in_(ids)).order_by(POLICIES.c.created_at, POLICIES.c.id)
    return POLICIES.fetch(db, query.limit(most))


def evaluations_of(db: LoomDB, ids: Sequence[str]) -> dict[str, Evaluation]:
    """The newest evaluation of each of these versions."""
    query = EVALUATIONS.select().where(EVALUATIONS.c.policy.in_(ids)).order_by(EVALUATIONS.c.position)
    return {one.policy: one for one in EVALUATIONS.fetch(db, query) if one.policy is not None}
