"""The application and its server: who may see what, in which headers, all pages, the audit and the keys."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loomrl.console import (
    chat,
    endpoint,
    environment,
    explore,
    feedback,
    film,
    launch,
    policy,
    release,
    run,
    run_table,
    said,
    saved,
    sweep,
    trajectory,
)
from loomrl.console.explore import Explorer
from loomrl.console.launch import Launcher
from loomrl.console.listing import ListPage
from loomrl.console.live import NewsFeed, filter_news, stream
from loomrl.console.page import PageRequest, Pages, local, refusal_page
from loomrl.console.session import COOKIE, ROLES, ConsoleRole, SessionLookup, Sessions
from loomrl.console.source import Indexer, RecordSource
from loomrl.errors import ServeError
from loomrl.http.listen import Certificate, Door, is_loopback, open_door
from loomrl.http.server import Limits, serve
from loomrl.http.site import JSON, Refused, Site
from loomrl.record.catalogue import EVENT_RECORDS, KEY_RECORDS, EventRow
from loomrl.store.keys import KEYS, SCOPES, Key, any_key, create_key, revoke_key

FORM = "application/x-www-form-urlencoded"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "x-frame-options": "DENY",
}
"""Headers of every answer that does not set its own."""
LONGEST_ADDRESS = 16 * 1024
AGAIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="0"><title>LoomRL</title></head>
<body><p>One moment.</p></body></html>
"""
"""For links on other sites: the browser withholds the strict cookie from the first request, and sends it with the next
request, which this page makes.
"""


class Shell:
    """ASGI middleware around everything: refuses what other sites' pages send, knows the session, sets headers."""

    def __init__(self, app: ASGIApp, *, site: Site, sessions: Sessions) -> None:
        self._app = app
        self._site = site
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._site.check(scope["method"], headers)
            if len(scope.get("query_string", b"")) + len(scope.get("raw_path") or b"") > LONGEST_ADDRESS:
                raise Refused(414, f"An address has at most {LONGEST_ADDRESS} bytes.")
        except Refused as refused:
            await _refusal(refused)(scope, receive, _with_headers(send, None, is_safe=False))
            return
        if scope["path"].startswith("/static/"):
            await self._app(scope, receive, _with_headers(send, None, is_safe=False, cache="no-cache"))
            return
        request = Request(scope)
        if COOKIE not in request.cookies and headers.get("sec-fetch-site") == "cross-site":
            await HTMLResponse(AGAIN)(scope, receive, _with_headers(send, None, is_safe=False))
            return
        known = self._sessions.known(request.cookies.get(COOKIE))
        scope.setdefault("state", {})["known"] = known
        is_safe = headers.get("origin", "").startswith("https://")
        await self._app(scope, receive, _with_headers(send, known.cookie, is_safe=is_safe))


def _refusal(refused: Refused) -> Response:
    """The answer to a request without a session."""
    return JSONResponse({"error": str(refused)}, refused.status, headers={"connection": "close"})


def _with_headers(send: Send, cookie: str | None, *, is_safe: bool, cache: str = "no-store") -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", cache)
            if cookie is not None and "set-cookie" not in headers:
                headers.append("set-cookie", cookie_of(cookie, is_safe=is_safe))
        await send(message)

    return sending


def cookie_of(value: str, *, is_safe: bool) -> str:
    """The header that keeps a session in a browser."""
    return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if is_safe else "")


def console_app(
    source: RecordSource, *, site: Site, is_local: bool, launcher: Launcher | None = None, analytics: str | None = None
) -> Starlette:
    """The console over a LoomDB. `is_local`: only this machine reaches it, so that no key is needed as long as there
    is none. Without a `launcher` no run is started here; `analytics` is where the columns are.
    """
    sessions = Sessions(source.db, is_local)
    feed = NewsFeed(source.db)
    indexer = Indexer(source, changed=lambda new: feed.tell("trajectories"))
    pages = Pages(source)
    pages.get("/", lambda visit: visit.back("/runs"), role=ConsoleRole.VIEWER)
    pages.get("/sign-in", _sign_in_page, role=ConsoleRole.NONE)
    pages.post("/sign-in", _sign_in, role=ConsoleRole.NONE)
    pages.post("/sign-out", _sign_out, role=ConsoleRole.VIEWER)
    pages.get("/live", _live)
    for chapter in (
        run_table,
        run,
        saved,
        film,
        trajectory,
        policy,
        environment,
        sweep,
        chat,
        endpoint,
        release,
        feedback,
    ):
        chapter.add_to(pages)
    _add_record(pages)
    launch.add_to(pages, launcher)
    explorer = Explorer(source.url, analytics)
    explore.add_to(pages, explorer)
    said.add_to(pages)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        indexer.start()
        try:
            yield
        finally:
            feed.end()
            indexer.close()
            explorer.close()

    static = StaticFiles(directory=str(Path(str(files("loomrl.console").joinpath("static")))))
    app = Starlette(
        routes=[*pages.routes, Mount("/static", static)],
        lifespan=lifespan,
        exception_handlers={HTTPException: _plainly(pages)},
    )
    app.state.sessions = sessions
    app.state.feed = feed
    app.state.indexer = indexer
    app.add_middleware(Shell, site=site, sessions=sessions)
    return app


def _sign_in_page(visit: PageRequest) -> Response:
    if visit.session.role is not ConsoleRole.NONE:
        return visit.back(local(visit.query("next", "/")))
    return visit.page("sign_in.html", message="", next=local(visit.query("next", "/")))


def _sign_in(visit: PageRequest) -> Response:
    request = visit.request
    address = request.client.host if request.client else ""
    before = request.cookies.get(COOKIE)
    try:
        cookie = request.app.state.sessions.sign_in(visit.form.get("key", ""), before=before, address=address)
    except Refused as refused:
        next_page = local(visit.form.get("next", "/"))
        answer = visit.page("sign_in.html", refused.status, message=str(refused), next=next_page)
        if refused.status == 429:
            answer.headers["retry-after"] = "60"
        return answer
    answer = visit.back(local(visit.form.get("next", "/")))
    answer.headers["set-cookie"] = cookie_of(cookie, is_safe=request.headers.get("origin", "").startswith("https://"))
    return answer


def _sign_out(visit: PageRequest) -> Response:
    visit.request.app.state.sessions.end(visit.request.cookies.get(COOKIE))
    answer = visit.back("/sign-in")
    answer.headers["set-cookie"] = f"{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"
    return answer


async def _live(visit: PageRequest) -> Response:
    sessions: Sessions = visit.request.app.state.sessions
    cookie = visit.request.cookies.get(COOKIE)
    role = visit.session.role
    wanted = filter_news(visit.queries("kind"), visit.queries("subject"))
    goes_on: Callable[[], bool] = lambda: sessions.known(cookie).session.role >= role  # noqa: E731
    last = visit.request.headers.get("last-event-id", "")
    after = int(last) if last.isdecimal() else visit.whole("after", -1, low=-1)
    feed: NewsFeed = visit.request.app.state.feed
    return stream(feed, wanted=wanted, after=None if after < 0 else after, goes_on=goes_on)


def _plainly(pages: Pages) -> Callable[[Request, Any], Awaitable[Response]]:
    """Answers of the framework itself, in our words."""
    said = {404: "There is no such page.", 405: "This page takes no such request."}

    async def answer(request: Request, error: HTTPException) -> Response:
        known: SessionLookup | None = getattr(request.state, "known", None)
        refused = Refused(error.status_code, said.get(error.status_code, str(error.detail)))
        if known is None:
            return _refusal(refused)
        visit = PageRequest(request, known.session, pages.source, pages.templates, request.app.state.sessions.is_open)
        return refusal_page(visit, refused, known)

    return answer


DAY_S = 86_400.0
AUDIT = ListPage[EventRow](path="/audit", title="Audit", record=EVENT_RECORDS, live="")


def _revocation(visit: PageRequest, key: Key) -> Any:
    """The button that revokes a key."""
    return visit.parts.post(visit.session, "/keys/revoke", "Revoke", id=key.id) if key.holds(time.time()) else ""


KEY_LIST = ListPage[Key](
    path="/keys",
    title="Keys",
    record=KEY_RECORDS,
    cells={"revoke": _revocation},
    template="keys.html",
    role=ConsoleRole.ADMIN,
)


def _add_record(pages: Pages) -> None:
    """The audit, and the keys."""
    AUDIT.add_to(pages)
    pages.get("/keys", _keys, role=ConsoleRole.ADMIN)
    pages.post("/keys", _create_key, role=ConsoleRole.ADMIN)
    pages.post("/keys/revoke", _revoke_key, role=ConsoleRole.ADMIN)


def _keys(visit: PageRequest, fresh: str = "") -> Response:
    return KEY_LIST.show(visit, fresh=fresh, scopes=SCOPES)


def _create_key(visit: PageRequest) -> Response:
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


def _revoke_key(visit: PageRequest) -> Response:
    id = visit.form.get("id", "")
    if KEYS.find(visit.source.db, id) is None:
        raise Refused(404, f"There is no key {id[:60]!r} in this store.")
    revoke_key(visit.source.db, id, at=time.time(), reason=f"by {visit.who} at the console")
    visit.request.app.state.sessions.forget()
    return visit.back("/keys")


NEEDED = "behind keys"
"""Stands for the token of a door that is behind keys: the console has one for each person."""


def site_for(door: Door) -> Site:
    """The names of the console, and what it takes."""
    names = frozenset(name.lower() for name in door.allowed_hosts)
    hosts = None if not is_loopback(door.host) and not names else names | {door.host.lower()}
    return Site(hosts, frozenset({JSON, FORM}))


def open_console(
    source: RecordSource,
    host: str,
    port: int,
    *,
    allowed_hosts: tuple[str, ...] = (),
    certificate: Certificate | None = None,
    now: float,
) -> Door:
    """Listen; a ServeError if other machines could reach it and no key exists to sign in with."""
    is_local = is_loopback(host)
    if not is_local and not any_key(source.db, ROLES, at=now):
        raise ServeError(
            f"host={host!r} can be reached from other machines, and no key for people is on record. Make one first: "
            "loomrl keys create NAME --scope admin; or serve on 127.0.0.1."
        )
    token = None if is_local else NEEDED
    return open_door(host, port, token=token, allowed_hosts=allowed_hosts, certificate=certificate)


def serve_console(
    source: RecordSource, door: Door, *, launcher: Launcher | None = None, analytics: str | None = None
) -> None:
    """Serve until interrupted."""
    is_local = is_loopback(door.host)
    app = console_app(source, site=site_for(door), is_local=is_local, launcher=launcher, analytics=analytics)
    serve(app, door.listeners, limits=Limits(), ending=app.state.feed.end, tls=door.tls)
