"""Verdicts of the gate. Only people's approvals are added to them, each with an event."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import update

from loomrl.errors import StoreError, did_you_mean, there_are
from loomrl.store.db import LoomDB
from loomrl.store.events import record
from loomrl.store.log import Log, to_json


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
    """The gate's finding, before any approval."""
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


VERDICTS = Log("verdicts", StoredVerdict, index=("policy",))


def record_verdict(db: LoomDB, verdict: StoredVerdict) -> None:
    """Store a verdict once; the same id with other content is a StoreError."""
    data = {"policy": verdict.policy, "against": verdict.against, "suite": verdict.suite, "outcome": verdict.outcome}
    with db.write() as connection:
        if VERDICTS.insert_once(connection, verdict, changing=("approved_by",)):
            record(connection, "verdict.made", verdict.id, data, at=verdict.created_at)


def approve_verdict(db: LoomDB, id: str, *, who: str, at: float, comment: str = "") -> StoredVerdict:
    """Record a person's approval; only a waiting verdict can be approved, and only by those whom its suite names."""
    with db.write() as connection:
        verdict = VERDICTS.require(connection, id)
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
        approved_by = (*verdict.approved_by, who)
        text = to_json(approved_by, what="approved_by")
        connection.execute(update(VERDICTS.table).where(VERDICTS.c.id == id).values(approved_by=text))
        record(connection, "verdict.approved", id, {"who": who, "comment": comment}, at=at)
        return replace(verdict, approved_by=approved_by)


def find_verdict(
    db: LoomDB, *, policy: str, fingerprint: str, against: str | None, suite_hash: str
) -> StoredVerdict | None:
    """The latest verdict about a policy against this baseline by this suite."""
    same = VERDICTS.select(policy=policy, fingerprint=fingerprint, suite_hash=suite_hash)
    same = same.where(VERDICTS.c.against.is_not_distinct_from(against))
    return VERDICTS.first(db, same.order_by(VERDICTS.c.position.desc()))
