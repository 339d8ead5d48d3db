"""Evaluations of policies, as reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from loomrl.store.db import LoomDB, repeated
from loomrl.store.events import Event, record
from loomrl.store.rows import Row, columns_of, from_json, insert_once, require, to_json
from loomrl.store.tables import evaluations, policies, runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A report and its subject. A scripted policy such as the oracle has no version."""

    id: str
    report: Mapping[str, Any]
    created_at: float
    run: str | None = None
    policy: str | None = None


@repeated
def record_evaluation(db: LoomDB, evaluation: Evaluation) -> None:
    """Store an evaluation once. Its run and policy must be stored; the same id with other content is a StoreError."""
    report = to_json(dict(evaluation.report), what=f"evaluation {evaluation.id!r} report")
    about = {"run": evaluation.run, "policy": evaluation.policy}
    event = Event(kind="evaluation.made", subject=evaluation.id, data=about, created_at=evaluation.created_at)
    with db.write() as connection:
        if evaluation.run is not None:
            require(connection, runs, evaluation.run)
        if evaluation.policy is not None:
            require(connection, policies, evaluation.policy)
        if insert_once(connection, evaluations, columns_of(evaluation) | {"report": report}):
            record(connection, event)


def list_evaluations(
    db: LoomDB, *, limit: int = 50, run: str | None = None, policy: str | None = None
) -> list[Evaluation]:
    """The latest evaluations, newest first."""
    query = select(evaluations).order_by(evaluations.c.position.desc()).limit(limit)
    if run is not None:
        query = query.where(evaluations.c.run == run)
    if policy is not None:
        query = query.where(evaluations.c.policy == policy)
    with db.read() as connection:
        return [_evaluation_of(row) for row in connection.execute(query).mappings()]


def _evaluation_of(row: Row) -> Evaluation:
    columns = {**row, "report": from_json(row["report"])}
    del columns["position"]
    return Evaluation(**columns)
