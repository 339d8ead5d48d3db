"""Audit: everything on record by subject; and the keys."""

import time

from markupsafe import Markup
from starlette.responses import Response

from loomrl.console.listing import ListPage
from loomrl.console.page import PageRequest, Pages
from loomrl.console.session import ConsoleRole
from loomrl.http.site import Refused
from loomrl.record.catalogue import EVENT_RECORDS, KEY_RECORDS, EventRow
from loomrl.store.keys import KEYS, SCOPES, Key, create_key, revoke_key

DAY_S = 86_400.0
AUDIT = ListPage[EventRow](path="/audit", title="Audit", record=EVENT_RECORDS, live="")


def _revocation(visit: PageRequest, key: Key) -> Markup:
    """The button that revokes a key."""
    return Markup(visit.render("revoke.html", key=key)) if key.holds(time.time()) else Markup("")


KEY_LIST = ListPage[Key](
    path="/keys",
    title="Keys",
    record=KEY_RECORDS,
    cells={"revoke": _revocation},
    template="keys.html",
    role=ConsoleRole.ADMIN,
)


def add_to(pages: Pages) -> None:
    """The pages of the record."""
    AUDIT.add_to(pages)
    pages.get("/keys", _keys, role=ConsoleRole.ADMIN)
    pages.post("/keys", _create, role=ConsoleRole.ADMIN)
    pages.post("/keys/revoke", _revoke, role=ConsoleRole.ADMIN)


def _keys(visit: PageRequest, fresh: str = "") -> Response:
    return KEY_LIST.show(visit, fresh=fresh, scopes=SCOPES)


def _create(visit: PageRequest) -> Response:
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


def _revoke(visit: PageRequest) -> Response:
    id = visit.form.get("id", "")
    if KEYS.find(visit.source.db, id) is None:
        raise Refused(404, f"There is no key {id[:60]!r} in this store.")
    revoke_key(visit.source.db, id, at=time.time(), reason=f"by {visit.who} at the console")
    visit.request.app.state.sessions.forget()
    return visit.back("/keys")
