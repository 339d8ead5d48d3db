"""Endpoints: who answers, A/B tests, and the monitor's interventions."""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from loomrl.console.chart import line_chart, share_bar
from loomrl.console.listing import ListPage
from loomrl.console.page import PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.http.site import Refused
from loomrl.record.catalogue import AB_TEST_RECORDS, ENDPOINT_RECORDS, EndpointRow, ab_state
from loomrl.release.ab import AbReading
from loomrl.store.ab_tests import AbTest, Phase, list_tests, show_test, stop_test
from loomrl.store.endpoints import ENDPOINTS, Arm
from loomrl.store.endpoints import Role as ArmRole
from loomrl.store.events import EVENTS
from loomrl.store.observations import Observation, latest_observations, read_observations
from loomrl.store.releases import list_releases
from loomrl.store.replicas import front_of, live_replicas
from loomrl.store.sessions import Quarantine, list_quarantined, record_quarantine

ROWS = 500
"""Rows of observations that the traffic is drawn from."""
PARTS = 48
HITS = 1000
MOST_ROWS = 20_000


def shares_of(arms: Iterable[Arm]) -> Any:
    """The arms' shares as a bar."""
    return share_bar([(f"k-{arm.role.value}", arm.share) for arm in arms if arm.role is not ArmRole.SHADOW])


ENDPOINT_LIST = ListPage[EndpointRow](
    path="/endpoints",
    title="Endpoints",
    record=ENDPOINT_RECORDS,
    live="endpoint,release,ab",
    cells={"traffic": lambda _, row: shares_of(row.endpoint.arms)},
)


def add_to(pages: Pages) -> None:
    """The pages of endpoints."""
    ENDPOINT_LIST.add_to(pages)
    pages.get("/endpoints/{name}", _show)
    ListPage(path="/ab", title="A/B tests", record=AB_TEST_RECORDS, live="ab").add_to(pages)
    pages.get("/ab/{name}", _test)
    pages.post("/ab/{name}", _stop, role=ConsoleRole.OPERATOR)
    pages.get("/monitor", _monitor)
    pages.post("/monitor/free", _free, role=ConsoleRole.OPERATOR)


def _show(visit: PageRequest) -> Response:
    db = visit.source.db
    name = visit.segment("name")
    past = ENDPOINTS.latest(db, name=name, limit=20)
    if not past:
        raise Refused(404, f"There is no endpoint {name[:120]!r} in this store.")
    observed = latest_observations(db, name, rows=ROWS)
    traffic = traffic_of(observed)
    return visit.page(
        "endpoint.html",
        endpoint=past[0],
        is_served=front_of(db, name) is not None,
        shares=shares_of(past[0].arms),
        replicas=live_replicas(db, endpoint=name),
        past=past,
        arms=list(traffic),
        traffic=traffic_chart(observed, traffic),
        outcomes=outcomes_of(observed),
        releases=list_releases(db, endpoint=name, limit=10),
        tests=[each for each in list_tests(db) if each.endpoint == name],
        position=EVENTS.last(db),
    )


def traffic_of(observed: list[Observation]) -> dict[str, list[float]]:
    """Units by arm over time, in parts of equal length."""
    if not observed:
        return {}
    first, last = min(each.at for each in observed), max(each.at for each in observed)
    size = max(last - first, 1e-6) / PARTS
    units: dict[str, list[set[int]]] = {}
    for each in observed:
        parts = units.setdefault(each.arm, [set() for _ in range(PARTS)])
        parts[min(PARTS - 1, int((each.at - first) / size))].add(each.unit)
    return {arm: [float(len(part)) for part in units[arm]] for arm in sorted(units)}


def traffic_chart(observed: list[Observation], traffic: dict[str, list[float]]) -> Markup:
    """The units of each arm over the time of the observations."""
    if not observed:
        return Markup("")
    first, last = min(each.at for each in observed), max(each.at for each in observed)
    times = [first + (last - first) * (part + 0.5) / PARTS for part in range(PARTS)]
    return line_chart("Users and sessions", times, traffic, x_form="clock")


def outcomes_of(observed: list[Observation]) -> list[tuple[str, dict[str, tuple[float, int]]]]:
    """Mean and number of each metric by arm."""
    sums: dict[str, dict[str, list[float]]] = {}
    for each in observed:
        sums.setdefault(each.metric, {}).setdefault(each.arm, []).append(each.value)
    return [
        (metric, {arm: (sum(values) / len(values), len(values)) for arm, values in by_arm.items()})
        for metric, by_arm in sorted(sums.items())
    ]


def _find_test(visit: PageRequest) -> AbTest:
    name = visit.segment("name")
    if name not in {each.name for each in list_tests(visit.source.db)}:
        raise Refused(404, f"There is no A/B test {name[:120]!r} in this store.")
    return show_test(visit.source.db, name)


def _test(visit: PageRequest) -> Response:
    db = visit.source.db
    test = _find_test(visit)
    reading = AbReading(test)
    after = 0
    rows = 0
    while rows < MOST_ROWS and (batch := read_observations(db, test.endpoint, after=after)):
        reading.observe(each for _, each in batch if test.until is None or each.at <= test.until)
        after = batch[-1][0]
        rows += len({position for position, _ in batch})
    return visit.page(
        "test.html",
        test=test,
        phase=ab_state(test),
        result=reading.result(),
        is_whole=rows < MOST_ROWS,
        can_stop=test.phase is not Phase.STOPPED,
        position=EVENTS.last(db),
    )


def _stop(visit: PageRequest) -> Response:
    test = _find_test(visit)
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
