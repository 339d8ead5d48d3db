"""The table of runs: filtered, sorted, grouped, exported, and several of them compared."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import Any

from starlette.responses import Response

from loomrl.console.chart import sparkline
from loomrl.console.page import PAGE, Pages, Visit
from loomrl.console.run import MOST_TOGETHER, evaluation_row, place_as, place_in, unit_in
from loomrl.errors import LoomError
from loomrl.http.refusal import Refused
from loomrl.load import parse_yaml
from loomrl.record import word
from loomrl.schema import leaves
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.policies import EVALUATIONS
from loomrl.store.runs import RUNS, Run, RunStatus
from loomrl.store.view.metrics import headlines, last_headlined, last_numbers, read_metrics
from loomrl.store.view.run_list import SORTS, ListedRun, RunFilter, RunPage, kinds_of_runs, page_of_runs
from loomrl.telemetry.panel import SHARES, TITLES
from loomrl.telemetry.sink import headline_in

SPARKS = 48
MOST_GROUPED = 200
MOST_EXPORTED = 1000
GROUPINGS = ("experiment", "kind", "status", "environment")
"""Columns by which runs can be grouped, besides any setting by its path."""
_NUMBER = re.compile(r"[-+]?[\d.]+([eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Result:
    """The latest value of the metric that stands for a run."""

    title: str
    """`Success`, `Return` and the like."""
    value: float
    is_share: bool

    @property
    def text(self) -> str:
        """The value with its unit: `78.6 %` of a share, else a number."""
        return word.percent(self.value) if self.is_share else word.number(self.value)


@dataclass(frozen=True, slots=True)
class Row:
    """A run on a line."""

    run: ListedRun
    curve: Any
    result: Result | None


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that have something in common."""

    name: str
    rows: Sequence[Row]

    @property
    def means(self) -> str:
        """Mean results, by metric: `Success 74.5 %, mean of 3`."""
        found: dict[str, list[Result]] = {}
        for row in self.rows:
            if row.result is not None:
                found.setdefault(row.result.title, []).append(row.result)
        return "; ".join(
            f"{title} {Result(title, fmean(each.value for each in results), results[0].is_share).text}"
            + (f", mean of {len(results)}" if len(results) > 1 else "")
            for title, results in found.items()
        )


def add_to(pages: Pages) -> None:
    """The table, its export, and the comparison of runs."""
    pages.get("/runs", _list)
    pages.get("/runs.csv", _csv)
    pages.get("/runs.json", _json)
    pages.get("/compare/runs", _compare)


def _filter(visit: Visit) -> RunFilter:
    return RunFilter(
        kind=visit.query("kind")[:100],
        status=visit.choice("status", [status.value for status in RunStatus]),
        text=visit.query("text")[:200],
        sort=visit.choice("sort", SORTS, "started"),
        down=visit.choice("order", ("down", "up"), "down") == "down",
    )


def _list(visit: Visit) -> Response:
    db = visit.source.db
    wanted = _filter(visit)
    by = visit.query("group")[:200].strip()
    page = page_of_runs(db, wanted, after=place_in(visit.query("after")), limit=MOST_GROUPED if by else PAGE)
    rows = rows_of(db, page)
    return visit.page(
        "runs.html",
        groups=group_rows(db, rows, by) if by else [Group("", rows)] if rows else [],
        by=by,
        groupings=GROUPINGS,
        most=MOST_GROUPED,
        wanted=wanted,
        kinds=kinds_of_runs(db),
        statuses=[status.value for status in RunStatus],
        next=None if page.next is None else place_as(page.next),
        position=EVENTS.last(db),
    )


def rows_of(db: LoomDB, page: RunPage) -> list[Row]:
    """The lines of a page."""
    ids = [each.id for each in page.runs]
    curves = headlines(db, last_numbers(db, ids), most=SPARKS)
    results = results_of(db, ids)
    return [Row(each, sparkline(curves.get(each.id, ())), results.get(each.id)) for each in page.runs]


def results_of(db: LoomDB, ids: Sequence[str]) -> dict[str, Result]:
    """The results of runs; those without metrics have none."""
    found = {}
    for id, row in last_headlined(db, ids).items():
        metric = headline_in(row.values)
        if metric is not None:
            found[id] = Result(TITLES[metric], float(row.values[metric] or 0.0), metric in SHARES)
    return found


def group_rows(db: LoomDB, rows: Sequence[Row], by: str) -> list[Group]:
    """The rows by what they have in common, in the order of their first ones."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_common(db, row.run, by), []).append(row)
    return [Group(name, those) for name, those in found.items()]


def _common(db: LoomDB, listed: ListedRun, by: str) -> str:
    """The group of a run; a dash if it lacks the value."""
    simple = {"experiment": listed.name, "kind": listed.kind, "status": listed.status}
    if by in simple:
        return simple[by]
    run = RUNS.find(db, listed.id)
    if run is None:
        return "–"
    if by == "environment":
        return ", ".join(sorted(run.environments)) or "–"
    return _plain(settings_of(run.resolved).get(by)) or "–"


def _plain(value: str | None) -> str:
    """A setting as text: a string without its quotes, anything else as JSON."""
    return "" if value is None else str(json.loads(value)) if value.startswith('"') else value


@lru_cache(maxsize=MOST_EXPORTED)
def settings_of(resolved: str) -> Mapping[str, str]:
    """The settings of a resolved experiment by path, as JSON."""
    try:
        return leaves(parse_yaml(resolved, origin="experiment"))
    except LoomError:
        return {"experiment": json.dumps(resolved)}


def differing(runs: Sequence[Run]) -> list[tuple[str, list[str | None]]]:
    """The settings that are not the same in all of these runs, with each run's value."""
    trees = [settings_of(run.resolved) for run in runs]
    paths = sorted({path for tree in trees for path in tree})
    values = ((path, [tree.get(path) for tree in trees]) for path in paths)
    return [(path, each) for path, each in values if len(set(each)) > 1]


def _selected_runs(visit: Visit, *, most: int) -> list[Run]:
    """The runs that the address names; Refused for too many, or for one that is not there."""
    ids = list(dict.fromkeys(visit.queries("run")))
    if len(ids) > most:
        raise Refused(400, f"{len(ids)} runs were ticked: {most} fit on a page. Tick fewer.")
    found = [RUNS.find(visit.source.db, id) for id in ids]
    runs = [run for run in found if run is not None]
    if len(runs) < len(ids):
        missing = next(id for id, run in zip(ids, found, strict=True) if run is None)
        raise Refused(404, f"There is no run {missing[:120]!r} in this store.")
    return runs


def _compare(visit: Visit) -> Response:
    db = visit.source.db
    runs = _selected_runs(visit, most=MOST_TOGETHER)
    if len(runs) < 2:
        raise Refused(400, "A comparison needs two runs. Tick them in the list of runs.")
    results = results_of(db, [run.id for run in runs])
    evaluations = {run.id: EVALUATIONS.latest(db, run=run.id, limit=1) for run in runs}
    return visit.page(
        "compare_runs.html",
        runs=runs,
        ids=[run.id for run in runs],
        unit=" or ".join(sorted({_unit(db, run) for run in runs})),
        results=results,
        evaluations={id: evaluation_row(found[0]) for id, found in evaluations.items() if found},
        settings=differing(runs),
        position=EVENTS.last(db),
    )


def _unit(db: LoomDB, run: Run) -> str:
    return unit_in({name for row in read_metrics(db, run.id, limit=1) for name in row.values})


def _runs_to_export(visit: Visit) -> list[Run]:
    """The runs that are ticked, or all that the filter leaves; Refused 400 for more than fit."""
    if visit.queries("run"):
        return _selected_runs(visit, most=MOST_EXPORTED)
    page = page_of_runs(visit.source.db, _filter(visit), after=None, limit=MOST_EXPORTED)
    if page.next is not None:
        raise Refused(400, f"More than {MOST_EXPORTED:,} runs are like that. Filter further, or tick some.")
    found = (RUNS.find(visit.source.db, each.id) for each in page.runs)
    return [run for run in found if run is not None]


def _records(db: LoomDB, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Exported columns besides the settings."""
    results = results_of(db, [run.id for run in runs])
    for run in runs:
        result = results.get(run.id)
        judged = [evaluation_row(each) for each in EVALUATIONS.latest(db, run=run.id, limit=1)]
        told = judged[0] if judged else {}
        yield {
            "run": run.id,
            "experiment": run.name,
            "kind": run.kind,
            "status": run.status.value,
            "started_at": word.iso(run.started_at),
            "finished_at": None if run.finished_at is None else word.iso(run.finished_at),
            "result": None if result is None else result.title.lower(),
            "value": None if result is None else result.value,
            "evaluated": told.get("what"),
            "evaluation": told.get("mean"),
            "low": told.get("low"),
            "high": told.get("high"),
            "attempts": told.get("count"),
            "from": run.parent_policy,
            "code": run.code,
            "sha256": run.experiment,
        }


def _csv(visit: Visit) -> Response:
    """One line a run; the settings that differ are columns."""
    runs = _runs_to_export(visit)
    settings = differing(runs)
    text = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for number, record in enumerate(_records(visit.source.db, runs)):
        record |= {path: _plain(values[number]) for path, values in settings}
        if writer is None:
            writer = csv.DictWriter(text, list(record))
            writer.writeheader()
        writer.writerow({name: _cell(value) for name, value in record.items()})
    return _file(text.getvalue(), "text/csv", "runs.csv")


def _cell(value: Any) -> Any:
    """A value that no spreadsheet takes for a formula."""
    is_text = isinstance(value, str) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_text and value.startswith(("=", "+", "-", "@")) else value


def _json(visit: Visit) -> Response:
    """A list of runs, each with all of its settings."""
    runs = _runs_to_export(visit)
    found = [
        record | {"settings": {path: json.loads(value) for path, value in settings_of(run.resolved).items()}}
        for run, record in zip(runs, _records(visit.source.db, runs), strict=True)
    ]
    return _file(json.dumps(found, ensure_ascii=False, indent=1), "application/json", "runs.json")


def _file(text: str, kind: str, name: str) -> Response:
    return Response(text, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
