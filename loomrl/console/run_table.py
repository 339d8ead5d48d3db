"""The table of runs: filtered, sorted, grouped, exported, and several of them compared."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import Any

from starlette.responses import Response

from loomrl.console.chart import sparkline
from loomrl.console.listing import ListPage
from loomrl.console.page import PAGE, PageRequest, Pages
from loomrl.console.run import MOST_TOGETHER, unit_in
from loomrl.errors import LoomError
from loomrl.http.site import Refused
from loomrl.load import parse_yaml
from loomrl.record import word
from loomrl.record.catalogue import RUN_RECORDS, Headline, RunRow, evaluation_summary, headlines_of
from loomrl.record.detail import RUN
from loomrl.schema import leaves
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.policies import EVALUATIONS
from loomrl.store.runs import RUNS, Run
from loomrl.store.view.metrics import headlines, last_numbers, read_metrics
from loomrl.store.view.run_list import ListedRun

SPARKS = 48
MOST_GROUPED = 200
MOST_EXPORTED = 1000
GROUPINGS = ("experiment", "kind", "status", "environment")
"""Columns by which runs can be grouped, besides any setting by its path."""
_NUMBER = re.compile(r"[-+]?[\d.]+([eE][-+]?\d+)?")


RUN_LIST = ListPage[RunRow](
    path="/runs",
    title="Runs",
    record=RUN_RECORDS,
    live="run,metrics,evaluation",
    template="runs.html",
    detail=RUN,
)


def add_to(pages: Pages) -> None:
    """The table, its export, and the comparison of runs."""
    pages.get("/runs", _list)
    RUN_LIST.add_actions(pages)
    pages.get("/runs.csv", _csv)
    pages.get("/runs.json", _json)
    pages.get("/compare/runs", _compare)


def _list(visit: PageRequest) -> Response:
    by = visit.query("group")[:200].strip()
    page = RUN_LIST.read(visit, limit=MOST_GROUPED if by else PAGE)
    groups = group_rows(visit.source.db, page.rows, by) if by else [("", "", page.rows)] if page.rows else []
    db = visit.source.db
    curves = headlines(db, last_numbers(db, [row.run.id for row in page.rows]), most=SPARKS)
    listing = replace(RUN_LIST, cells={"curve": lambda _, row: sparkline(curves.get(row.run.id, ()))})
    return visit.page(
        listing.template,
        rows=page.rows,
        next=page.next,
        groups=groups,
        by=by,
        groupings=GROUPINGS,
        most=MOST_GROUPED,
        **listing.context(visit),
    )


def group_rows(db: LoomDB, rows: Sequence[RunRow], by: str) -> list[tuple[str, str, Sequence[RunRow]]]:
    """The rows by what they have in common, in the order of their first ones: name, number and means, rows."""
    found: dict[str, list[RunRow]] = {}
    for row in rows:
        found.setdefault(_common(db, row.run, by), []).append(row)
    return [(name, " – ".join([str(len(those)), *_means(those)]), those) for name, those in found.items()]


def _means(rows: Sequence[RunRow]) -> list[str]:
    """Mean headlines, by metric: `Success 74.5 %, mean of 3`."""
    found: dict[str, list[Headline]] = {}
    for row in rows:
        if row.headline is not None:
            found.setdefault(row.headline.title, []).append(row.headline)
    means = [
        f"{Headline(title, fmean(each.value for each in headlines), headlines[0].is_share)}"
        + (f", mean of {len(headlines)}" if len(headlines) > 1 else "")
        for title, headlines in found.items()
    ]
    return ["; ".join(means)] if means else []


def _common(db: LoomDB, listed: ListedRun | Run, by: str) -> str:
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


def _selected_runs(visit: PageRequest, *, most: int) -> list[Run]:
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


def _compare(visit: PageRequest) -> Response:
    db = visit.source.db
    runs = _selected_runs(visit, most=MOST_TOGETHER)
    if len(runs) < 2:
        raise Refused(400, "A comparison needs two runs. Tick them in the list of runs.")
    results = headlines_of(db, [run.id for run in runs])
    evaluations = {run.id: EVALUATIONS.latest(db, run=run.id, limit=1) for run in runs}
    return visit.page(
        "compare_runs.html",
        runs=runs,
        ids=[run.id for run in runs],
        unit=" or ".join(sorted({_unit(db, run) for run in runs})),
        results=results,
        evaluations={id: evaluation_summary(found[0]) for id, found in evaluations.items() if found},
        settings=differing(runs),
        position=EVENTS.last(db),
    )


def _unit(db: LoomDB, run: Run) -> str:
    return unit_in({name for row in read_metrics(db, run.id, limit=1) for name in row.values})


def _runs_to_export(visit: PageRequest) -> list[Run]:
    """The runs that are ticked, or all that the filter leaves; Refused 400 for more than fit."""
    if visit.queries("run"):
        return _selected_runs(visit, most=MOST_EXPORTED)
    page = RUN_LIST.read(visit, limit=MOST_EXPORTED)
    if page.next is not None:
        raise Refused(400, f"More than {MOST_EXPORTED:,} runs are like that. Filter further, or tick some.")
    found = (RUNS.find(visit.source.db, row.run.id) for row in page.rows)
    return [run for run in found if run is not None]


def _records(db: LoomDB, runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Exported columns besides the settings."""
    results = headlines_of(db, [run.id for run in runs])
    for run in runs:
        result = results.get(run.id)
        told = next((evaluation_summary(each) for each in EVALUATIONS.latest(db, run=run.id, limit=1)), {})
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


def _csv(visit: PageRequest) -> Response:
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


def _json(visit: PageRequest) -> Response:
    """A list of runs, each with all of its settings."""
    runs = _runs_to_export(visit)
    found = [
        record | {"settings": {path: json.loads(value) for path, value in settings_of(run.resolved).items()}}
        for run, record in zip(runs, _records(visit.source.db, runs), strict=True)
    ]
    return _file(json.dumps(found, ensure_ascii=False, indent=1), "application/json", "runs.json")


def _file(text: str, kind: str, name: str) -> Response:
    return Response(text, media_type=kind, headers={"content-disposition": f'attachment; filename="{name}"'})
