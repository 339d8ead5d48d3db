"""The explorer: questions in SQL to the columns of what is on record, as a table and a chart."""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from starlette.responses import Response

from loomrl.analytics.engine import ChdbEngine
from loomrl.analytics.place import StoreLocation, place_of
from loomrl.analytics.question import QueryAnswer, QueryLimits, open_asking, question_of
from loomrl.analytics.schema import STANDARD, TABLES
from loomrl.console.chart import Form, XForm, bar_chart, line_chart
from loomrl.console.page import PageRequest, Pages
from loomrl.errors import AnalyticsError
from loomrl.http.site import Refused
from loomrl.record import word

LONGEST = 20_000
"""Characters of a question."""
SCREEN = QueryLimits(rows=500, timeout_s=10.0, memory_mb=1024, wait_s=5.0)
FILE = QueryLimits(rows=0, timeout_s=30.0, memory_mb=1024, wait_s=5.0)
MOST_LINES = 8
MOST_BARS = 40
MEASURES = ("success", "mean", "reward", "sampled_per_success", "usd")
"""Columns of the standard questions that say how good something was, best first; the others are counts."""
SHARES = ("success", "negative")
"""Columns from 0 to 1, drawn in percent."""


@dataclass(slots=True)
class Explorer:
    """Asks one question at a time: columns in a folder are for one process, and one use of it."""

    url: str
    analytics: str | None
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _engine: ChdbEngine = field(default_factory=ChdbEngine)

    @property
    def place(self) -> StoreLocation:
        """Where the columns are; an AnalyticsError if it is not named and not beside LoomDB."""
        return place_of(self.analytics, self.url)

    def ask(self, sql: str, limits: QueryLimits) -> QueryAnswer:
        """The answer; an AnalyticsError says what is wrong with the question, or with the place."""
        with self._lock(limits), open_asking(self.place, limits, engine=self._engine) as asking:
            return asking.ask(sql)

    def csv(self, sql: str) -> bytes:
        """All rows."""
        with self._lock(FILE), open_asking(self.place, FILE, engine=self._engine) as asking:
            return asking.ask_as(sql, "CSVWithNames")

    def close(self) -> None:
        """End the process that answers."""
        self._engine.close()

    @contextmanager
    def _lock(self, limits: QueryLimits) -> Iterator[None]:
        if not self._turn.acquire(timeout=limits.wait_s):
            raise AnalyticsError("another question is being answered here. Ask again in a moment.")
        try:
            yield
        finally:
            self._turn.release()


def add_to(pages: Pages, explorer: Explorer) -> None:
    """The page, and its answers as a file."""

    def show(visit: PageRequest) -> Response:
        return _show(visit, explorer)

    def as_file(visit: PageRequest) -> Response:
        name = {"content-disposition": 'attachment; filename="answer.csv"'}
        return Response(explorer.csv(_question(visit)), media_type="text/csv", headers=name)

    pages.get("/explore", show)
    pages.get("/explore.csv", as_file)


def _question(visit: PageRequest) -> str:
    sql = visit.query("sql").strip()
    if len(sql) > LONGEST:
        raise Refused(400, f"A question has at most {LONGEST} characters.")
    return question_of(sql)


def _show(visit: PageRequest, explorer: Explorer) -> Response:
    answer = None
    message = ""
    status = 200
    if sql := _question(visit):
        try:
            answer = explorer.ask(sql, SCREEN)
        except AnalyticsError as error:
            message = str(error)
            status = 400
    numbers = [] if answer is None else answer.numbers
    axes = {name: visit.query(name) for name in ("x", "y", "by")}
    return visit.page(
        "explore.html",
        status,
        sql=visit.query("sql"),
        message=message,
        answer=answer,
        numbers=numbers,
        rows=[] if answer is None else [[_cell_text(cell) for cell in row] for row in answer.rows],
        axes=axes,
        picture="" if answer is None else _picture(answer, numbers, **axes),
        standard=STANDARD,
        tables=[table.name for table in TABLES],
    )


def _picture(answer: QueryAnswer, numbers: Sequence[str], *, x: str, y: str, by: str) -> str:
    """The answer as lines where x is a number or a time, else as bars; empty if there is nothing to draw."""
    columns = list(answer.columns)
    for name in (x, y, by):
        if name and name not in columns:
            raise Refused(400, f"The answer has no column {name[:80]!r}. It has {', '.join(columns)}.")
    across = x or next((name for name in columns if name not in numbers), columns[0] if columns else "")
    up = y or _measure(answer, [name for name in numbers if name != across])
    if not up or up not in numbers:
        return ""
    form: Form = "percent" if up in SHARES else "number"
    at = columns.index(across)
    value = columns.index(up)
    part = columns.index(by) if by else None
    if across in numbers or all(isinstance(row[at], date) for row in answer.rows):
        drawn: dict[str, dict[float, float]] = {}
        for row in answer.rows:
            if (place := _place(row[at])) is not None and _finite(row[value]):
                name = "" if part is None else _cell_text(row[part])
                drawn.setdefault(name, {})[place] = float(row[value])
        most = sorted(drawn.items(), key=lambda each: -len(each[1]))[:MOST_LINES]
        xs = sorted({place for _, points in most for place in points})
        lines = {name or up: [points.get(place) for place in xs] for name, points in most}
        x_form: XForm = "number" if across in numbers else "clock"
        return line_chart(f"{up} along {across}", xs, lines, form=form, x_form=x_form)
    found = [(_cell_text(row[at]) or "–", float(row[value])) for row in answer.rows if _finite(row[value])]
    note = f"and {len(found) - MOST_BARS} more" if len(found) > MOST_BARS else ""
    return bar_chart(up, found[:MOST_BARS], form=form, note=note)


def _measure(answer: QueryAnswer, numbers: Sequence[str]) -> str:
    """The column that is drawn where none is chosen: a measure with values before any count; empty without numbers."""
    columns = list(answer.columns)
    measures = [name for name in MEASURES if name in numbers]
    known = (name for name in measures if any(_finite(row[columns.index(name)]) for row in answer.rows))
    return next(known, next(iter(numbers), ""))


def _place(cell: Any) -> float | None:
    """Its place on an axis of numbers; a time in seconds since 1970."""
    if isinstance(cell, datetime):
        return cell.timestamp()
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day).timestamp()
    return float(cell) if _finite(cell) else None


def _finite(cell: Any) -> bool:
    return isinstance(cell, int | float) and math.isfinite(cell)


def _cell_text(cell: Any) -> str:
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return "–" if cell is None else f"{cell:%Y-%m-%d %H:%M:%S}" if isinstance(cell, datetime) else str(cell)
    return word.number(cell)
