"""Sweeps: their trials on parallel axes, and which settings mattered."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from loomrl.console.chart import figure
from loomrl.console.listing import ListPage
from loomrl.console.page import PageRequest, Pages
from loomrl.errors import LoomError
from loomrl.http.site import Refused
from loomrl.record.catalogue import RUN_RECORDS
from loomrl.store import LoomDB
from loomrl.store.events import EVENTS
from loomrl.store.runs import RUNS, Run, load_sweep
from loomrl.store.view.run_list import trials_of
from loomrl.telemetry.parallel import parallel_axes

MOST_TRIALS = 500
MOST_AXES = 8
GROUPS = 4
"""Into which the trials fall by a setting that is a number."""


SWEEPS = replace(
    RUN_RECORDS,
    name="sweep",
    columns=(
        replace(RUN_RECORDS.columns[0], name="sweep", to="sweeps"),
        *(column for column in RUN_RECORDS.columns if column.name in ("status", "started", "took")),
    ),
    none="No sweeps. `loomrl sweep` begins one.",
)
"""Runs of kind sweep."""


def add_to(pages: Pages) -> None:
    """The pages of sweeps."""
    ListPage(path="/sweeps", title="Sweeps", record=SWEEPS, live="run", fixed={"kind": "sweep"}).add_to(pages)
    pages.get("/sweeps/{sweep}", _show)


def _show(visit: PageRequest) -> Response:
    db = visit.source.db
    id = visit.segment("sweep")
    run = RUNS.find(db, id)
    if run is None or run.kind != "sweep":
        raise Refused(404, f"There is no sweep {id[:120]!r} in this store.")
    trials = trials_in(db, run)
    mode = str(run.result.get("mode") or _mode(run))
    names = sorted({name for trial in trials for name in trial["changes"]})
    scored = [trial for trial in trials if trial["score"] is not None and set(trial["changes"]) == set(names)]
    order = sorted(scored, key=lambda trial: trial["score"], reverse=mode == "max")
    mattered = importance(order, names)
    return visit.page(
        "sweep.html",
        run=run,
        trials=[*order, *(trial for trial in trials if trial not in scored)],
        names=names,
        metric=run.result.get("metric") or "score",
        picture=_picture(run, order, [name for name, _ in mattered][:MOST_AXES], mode),
        importance=mattered,
        position=EVENTS.last(db),
    )


def trials_in(db: LoomDB, run: Run) -> list[dict[str, Any]]:
    """The trials that the sweep tells of; while it runs, those of its runs that have ended."""
    told = run.result.get("trials")
    if told:
        return [{name: each[name] for name in ("run", "changes", "score", "stopped")} for each in told[:MOST_TRIALS]]
    found = []
    for id in trials_of(db, run.id)[:MOST_TRIALS]:
        trial = RUNS.find(db, id)
        if trial is not None and trial.result.get("sweep") == run.id:
            result = trial.result
            end = result.get("error") or trial.status.value
            changes = dict(result.get("changes", {}))
            found.append({"run": id, "changes": changes, "score": result.get("score"), "stopped": end})
    return found


def _mode(run: Run) -> str:
    try:
        return load_sweep(run).mode
    except LoomError:
        return "max"


def importance(trials: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[tuple[str, float]]:
    """Share of the scores' variance that each setting by itself explains, largest first.

    Numbers are cut into groups of equal size; the share is corrected for the number of groups, so that a setting
    without any effect has about 0.
    """
    scores = [float(trial["score"]) for trial in trials]
    mean = sum(scores) / len(scores) if scores else 0.0
    whole = sum((score - mean) ** 2 for score in scores)
    if len(scores) < 3 or whole <= 0:
        return [(name, 0.0) for name in names]
    values = {name: [trial["changes"][name] for trial in trials] for name in names}
    found = [(name, _variance_share(values[name], scores, mean, whole)) for name in names]
    return sorted(found, key=lambda each: -each[1])


def _variance_share(values: Sequence[Any], scores: Sequence[float], mean: float, whole: float) -> float:
    groups: dict[Any, list[float]] = {}
    for group, score in zip(_bin_values(values), scores, strict=True):
        groups.setdefault(group, []).append(score)
    if len(groups) < 2 or len(scores) <= len(groups):
        return 0.0
    between = sum(len(part) * (sum(part) / len(part) - mean) ** 2 for part in groups.values())
    noise = (whole - between) / (len(scores) - len(groups))
    return max(0.0, (between - (len(groups) - 1) * noise) / (whole + noise))


def _bin_values(values: Sequence[Any]) -> list[Any]:
    if len({json.dumps(value, default=str) for value in values}) <= GROUPS or not all(map(_is_number, values)):
        return [json.dumps(value, default=str) for value in values]
    ranks = sorted(range(len(values)), key=lambda at: values[at])
    group = [0] * len(values)
    for rank, at in enumerate(ranks):
        group[at] = rank * GROUPS // len(values)
    return group


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _picture(run: Run, trials: Sequence[Mapping[str, Any]], names: Sequence[str], mode: str) -> Markup:
    if len(trials) < 2 or not names:
        return Markup("")
    rows = [{**{name: trial["changes"][name] for name in names}, "score": trial["score"]} for trial in trials]
    wide = {name for name in names if _is_wide([row[name] for row in rows])}
    axes, sentences = parallel_axes(rows, logarithmic=wide, best="min" if mode == "min" else "max")
    lines = [{"name": said, "places": [axis.places[rank] for axis in axes]} for rank, said in enumerate(sentences)]
    return figure(
        "parallel",
        "A line for each trial, stronger the better it is",
        axes=[{"name": axis.name, "ticks": axis.ticks} for axis in axes],
        trials=lines,
    )


def _is_wide(values: Sequence[Any]) -> bool:
    """True for positive numbers that span more than an order of magnitude."""
    return all(_is_number(value) and value > 0 for value in values) and max(values) > 20 * min(values)
