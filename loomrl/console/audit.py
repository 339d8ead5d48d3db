"""Audit: everything on record by subject; and the keys."""

import time

from starlette.responses import Response

from loomrl.console.page import Pages, Visit
from loomrl.console.session import Role
from loomrl.http.site import Refused
from loomrl.store.events import EVENTS
from loomrl.store.keys import KEYS, SCOPES, create_key, revoke_key
from loomrl.store.log import to_json

PAGE = 50
DAY_S = 86_400.0


def add_to(pages: Pages) -> None:
    """The pages of the record."""
    pages.get("/audit", _audit)
    pages.get("/keys", _keys, role=Role.ADMIN)
    pages.post("/keys", _create, role=Role.ADMIN)
    pages.post("/keys/revoke", _revoke, role=Role.ADMIN)


def _audit(visit: Visit) -> Response:
    db = visit.source.db
    kind = visit.query("kind")[:100]
    subject = visit.query("subject")[:500]
    before = visit.whole("before", 0) or None
    found = EVENTS.recent(db, before=before, limit=PAGE, kind=kind or None, subject=subject or None)
    kinds = EVENTS.kinds(db)
    return visit.page(
        "audit.html",
        events=[(position, event, to_json(dict(event.data), what="event")) for position, event in found],
        next=found[-1][0] if len(found) == PAGE else None,
        kind=kind,
        subject=subject,
        kinds=sorted({*kinds, *(name.partition(".")[0] for name in kinds)}),
        position=EVENTS.last(db),
    )


def _keys(visit: Visit, fresh: str = "") -> Response:
    db = visit.source.db
    keys = KEYS.latest(db, limit=200)
    return visit.page("keys.html", keys=keys, scopes=SCOPES, fresh=fresh, now=time.time(), position=EVENTS.last(db))


def _create(visit: Visit) -> Response:
    """Make a key, and show it this once."""
    now = time.time()
    scopes = [scope for scope in SCOPES if visit.form.get(f"scope-{scope}")]
    days = visit.form.get("days", "").strip()
    if days and (not days.isdecimal() or int(days) < 1):
        raise Refused(400, f"days={days[:40]!r}: a whole number of days, or nothing for a key that never expires.")
    expires_at = now + DAY_S * int(days) if days else None
    name = visit.form.get("name", "").strip()
    plain, _ = create_key(visit.source.db, name, scopes=scopes, expires_at=expires_at, at=now)
    visit.request.app.state.sessions.forget()
    return _keys(visit, fresh=plain)


def _revoke(visit: Visit) -> Response:
    id = visit.form.get("id", "")
    if KEYS.find(visit.source.db, id) is None:
        raise Refused(404, f"There is no key {id[:60]!r} in this store.")
    revoke_key(visit.source.db, id, at=time.time(), reason=f"by {visit.who} at the console")
    visit.request.app.state.sessions.forget()
    return visit.back("/keys")
