"""The application: who may see what, in which headers, and all pages."""

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
    audit,
    chat,
    endpoint,
    environment,
    explore,
    feedback,
    launch,
    policy,
    reference,
    release,
    run,
    run_table,
    saved,
    sweep,
    trajectory,
)
from loomrl.console.explore import Explorer
from loomrl.console.index import Indexer
from loomrl.console.launch import Launcher
from loomrl.console.live import NewsFeed, filter_news, stream
from loomrl.console.page import PageRequest, Pages, local, refusal_page
from loomrl.console.session import COOKIE, ConsoleRole, SessionLookup, Sessions
from loomrl.console.source import RecordSource
from loomrl.http.site import Refused, Site

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
        trajectory,
        reference,
        policy,
        environment,
        sweep,
        chat,
        endpoint,
        release,
        feedback,
        audit,
    ):
        chapter.add_to(pages)
    launch.add_to(pages, launcher)
    explorer = Explorer(source.url, analytics)
    explore.add_to(pages, explorer)

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
