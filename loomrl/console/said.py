"""A trajectory under other weights: what another version would have said from a turn or a token on."""

import threading

from starlette.responses import Response

from loomrl.console.page import PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.console.trajectory import difference
from loomrl.http.site import Refused
from loomrl.serving.continuation import continue_from, find_place

PATIENCE_S = 30.0
"""For another answer to be sampled."""
_turn = threading.Lock()
"""One model at a time."""


def add_to(pages: Pages) -> None:
    """The answer to the form of a trajectory's page."""
    pages.post("/said", _say, role=ConsoleRole.OPERATOR)


def _say(visit: PageRequest) -> Response:
    id = visit.form.get("id", "")
    found = visit.source.find(id)
    if found is None:
        raise Refused(404, f"There is no trajectory {id[:120]!r} in any hub of this store.")
    t = found.trajectory
    place = find_place(t, thread=_whole(visit, "thread"), token=_whole(visit, "token"))
    version = visit.form.get("version", "").strip()
    temperature = _temperature(visit)
    if not _turn.acquire(timeout=PATIENCE_S):
        raise Refused(503, "Another version is being asked. Send the form again in a moment.")
    try:
        answer = continue_from(place, t, version, visit.source.db, temperature=temperature)
    finally:
        _turn.release()
    return visit.page("said.html", t=t, answer=answer, words=difference(answer.recorded, answer.said))


def _whole(visit: PageRequest, name: str) -> int:
    text = visit.form.get(name, "").strip()
    if not text.isdecimal() or len(text) > 9:
        raise Refused(400, f"{name}={text[:40]!r} is no whole number.")
    return int(text)


def _temperature(visit: PageRequest) -> float:
    text = visit.form.get("temperature", "0").strip()
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 10:
        raise Refused(400, f"temperature={text[:40]!r}: a number from 0 to 10, where 0 is greedy.")
    return value
