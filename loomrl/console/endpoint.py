"""Endpoints: who answers, A/B tests, and the monitor's interventions."""

import time
from collections.abc import Iterable, Sequence
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
from loomrl.record.catalogue import (
    AB_TEST_RECORDS,
    ENDPOINT_RECORDS,
    HIT_RECORDS,
    QUARANTINE_RECORDS,
    EndpointRow,
    HitRow,
)
from loomrl.record.declaration import Query, Record
from loomrl.record.detail import AB_TEST, ENDPOINT, OBSERVED, find_ab_test
from loomrl.store import LoomDB
from loomrl.store.ab_tests import AbTest
from loomrl.store.endpoints import Arm
from loomrl.store.endpoints import Role as ArmRole
from loomrl.store.events import EVENTS
from loomrl.store.observations import Observation, latest_observations
from loomrl.store.replicas import front_of
from loomrl.store.sessions import Quarantine, list_quarantined, record_quarantine

PARTS = 48
MOST_ROWS = 20_000
"""Observations that a page reads."""


def shares_of(arms: Iterable[Arm]) -> list[tuple[str, float]]:
    """The arms' shares as parts of a bar."""
    return [(arm.role.value, arm.share) for arm in arms if arm.role is not ArmRole.SHADOW]


def _bar(visit: PageRequest, row: EndpointRow) -> Any:
    return visit.parts.shares(shares_of(row.endpoint.arms))


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


def _monitor(visit: PageRequest) -> Response:
    def rows_of(record: Record[Any]) -> Sequence[Any]:
        return record.page(visit.source.db, Query(limit=record.limit)).rows

    def free(_: PageRequest, row: Quarantine) -> Any:
        return visit.parts.post(visit.session, "/monitor/free", "Free", session=row.session, endpoint=row.endpoint)

    def sessions(_: PageRequest, row: HitRow) -> Any:
        return visit.parts.links("trajectories", row.counted.sessions[:3])

    can_free = {"free": free} if visit.session.role >= ConsoleRole.OPERATOR else {}
    lists = [
        ("In quarantine", QUARANTINE_RECORDS, rows_of(QUARANTINE_RECORDS), can_free),
        ("Interventions", HIT_RECORDS, rows_of(HIT_RECORDS), {"sessions": sessions}),
    ]
    return visit.page("monitor.html", lists=lists, position=EVENTS.last(visit.source.db))


def _free(visit: PageRequest) -> Response:
    """Free a session from quarantine."""
    session = visit.form.get("session", "")
    endpoint = visit.form.get("endpoint", "")
    db = visit.source.db
    if not any((each.session, each.endpoint) == (session, endpoint) for each in list_quarantined(db)):
        raise Refused(404, f"Session {session[:120]!r} is not in quarantine.")
    record_quarantine(db, Quarantine(endpoint=endpoint, session=session, held=False, who=visit.who, at=time.time()))
    return visit.back("/monitor")
