"""Verdicts of the gate, and people's approvals of them: rows that are never edited."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, insert, select

from loomrl.errors import StoreError, did_you_mean, there_are
from loomrl.store.db import LoomDB
from loomrl.store.events import Event, record
from loomrl.store.rows import Row, columns_of, find, from_json, insert_once, require, to_json
from loomrl.store.tables import approvals, verdicts


class VerdictOutcome(StrEnum):
    """A verdict's outcome. Waiting: for a person's approval. Error: nothing was found out about the policy."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    WAITING = "waiting"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """A verdict about a policy, with its evidence."""

    id: str
    policy: str
    """Key of the policy, as arms name it: `RUN/12`, or a folder."""
    fingerprint: str
    """Hash of a folder's files; empty for a version on record, which never changes."""
    against: str | None
    """Key of the baseline."""
    suite: str
    """`name@version`."""
    suite_hash: str
    """SHA-256 of the resolved suite."""
    outcome: VerdictOutcome
    """As the gate found it."""
    report: Mapping[str, Any]
    """The evidence: `checks`, `improvement`, `strategy`, `approvers`, seeds and settings."""
    created_at: float
    approved_by: tuple[str, ...] = ()
    """People who approved it since."""

    @property
    def failed_checks(self) -> list[str]:
        """Names of the checks that failed or had no result."""
        return [check["name"] for check in self.report["checks"] if check["state"] in ("failed", "error")]

    @property
    def is_allowed(self) -> bool:
        """True if the policy may go to production, by the evidence and, where needed, a person's approval."""
        return self.outcome is VerdictOutcome.ALLOWED or (
            self.outcome is VerdictOutcome.WAITING and bool(self.approved_by)
        )


def record_verdict(db: LoomDB, verdict: StoredVerdict) -> None:
    """Store a verdict once; the same id with other content is a StoreError."""
    row = columns_of(verdict) | {
        "outcome": verdict.outcome.value,
        "report": to_json(dict(verdict.report), what=f"verdict {verdict.id!r} report"),
    }
    del row["approved_by"]
    data = {"policy": verdict.policy, "against": verdict.against, "suite": verdict.suite, "outcome": row["outcome"]}
    with db.write() as connection:
        if insert_once(connection, verdicts, row):
            record(connection, Event(kind="verdict.made", subject=verdict.id, data=data, created_at=verdict.created_at))


def approve_verdict(db: LoomDB, id: str, *, who: str, at: float, comment: str = "") -> StoredVerdict:
    """Record a person's approval; only a waiting verdict can be approved, and only by those whom its suite names."""
    with db.write() as connection:
        verdict = _verdict_of(connection, require(connection, verdicts, id))
        if verdict.outcome is not VerdictOutcome.WAITING:
            raise StoreError(
                f"verdict {id!r} is {verdict.outcome.value}: only one that waits for an approval can be approved."
            )
        allowed = list(verdict.report.get("approvers", ()))
        if who not in allowed:
            raise StoreError(
                f"who={who!r:.100} may not approve verdict {id!r} by suite {verdict.suite}. {there_are(allowed)}"
                f"{did_you_mean(who[:100], allowed)}"
            )
        if who in verdict.approved_by:
            return verdict
        connection.execute(insert(approvals).values(verdict=id, who=who, comment=comment, created_at=at))
        data = {"who": who, "comment": comment}
        record(connection, Event(kind="verdict.approved", subject=id, data=data, created_at=at))
        return replace(verdict, approved_by=(*verdict.approved_by, who))


def show_verdict(db: LoomDB, id: str) -> StoredVerdict:
    """The verdict of this id."""
    with db.read() as connection:
        return _verdict_of(connection, require(connection, verdicts, id))


def read_verdict(db: LoomDB, id: str) -> StoredVerdict | None:
    """The verdict of this id; None if there is none."""
    with db.read() as connection:
        row = find(connection, verdicts, id)
        return None if row is None else _verdict_of(connection, row)


def find_verdict(
    db: LoomDB, *, policy: str, fingerprint: str, against: str | None, suite_hash: str
) -> StoredVerdict | None:
    """The latest verdict about a policy against this baseline by this suite."""
    query = select(verdicts).where(
        verdicts.c.policy == policy,
        verdicts.c.fingerprint == fingerprint,
        verdicts.c.against.is_not_distinct_from(against),
        verdicts.c.suite_hash == suite_hash,
    )
    with db.read() as connection:
        row = connection.execute(query.order_by(verdicts.c.position.desc()).limit(1)).mappings().one_or_none()
        return None if row is None else _verdict_of(connection, row)


def list_verdicts(db: LoomDB, *, limit: int = 50, policy: str | None = None) -> list[StoredVerdict]:
    """The latest verdicts, newest first."""
    query = select(verdicts).order_by(verdicts.c.position.desc()).limit(limit)
    if policy is not None:
        query = query.where(verdicts.c.policy == policy)
    with db.read() as connection:
        return [_verdict_of(connection, row) for row in connection.execute(query).mappings()]


def _verdict_of(connection: Connection, row: Row) -> StoredVerdict:
    approved = select(approvals.c.who).where(approvals.c.verdict == row["id"]).order_by(approvals.c.position)
    columns = {
        **row,
        "outcome": VerdictOutcome(row["outcome"]),
        "report": from_json(row["report"]),
        "approved_by": tuple(connection.scalars(approved)),
    }
    del columns["position"]
    return StoredVerdict(**columns)
