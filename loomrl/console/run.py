"""Runs: the table, a run with its curves, and comparisons."""

import base64
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse, Response

from loomrl.console.page import PAGE, Pages, Visit
from loomrl.console.picture import interval, sparkline
from loomrl.errors import LoomError
from loomrl.http.refusal import Refused
from loomrl.load import parse_yaml
from loomrl.schema import Difference, differences
from loomrl.store import LoomDB
from loomrl.store.evaluations import Evaluation, list_evaluations
from loomrl.store.events import last_event
from loomrl.store.policies import list_policies
from loomrl.store.runs import Run, RunStatus, asked_to_stop, find_run, list_runs, machine_of, recorded_experiment
from loomrl.store.view.metrics import MetricRow, headlines, last_numbers, read_metrics, thinned_metrics
from loomrl.store.view.run_list import SORTS, RunFilter, kinds_of_runs, page_of_runs
from loomrl.telemetry.diagnosis import diagnose, too_few
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import STEP
from loomrl.telemetry.sink import read_metrics as read_file

SPARKS, POINTS, DOCTOR_ROWS = 48, 600, 400
MOST_TOGETHER = 8
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
"""A report is a page of its own, with its style in it and no script."""


def add_to(pages: Pages) -> None:
    """The pages of runs."""
    pages.get("/runs", _list)
    pages.get("/runs/{run}", _show)
    pages.get("/runs/{run}/metrics.json", _metrics)
    pages.get("/runs/{run}/report", _report)
    pages.get("/runs/{run}/against/{other}", _against)


def _list(visit: Visit) -> Response:
    db = visit.source.db
    wanted = RunFilter(
        kind=visit.query("kind")[:100],
        status=visit.choice("status", [status.value for status in RunStatus]),
        text=visit.query("text")[:200],
        sort=visit.choice("sort", SORTS, "started"),
        down=visit.choice("order", ("down", "up"), "down") == "down",
    )
    page = page_of_runs(db, wanted, after=place_in(visit.query("after")), limit=PAGE)
    curves = headlines(db, last_numbers(db, [each.id for each in page.runs]), most=SPARKS)
    return visit.page(
        "runs.html",
        runs=[(each, sparkline(curves.get(each.id, ()))) for each in page.runs],
        wanted=wanted,
        kinds=kinds_of_runs(db),
        statuses=[status.value for status in RunStatus],
        next=None if page.next is None else place_as(page.next),
        position=last_event(db),
    )


def place_as(place: tuple[Any, str]) -> str:
    """A place in a sorted list as a parameter."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def place_in(text: str) -> tuple[Any, str] | None:
    """The place in a parameter; Refused 400 for one that we did not make."""
    if not text:
        return None
    try:
        value, id = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, TypeError):
        raise Refused(400, "after= is no place in this list. Begin with the first page.") from None
    if not isinstance(id, str) or not isinstance(value, str | int | float):
        raise Refused(400, "after= is no place in this list. Begin with the first page.")
    return value, id


def run_of(visit: Visit, name: str = "run") -> Run:
    """The run in the path; Refused 404."""
    id = visit.named(name)
    found = find_run(visit.source.db, id)
    if found is None:
        raise Refused(404, f"There is no run {id[:120]!r} in this store.")
    return found


def _show(visit: Visit) -> Response:
    run, db = run_of(visit), visit.source.db
    others = [id for id in dict.fromkeys(visit.queries("with")) if id != run.id][: MOST_TOGETHER - 1]
    unknown = [id for id in others if find_run(db, id) is None]
    if unknown:
        raise Refused(404, f"There is no run {unknown[0][:120]!r} to draw beside this one.")
    history = history_of(run, db)
    evaluations = [evaluation_row(each) for each in list_evaluations(db, run=run.id, limit=20)]
    return visit.page(
        "run.html",
        run=run,
        others=others,
        recent=[each.id for each in list_runs(db, limit=50, kind=run.kind) if each.id != run.id],
        unit="steps" if Metric.RETURN in {name for row in history for name in row} else "updates",
        findings=diagnose(history) if history else None,
        undiagnosed=too_few(history),
        rows=last_numbers(db, [run.id]).get(run.id, len(history)),
        evaluations=evaluations,
        versions=list_policies(db, run=run.id, limit=12),
        has_report=report_file(run) is not None,
        machine=machine_of(db, run.id),
        stopping=asked_to_stop(db, run.id) if run.status is RunStatus.RUNNING else None,
        position=last_event(db),
    )


def history_of(run: Run, db: LoomDB) -> list[dict[str, float]]:
    """The metrics of a run as its doctor reads them, thinned out if there are very many."""
    _, rows = thinned_metrics(db, run.id, most=DOCTOR_ROWS)
    if rows:
        return [{STEP: float(row.step), **{name: _float(value) for name, value in row.values.items()}} for row in rows]
    file = _file(run, "metrics.jsonl")
    return [] if file is None else read_file(file)


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _file(run: Run, name: str) -> Path | None:
    """A file in the run's folder, if this machine has it; never one outside."""
    try:
        folder = Path(recorded_experiment(run).train.folder).resolve()
    except (LoomError, AttributeError, OSError):  # of evaluations and sweeps
        return None
    file = (folder / run.id / name).resolve()
    return file if file.is_relative_to(folder) and file.is_file() else None


def report_file(run: Run) -> Path | None:
    """The run's report, if this machine has it."""
    return _file(run, "report.html")


def _report(visit: Visit) -> Response:
    run = run_of(visit)
    file = report_file(run)
    if file is None:
        raise Refused(404, f"Run {run.id!r} has no report on this machine: it is written where the run was trained.")
    return HTMLResponse(
        file.read_text(encoding="utf-8", errors="replace"), headers={"content-security-policy": REPORT_POLICY}
    )


def _metrics(visit: Visit) -> Response:
    """A run's metrics by column: all of them thinned out, or what is past a number."""
    run, db = run_of(visit), visit.source.db
    after = visit.whole("after", 0)
    if after:
        every, rows = 1, read_metrics(db, run.id, after=after, limit=POINTS)
    else:
        every, rows = thinned_metrics(db, run.id, most=POINTS)
    if not rows and not after and (file := _file(run, "metrics.jsonl")) is not None:
        lines = read_file(file)
        every = max(1, -(-len(lines) // POINTS))
        rows = [_from_line(run.id, number, line) for number, line in enumerate(lines, 1) if number % every == 0]
    return JSONResponse(
        {"run": run.id, "started": run.started_at, "every": every, **_columns(rows), "meanings": _meanings(rows)}
    )


def _from_line(run: str, number: int, line: Mapping[str, float]) -> MetricRow:
    values = {name: value for name, value in line.items() if name not in (STEP, "time")}
    plain = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return MetricRow(run=run, number=number, step=int(line[STEP]), at=line["time"], tokens=None, values=plain)


def _columns(rows: Sequence[MetricRow]) -> dict[str, Any]:
    names = sorted({name for row in rows for name in row.values})
    return {
        "last": rows[-1].number if rows else 0,
        "step": [row.step for row in rows],
        "time": [row.at for row in rows],
        "tokens": [row.tokens for row in rows],
        "values": {name: [row.values.get(name) for row in rows] for name in names},
    }


def _meanings(rows: Sequence[MetricRow]) -> dict[str, str]:
    known = {str(metric): metric.meaning for metric in Metric}
    names = {name for row in rows[-1:] for name in row.values} | {name for row in rows[:1] for name in row.values}
    found = {}
    for name in names:
        base = next((base for base in (name, name.rpartition("/")[0], name.partition("/")[0]) if base in known), None)
        if base is not None:
            found[name] = known[base]
    return found


def evaluation_row(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation on a line: of a language policy success, of control the return."""
    overall = evaluation.report.get("overall", {})
    success, reward = overall.get("success"), overall.get("reward")
    told = success if isinstance(success, dict) else reward if isinstance(reward, dict) else {}
    is_share = isinstance(success, dict)
    mean, low, high = (told.get(name) for name in ("mean", "low", "high"))
    least, most = (0.0, 1.0) if is_share else (_least(low), _least(high) or 1.0)
    return {
        "id": evaluation.id,
        "policy": evaluation.policy or evaluation.report.get("policy", ""),
        "at": evaluation.created_at,
        "what": "success" if is_share else "return",
        "mean": mean,
        "low": low,
        "high": high,
        "count": told.get("count"),
        "failures": overall.get("failures"),
        "picture": interval(low, mean, high, least=least, most=most),
        "families": evaluation.report.get("by_family", {}) if is_share else {},
    }


def _least(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _against(visit: Visit) -> Response:
    mine, other = run_of(visit), run_of(visit, "other")
    rows = changed(mine, other)
    return visit.page("against.html", run=mine, other=other, rows=rows)


def changed(mine: Run, other: Run) -> list[Difference]:
    """Settings that differ between the experiments of two runs."""
    return differences(_tree(mine.resolved), _tree(other.resolved))


def _tree(text: str) -> Any:
    try:
        return parse_yaml(text, origin="experiment")
    except LoomError:
        return {"experiment": text}
