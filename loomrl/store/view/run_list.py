"""Runs as lists show them: filtered, sorted, a page at a time, without the texts of their experiments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, or_, select

from loomrl.errors import StoreError, unknown
from loomrl.store.db import LoomDB
from loomrl.store.runs import RUNS
from loomrl.store.view.tables import metrics

UNKNOWN = -1e300
"""Sorts before every metric."""
SORTS = ("started", "name", "status", "kind", "headline")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run on a line."""

    id: str
    name: str
    kind: str
    status: str
    started_at: float
    finished_at: float | None
    headline: float | None
    """The last value of what its small curve shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """The runs to list, and their order."""

    kind: str = ""
    status: str = ""
    text: str = ""
    """Part of an id or a name."""
    sort: str = "started"
    down: bool = True


class RunPage(NamedTuple):
    """Runs, and the place to continue from; None at the end."""

    runs: list[ListedRun]
    next: tuple[Any, str] | None


def page_of_runs(db: LoomDB, wanted: RunFilter, *, after: tuple[Any, str] | None, limit: int) -> RunPage:
    """The next runs behind a place, which is a sorted value and an id."""
    headline = _headline()
    order = _order(wanted.sort, headline)
    columns = (*(RUNS.c[name] for name in ("id", "name", "kind", "status", "started_at", "finished_at")), headline)
    query = select(*columns, order.label("place")).where(*_conditions(wanted))
    if after is not None:
        value, id = after
        further = order < value if wanted.down else order > value
        query = query.where(or_(further, and_(order == value, RUNS.c.id > id)))
    query = query.order_by(order.desc() if wanted.down else order.asc(), RUNS.c.id).limit(limit + 1)
    with db.read() as connection:
        rows = list(connection.execute(query).mappings())
    found = [ListedRun(**{name: row[name] for name in ListedRun.__slots__}) for row in rows[:limit]]
    last = rows[limit - 1] if len(rows) > limit else None
    return RunPage(found, None if last is None else (last["place"], last["id"]))


def list_run_kinds(db: LoomDB) -> list[str]:
    """The kinds that runs have."""
    with db.read() as connection:
        return sorted(connection.scalars(select(RUNS.c.kind).distinct()))


def trials_of(db: LoomDB, sweep: str) -> Sequence[str]:
    """The ids of a sweep's trials: they extend the sweep's."""
    query = select(RUNS.c.id).where(RUNS.c.id > f"{sweep}-", RUNS.c.id < f"{sweep}.").order_by(RUNS.c.id)
    with db.read() as connection:
        return list(connection.scalars(query.limit(10_000)))


def _conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if wanted.kind:
        found.append(RUNS.c.kind == wanted.kind)
    if wanted.status:
        found.append(RUNS.c.status == wanted.status)
    if wanted.text:
        found.append(
            or_(RUNS.c.id.contains(wanted.text, autoescape=True), RUNS.c.name.contains(wanted.text, autoescape=True))
        )
    return found


def _headline() -> ColumnElement[Any]:
    last = select(metrics.c.headline).where(metrics.c.run == RUNS.c.id, metrics.c.headline.is_not(None))
    return last.order_by(metrics.c.number.desc()).limit(1).correlate(RUNS.table).scalar_subquery().label("headline")


def _order(sort: str, headline: ColumnElement[Any]) -> ColumnElement[Any]:
    if sort not in SORTS:
        raise StoreError(unknown("sort", sort, SORTS))
    if sort == "headline":
        return func.coalesce(headline, UNKNOWN)
    return RUNS.c["started_at" if sort == "started" else sort]
