"""Metrics of runs, a row per update, read by cursor or thinned out for a curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, delete, func, insert, select

from loomrl.store.db import LoomDB
from loomrl.store.log import Row, from_json, to_json
from loomrl.store.view.tables import metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """The metrics of one update; None where a value is not finite."""

    run: str
    number: int
    """The update's number in its run, from 1."""
    step: int
    at: float
    tokens: float | None
    values: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMetrics:
    """One update's metrics, about to be stored."""

    run: str
    step: int
    values: Mapping[str, float | None]
    headline: float | None = None
    tokens: float | None = None
    """Sampled in this update."""


def append_metrics(db: LoomDB, new: NewMetrics, *, at: float) -> bool:
    """Store an update's metrics; False, and nothing is stored, if that step or a later one is there."""
    last = select(metrics.c.number, metrics.c.step, metrics.c.tokens).where(metrics.c.run == new.run)
    content = to_json(dict(new.values), what=f"metrics of run {new.run!r}")
    with db.write() as connection:
        before = connection.execute(last.order_by(metrics.c.number.desc()).limit(1)).one_or_none()
        if before is not None and before.step >= new.step:
            return False
        known = 0.0 if before is None or before.tokens is None else before.tokens
        row = {
            "run": new.run,
            "number": 1 if before is None else before.number + 1,
            "step": new.step,
            "headline": new.headline,
            "tokens": None if new.tokens is None else known + new.tokens,
            "content": content,
            "created_at": at,
        }
        connection.execute(insert(metrics).values(**row))
    return True


def cut_metrics(db: LoomDB, run: str, *, step: int) -> None:
    """Delete a run's metrics of later steps: a resumed run makes them again."""
    later = (metrics.c.run == run) & (metrics.c.step > step)
    with db.read() as connection:
        if connection.execute(select(metrics.c.position).where(later).limit(1)).first() is None:
            return
    with db.write() as connection:
        connection.execute(delete(metrics).where(later))


def read_metrics(db: LoomDB, run: str, *, after: int = 0, limit: int = 1000) -> list[MetricRow]:
    """A run's next rows past a number, in order."""
    query = _of(run).where(metrics.c.number > after).order_by(metrics.c.number).limit(limit)
    return _read(db, query)


def sample_metrics(db: LoomDB, run: str, *, most: int) -> tuple[int, list[MetricRow]]:
    """At most about so many rows of a run, every n-th and the last; and n."""
    last = last_numbers(db, [run]).get(run, 0)
    every = max(1, -(-last // most))
    wanted = (metrics.c.number % every == 0) | (metrics.c.number == last) | (metrics.c.number == 1)
    return every, _read(db, _of(run).where(wanted).order_by(metrics.c.number))


def last_numbers(db: LoomDB, runs: Sequence[str]) -> dict[str, int]:
    """The number of each run's last row; runs without rows are left out."""
    query = select(metrics.c.run, func.max(metrics.c.number)).where(metrics.c.run.in_(runs)).group_by(metrics.c.run)
    with db.read() as connection:
        return {row.run: row[1] for row in connection.execute(query)}


def headlines(db: LoomDB, runs: Mapping[str, int], *, most: int) -> dict[str, list[float]]:
    """Small curves of runs whose last numbers are given: at most about so many values of each."""
    found: dict[str, list[float]] = {run: [] for run in runs}
    by_stride: dict[int, list[str]] = {}
    for run, last in runs.items():
        by_stride.setdefault(max(1, -(-last // most)), []).append(run)
    with db.read() as connection:
        for every, those in by_stride.items():
            query = select(metrics.c.run, metrics.c.headline).where(
                metrics.c.run.in_(those), metrics.c.number % every == 0, metrics.c.headline.is_not(None)
            )
            for run, value in connection.execute(query.order_by(metrics.c.run, metrics.c.number)):
                found[run].append(value)
    return found


def last_headlined(db: LoomDB, runs: Sequence[str]) -> dict[str, MetricRow]:
    """The last row of each run that has a headline; runs without one are left out."""
    last = select(metrics.c.run, func.max(metrics.c.number).label("number"))
    last = last.where(metrics.c.run.in_(runs), metrics.c.headline.is_not(None)).group_by(metrics.c.run)
    found = last.subquery()
    query = select(metrics).join(found, (metrics.c.run == found.c.run) & (metrics.c.number == found.c.number))
    return {row.run: row for row in _read(db, query)}


def newest_metrics(db: LoomDB, *, after: int) -> list[tuple[int, str]]:
    """Rows past a position, as positions and runs, without what is in them."""
    query = select(metrics.c.position, metrics.c.run).where(metrics.c.position > after)
    with db.read() as connection:
        return [(row.position, row.run) for row in connection.execute(query.order_by(metrics.c.position).limit(10_000))]


def last_metrics(db: LoomDB) -> int:
    """The newest position; 0 without any."""
    with db.read() as connection:
        return int(connection.scalar(select(func.max(metrics.c.position))) or 0)


def _of(run: str) -> Select[Any]:
    return select(metrics).where(metrics.c.run == run)


def _read(db: LoomDB, query: Select[Any]) -> list[MetricRow]:
    with db.read() as connection:
        return [_row_of(row) for row in connection.execute(query).mappings()]


def _row_of(row: Row) -> MetricRow:
    return MetricRow(
        run=row["run"],
        number=row["number"],
        step=row["step"],
        at=row["created_at"],
        tokens=row["tokens"],
        values=from_json(row["content"]),
    )
