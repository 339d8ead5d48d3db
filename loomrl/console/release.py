"""Releases: where each stands, on what evidence, and what people decide about it."""

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from loomrl.console.chart import figure
from loomrl.console.listing import ListPage
from loomrl.console.page import PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.http.site import Refused
from loomrl.record import word
from loomrl.record.catalogue import RELEASE_RECORDS, VERDICT_RECORDS
from loomrl.record.detail import RELEASE, VERDICT
from loomrl.release.controller import Moment, ReleaseLook, ReleaseObserver, replay_evidence
from loomrl.release.guard import Better, Finding
from loomrl.release.ledger import Release, command_release, evidence_as_json
from loomrl.release.passage import Command, parse_command, steps_of
from loomrl.store import LoomDB
from loomrl.store.releases import RELEASES, ReleaseRow
from loomrl.store.verdicts import StoredVerdict

MOMENTS = 60
FRESH_S = 5.0
"""The evidence over time is computed at most this often."""


@dataclass(slots=True)
class EvidenceCache:
    """Cache of release evidence. Safe to call from several threads."""

    _observers: dict[str, ReleaseObserver] = field(default_factory=dict)
    _moments: dict[str, tuple[float, list[Moment]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, db: LoomDB, endpoint: str, *, with_bounds: bool) -> ReleaseLook | None:
        """The endpoint's latest release and its evidence now. Bounds take a while; what it waits for needs none."""
        with self._lock:
            observer = self._observers.setdefault(f"{db.location} {endpoint}", ReleaseObserver(db, endpoint))
            return observer.look(is_ended_too=True, with_bounds=with_bounds)

    def moments(self, db: LoomDB, release: Release, *, since: float, until: float) -> list[Moment]:
        """The evidence over time."""
        key = f"{db.location} {release.row.release} {release.row.number}"
        with self._lock:
            made, found = self._moments.get(key, (-math.inf, []))
            lasts = math.inf if not release.passage.is_open else FRESH_S
            if time.monotonic() - made > lasts or not found:
                found = replay_evidence(db, release, since=since, until=until, count=MOMENTS)
                self._moments[key] = (time.monotonic(), found)
                while len(self._moments) > 20:
                    self._moments.pop(next(iter(self._moments)))
            return found


_watch = EvidenceCache()


def add_to(pages: Pages) -> None:
    """The pages of releases, and of the gate's verdicts."""
    pages.get("/releases/{id}", _show)
    pages.get("/releases/{id}/evidence", _evidence)
    pages.post("/releases/{id}", _say, role=ConsoleRole.OPERATOR)
    RELEASES_PAGE.add_to(pages)
    VERDICTS_PAGE.add_to(pages)


RELEASES_PAGE = ListPage[ReleaseRow](
    path="/releases",
    title="Releases",
    record=RELEASE_RECORDS,
    live="release,verdict,endpoint",
    detail=RELEASE,
    detail_template="release.html",
)
VERDICTS_PAGE = ListPage[StoredVerdict](
    path="/verdicts",
    title="Verdicts of the gate",
    record=VERDICT_RECORDS,
    live="verdict",
    detail=VERDICT,
    detail_template="verdict.html",
)


def _show(visit: PageRequest) -> Response:
    db = visit.source.db
    found = RELEASES_PAGE.find(visit)
    release = Release.of(found["release"])
    is_latest = _is_latest(db, release)
    look = _watch.look(db, release.row.endpoint, with_bounds=False) if is_latest else None
    return RELEASES_PAGE.show_one(
        visit,
        found,
        release=release,
        steps=[str(step) for step in steps_of(release.plan)],
        waits=() if look is None else look.waits,
        silences=() if look is None else look.silences,
        words=_words(release) if is_latest else [],
    )


def _is_latest(db: LoomDB, release: Release) -> bool:
    newest = RELEASES.newest(db, endpoint=release.row.endpoint)
    return newest is not None and newest.release == release.row.release


def _words(release: Release) -> list[str]:
    """Decisions that a person may take now."""
    passage = release.passage
    if not passage.is_open:
        return [Command.ROLLBACK] if passage.phase == "done" else []
    said = [Command.RESUME if passage.is_paused else Command.PAUSE, Command.ABORT, Command.ROLLBACK]
    return [*([Command.APPROVE] if release.plan.approvals else []), *said]


def _say(visit: PageRequest) -> Response:
    row = RELEASES_PAGE.find(visit)["release"]
    said = parse_command(visit.form.get("word", "")[:40])
    why = visit.form.get("why", "").strip()
    if not why:
        raise Refused(400, "Say why: the reason stays on record.")
    if not _is_latest(visit.source.db, Release.of(row)):
        raise Refused(409, f"{row.release} is not the endpoint's latest release any more. Decide about that one.")
    command_release(visit.source.db, row.endpoint, said, who=visit.who, why=why[:2000], at=time.time())
    return visit.back(f"/releases/{quote(row.release, safe='')}")


def _evidence(visit: PageRequest) -> Response:
    """The interval of each metric against what is accepted, over time."""
    db = visit.source.db
    last, *earlier = RELEASES_PAGE.find(visit)["history"]
    release = Release.of(last)
    since = (earlier[-1] if earlier else last).created_at
    until = max(time.time() if release.passage.is_open else last.created_at, since + 1e-3)
    moments = _watch.moments(db, release, since=since, until=until)
    charts = [evidence_chart(moments, place) for place in range(len(release.plan.guards))]
    look = _watch.look(db, release.row.endpoint, with_bounds=True) if _is_latest(db, release) else None
    evidence = last.content.get("evidence") if look is None else evidence_as_json(look.evidence)
    drawn = [chart for chart in charts if chart]
    return HTMLResponse(visit.render("evidence.html", evidence=evidence or {"findings": []}, charts=drawn))


def evidence_chart(moments: Sequence[Moment], place: int) -> Markup:
    """One metric's difference with its interval over time; empty without observations of both versions."""
    there = [(each.at, each.findings[place]) for each in moments if math.isfinite(each.findings[place].difference)]
    if not there:
        return Markup("")
    last = there[-1][1]
    limit = limit_of(last)
    edges = [value for _, each in there for value in (each.low, each.high, each.difference) if math.isfinite(value)]
    most = max(4 * abs(limit) if limit else 0.0, 3 * max(abs(each.difference) for _, each in there), 0.02)
    # Early intervals are very wide, or infinite: the axis shows what is near the differences and what is accepted.
    low, high = max(min(*edges, 0.0), -most), min(max(*edges, 0.0), most)
    lines: list[dict[str, Any]] = [
        {"name": "low", "values": [min(max(each.low, low), high) for _, each in there], "isBand": "low"},
        {"name": "high", "values": [min(max(each.high, low), high) for _, each in there], "isBand": "high"},
        {"name": "difference", "values": [each.difference for _, each in there]},
    ]
    if limit is not None:
        lines.append({"name": "accepted", "values": [limit] * len(there), "dash": [5, 4], "isLimit": True})
    interval = f"{word.signed(last.difference)}, from {word.signed(last.low)} to {word.signed(last.high)}"
    units = f"new minus stable, {last.challenger.count:,} and {last.baseline.count:,} units"
    return figure(
        "lines",
        last.guard.label,
        note=f"{interval}; {units}",
        x=[at for at, _ in there],
        xForm="clock",
        form="signed",
        lines=[{**line, "isQuiet": "isBand" in line} for line in lines],
        span=[low, high],
        isFixed=True,
    )


def limit_of(finding: Finding) -> float | None:
    """The worst difference that is accepted; None where that depends on the stable version."""
    guard = finding.guard
    if guard.times is not None or guard.quantile is not None:
        return None
    return guard.margin if guard.better is Better.LOWER else -guard.margin
