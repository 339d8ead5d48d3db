"""Endpoints: who answers, A/B tests, and the monitor's interventions."""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from loomrl.console.chart import line_chart
from loomrl.console.listing import ListPage
from loomrl.console.page import PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.http.site import Refused
from loomrl.record.catalogue import AB_TEST_RECORDS, ENDPOINT_RECORDS, EndpointRow
from loomrl.record.detail import AB_TEST, ENDPOINT, OBSERVED, find_ab_test
from loomrl.store import LoomDB
from loomrl.store.ab_tests import AbTest, stop_test
from loomrl.store.endpoints import Arm
from loomrl.store.endpoints import Role as ArmRole
from loomrl.store.events import EVENTS
from loomrl.store.observations import Observation, latest_observations
from loomrl.store.replicas import front_of
from loomrl.store.sessions import Quarantine, list_quarantined, record_quarantine

PARTS = 48
HITS = 1000
MOST_ROWS = 20_000
"""Observations that a page reads."""


def shares_of(arms: Iterable[Arm]) -> list[tuple[str, float]]:
    """The arms' shares as parts of a bar."""
    return [(arm.role.value, arm.share) for arm in arms if arm.role is not ArmRole.SHADOW]


def _bar(visit: PageRequest, row: EndpointRow) -> Any:
    parts: Any = visit.templates.get_template("parts.html").module
    return parts.shares(shares_of(row.endpoint.arms))


ENDPOINTS = ListPage[EndpointRow](
    path="/endpoints",
    title="Endpoints",
    record=ENDPOINT_RECORDS,
    live="endpoint,release,ab,deployment",
    cells={"traffic": _bar},
    detail=ENDPOINT,
    detail_template="endpoint.html",
    pieces={"outcomes": lambda visit, found: traffic_chart(visit.source.db, found["endpoint"].endpoint.name)},
)
AB_TESTS = ListPage[AbTest](
    path="/ab",
    title="A/B tests",
    record=AB_TEST_RECORDS,
    live="ab",
    detail=replace(AB_TEST, find=partial(find_ab_test, most=MOST_ROWS)),
    detail_template="test.html",
)


def add_to(pages: Pages) -> None:
    """The pages of endpoints."""
    pages.get("/endpoints/{id}", _show)
    ENDPOINTS.add_to(pages)
    AB_TESTS.add_to(pages)
    pages.post("/ab/{id}", _stop, role=ConsoleRole.OPERATOR)
    pages.get("/monitor", _monitor)
    pages.post("/monitor/free", _free, role=ConsoleRole.OPERATOR)


def _show(visit: PageRequest) -> Response:
    is_served = front_of(visit.source.db, visit.segment("id")) is not None
    return ENDPOINTS.show_one(visit, is_served=is_served, shares=shares_of)


def traffic_of(observed: list[Observation]) -> dict[str, list[float]]:
    """Units by arm over time, in parts of equal length."""
    first, last = min(each.at for each in observed), max(each.at for each in observed)
    size = max(last - first, 1e-6) / PARTS
    units: dict[str, list[set[int]]] = {}
    for each in observed:
        parts = units.setdefault(each.arm, [set() for _ in range(PARTS)])
        parts[min(PARTS - 1, int((each.at - first) / size))].add(each.unit)
    return {arm: [float(len(part)) for part in units[arm]] for arm in sorted(units)}


def traffic_chart(db: LoomDB, name: str) -> Markup:
    """The units of each arm over the time of the latest observations."""
    observed = latest_observations(db, name, rows=OBSERVED)
    if not observed:
        return Markup("")
    first, last = min(each.at for each in observed), max(each.at for each in observed)
    times = [first + (last - first) * (part + 0.5) / PARTS for part in range(PARTS)]
    return line_chart("Users and sessions", times, traffic_of(observed), x_form="clock")


def _stop(visit: PageRequest) -> Response:
    test = AB_TESTS.find(visit)["test"]
    why = visit.form.get("why", "").strip()
    if not why:
        raise Refused(400, "Say why: the reason stays on record.")
    reason = f"{why} ({visit.who})"
    stop_test(visit.source.db, test.name, at=time.time(), keep=visit.form.get("keep", ""), reason=reason)
    return visit.back(f"/ab/{test.name}")


def _monitor(visit: PageRequest) -> Response:
    db = visit.source.db
    hits: Counter[tuple[str, ...]] = Counter()
    latest: dict[tuple[str, ...], float] = {}
    sessions: dict[tuple[str, ...], list[str]] = {}
    events = EVENTS.recent(db, kind="monitor.hit", limit=HITS)
    for _, event in events:
        kind = (event.subject, *(str(event.data.get(name, "")) for name in ("arm", "version", "rule", "what", "then")))
        hits[kind] += int(event.data.get("count", 1))
        latest.setdefault(kind, event.created_at)
        sessions.setdefault(kind, [str(each) for each in event.data.get("sessions", [])][:3])
    rows = [(kind, count, latest[kind], sessions[kind]) for kind, count in hits.most_common(200)]
    held = list_quarantined(db)
    return visit.page("monitor.html", rows=rows, held=held, is_whole=len(events) < HITS, position=EVENTS.last(db))


def _free(visit: PageRequest) -> Response:
    """Free a session from quarantine."""
    session = visit.form.get("session", "")
    endpoint = visit.form.get("endpoint", "")
    db = visit.source.db
    if not any((each.session, each.endpoint) == (session, endpoint) for each in list_quarantined(db)):
        raise Refused(404, f"Session {session[:120]!r} is not in quarantine.")
    record_quarantine(db, Quarantine(endpoint=endpoint, session=session, held=False, who=visit.who, at=time.time()))
    return visit.back("/monitor")
