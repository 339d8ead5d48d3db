"""Protection from other sites' web pages: a browser lets any page on the internet send requests to localhost.

A page of another site is recognised by `Origin`, by `Sec-Fetch-Site`, by a `Host` of its own name that it pointed at us
(DNS rebinding), or by the content types that a form can send. Programs send none of these.
"""

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from loomrl.http.listen import Door, is_loopback


class Refused(Exception):
    """A refused request, with its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def refusal_of(refused: Refused) -> JSONResponse:
    """The answer to a refused request, after which its connection is closed."""
    extra = {"www-authenticate": "Bearer"} if refused.status == 401 else {}
    answer = {"error": "Refused", "message": str(refused)}
    return JSONResponse(answer, refused.status, headers={"connection": "close", **extra})


SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
JSON = "application/json"
Serve = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Site:
    """The names of a server, and the content types it accepts."""

    hosts: frozenset[str] | None = frozenset()
    """Accepted host names beside this machine's own; None accepts any, for servers with a token."""
    content_types: frozenset[str] = frozenset({JSON})
    origins: frozenset[str] = frozenset()
    """Sites whose pages may ask, such as https://chat.example.org."""
    option: str = "--allow-host NAME"
    """The option of the server's command that adds a name."""

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Raise Refused for a request that a page of another site may have made."""
        host = headers.get("host", "").lower()
        if not self._is_ours(_name(host)):
            raise Refused(
                421,
                f"Host {host!r} is not this server's name. Use 127.0.0.1 or localhost; or start it with "
                f"{self.option.replace('NAME', _name(host) or 'NAME')}, if that is its name.",
            )
        origin = headers.get("origin")
        is_friend = origin is not None and origin.lower() in self.origins
        if origin is not None and not is_friend and urlsplit(origin.lower()).netloc != host:
            raise Refused(403, f"Origin {origin!r} is another site: its pages may not ask this server.")
        if (
            not is_friend
            and headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            and not _is_visit(method, headers)
        ):
            raise Refused(403, "A page of another site made this request: it may not ask this server.")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if method not in SAFE_METHODS and kind and kind not in self.content_types:
            known = ", ".join(sorted(self.content_types))
            raise Refused(415, f"Content-Type {kind!r} is not taken here. Known: {known}.")

    def _is_ours(self, name: str) -> bool:
        return self.hosts is None or is_loopback(name) or name in self.hosts


def site_of(door: Door, *content_types: str) -> Site:
    """The site of a door: its allowed names; without any, a token suffices."""
    names = frozenset(name.lower() for name in door.allowed_hosts)
    hosts = None if door.token and not names else names | {door.host.lower()}
    return Site(hosts, frozenset({JSON, *content_types}))


def for_programs(serve: Serve) -> Serve:
    """An endpoint that refuses browsers: for a GET with side effects, which any link or image could send."""

    @functools.wraps(serve)
    async def endpoint(request: Request) -> Response:
        signs = [name for name in ("sec-fetch-site", "sec-fetch-mode", "referer", "origin") if name in request.headers]
        if signs:
            message = f"{request.url.path} changes what is stored: it is for programs, not for browsers ({signs[0]})."
            return refusal_of(Refused(403, message))
        return await serve(request)

    return endpoint


def _is_visit(method: str, headers: Mapping[str, str]) -> bool:
    """True if a person follows a link to us: the linking page cannot read the answer."""
    sent = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return method == "GET" and sent == ("navigate", "document")


def _name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0].rstrip(".")


def open_to(app: ASGIApp, origins: Collection[str], *, shown: Collection[str] = ()) -> ASGIApp:
    """The application, for pages of these sites too; they may read the headers `shown`."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        expose_headers=list(shown),
    )
