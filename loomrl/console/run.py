"""A run: its curves, findings, evaluations, and its report."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from loomrl.console.comparison import comparison_table, headlines
from loomrl.console.film import film_of_run
from loomrl.console.page import PageRequest, Pages
from loomrl.errors import LoomError
from loomrl.http.site import Refused
from loomrl.record.detail import RUN
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.runs import RUNS, Run, RunStatus, asked_to_stop, load_experiment
from loomrl.store.view.metrics import MetricRow, last_numbers, read_metrics, sample_metrics
from loomrl.telemetry.diagnosis import diagnose, too_few
from loomrl.telemetry.metric import PHASES, Metric
from loomrl.telemetry.number import Unit, percent
from loomrl.telemetry.panel import FAMILIES, OTHERS, sections
from loomrl.telemetry.report import Comparison
from loomrl.telemetry.sink import STEP
from loomrl.telemetry.sink import read_metrics as read_file

POINTS = 600
DOCTOR_ROWS = 400
MOST_TOGETHER = 8


def add_to(pages: Pages) -> None:
    """The pages of runs."""
    pages.get("/runs/{run}", _show)
    pages.get("/runs/{run}/metrics.json", _metrics)


def run_of(visit: PageRequest, name: str = "run") -> Run:
    """The run in the path; Refused 404."""
    id = visit.segment(name)
    found = RUNS.find(visit.source.db, id)
    if found is None:
        raise Refused(404, f"There is no run {id[:120]!r} in this store.")
    return found


def _show(visit: PageRequest) -> Response:
    run = run_of(visit)
    db = visit.source.db
    others = [id for id in dict.fromkeys(visit.queries("with")) if id != run.id][: MOST_TOGETHER - 1]
    unknown = [id for id in others if RUNS.find(db, id) is None]
    if unknown:
        raise Refused(404, f"There is no run {unknown[0][:120]!r} to draw beside this one.")
    return visit.page(
        "run.html",
        others=others,
        ids=[run.id, *others],
        recent=[each.id for each in RUNS.latest(db, limit=50, kind=run.kind) if each.id != run.id],
        position=EVENTS.last(db),
        **{**content(run, db), "film": film_of_run(db, run)},
    )


def content(run: Run, db: LoomDB) -> dict[str, Any]:
    """The content of a run's page, in the console and as a file, read from the record alone."""
    found = RUN.find(db, run.id)
    history = history_of(run, db)
    unit = unit_in({name for row in history for name in row})
    comparisons = [Comparison(**each) for each in run.result.get("comparisons", ())]
    return {
        "run": run,
        "detail": RUN,
        "found": found,
        "film": None,
        "unit": unit,
        "headlines": headlines(run, comparisons, history, unit),
        "comparisons": [comparison_table(each) for each in comparisons],
        "samples": run.result.get("samples", ()),
        "findings": diagnose(history) if history else None,
        "undiagnosed": too_few(history),
        "rows": last_numbers(db, [run.id]).get(run.id, len(history)),
        "stopping": asked_to_stop(db, run.id) if run.status is RunStatus.RUNNING else None,
    }


def unit_in(names: Iterable[str]) -> Unit:
    """Unit of `step` in rows with these metrics: environment steps for control, else updates."""
    return "steps" if {Metric.ENV_STEPS_PER_S, Metric.RETURN} & {*names} else "updates"


def history_of(run: Run, db: LoomDB) -> list[dict[str, float]]:
    """The metrics of a run as its doctor reads them, thinned out if there are very many."""
    _, rows = sample_metrics(db, run.id, most=DOCTOR_ROWS)
    if rows:
        return [{STEP: float(row.step), **{name: _float(value) for name, value in row.values.items()}} for row in rows]
    return _lines(run)


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _lines(run: Run) -> list[dict[str, float]]:
    """The metrics in the run's folder, if this machine has it; never a file outside of it."""
    try:
        folder = Path(load_experiment(run).train.folder).resolve()
    except (LoomError, AttributeError, OSError):  # evaluations and sweeps have none
        return []
    file = (folder / run.id / "metrics.jsonl").resolve()
    return read_file(file) if file.is_relative_to(folder) and file.is_file() else []


def _metrics(visit: PageRequest) -> Response:
    """A run's metrics by column: all of them thinned out, or what is past a number."""
    return JSONResponse(metrics_of(run_of(visit), visit.source.db, after=visit.whole("after", 0)))


def metrics_of(run: Run, db: LoomDB, *, after: int = 0) -> dict[str, Any]:
    """A run's metrics by column, with the charts that show them."""
    if after:
        every = 1
        rows = read_metrics(db, run.id, after=after, limit=POINTS)
    else:
        every, rows = sample_metrics(db, run.id, most=POINTS)
    if not rows and not after and (lines := _lines(run)):
        every = max(1, -(-len(lines) // POINTS))
        rows = [_from_line(run.id, number, line) for number, line in enumerate(lines, 1) if number % every == 0]
    columns = _columns(rows)
    drawn = [name for name, values in columns["values"].items() if _is_worth_drawing(name, values)]
    panels = _panels(drawn, unit_in(columns["values"]))
    return {"run": run.id, "started": run.started_at, "every": every, **columns, "panels": panels}


def _from_line(run: str, number: int, line: Mapping[str, float]) -> MetricRow:
    values = {name: value for name, value in line.items() if name not in (STEP, "time")}
    plain = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return MetricRow(run=run, number=number, step=int(line[STEP]), at=line["time"], tokens=None, values=plain)


def _columns(rows: Sequence[MetricRow]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    return {
        "last": rows[-1].number if rows else 0,
        "step": [row.step for row in rows],
        "time": [row.at for row in rows],
        "tokens": [row.tokens for row in rows],
        "values": {name: [row.values.get(name) for row in rows] for name in names},
    }


def _is_worth_drawing(name: str, values: Sequence[float | None]) -> bool:
    """False for a stage that never changed, and for a phase that took no time."""
    if name == Metric.STAGE:
        return len({*values} - {None}) > 1
    return name not in PHASES or any(values)


def _panels(names: Collection[str], unit: Unit) -> list[dict[str, Any]]:
    """The charts of these metrics, as the report has them."""
    return [
        {
            "section": title,
            "isFolded": title == OTHERS or title in FAMILIES,
            "title": panel.title,
            "note": panel.note,
            "names": panel.names,
            "span": panel.span,
            "isShare": panel.form is percent,
            "isStacked": panel.is_stacked,
        }
        for title, panels in sections(names, unit=unit).items()
        for panel in panels
    ]
