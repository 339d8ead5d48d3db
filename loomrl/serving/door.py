"""The incoming request: body, caller, session."""

import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl

from loomrl.serving.refusal import Cause, Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SESSION = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
SESSION_HEADER = "x-loomrl-session"
IN_KEY = "~"
"""`KEY~SESSION`: for programs in which only the key can be set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The holder of a key."""

    key: str
    """The key's id, not the key."""
    session: str = ""
    """The session that the key is bound to, if any."""
    is_admin: bool = False
    """What others recorded is open to it."""


class Keys(Protocol):
    """Knows callers by their keys."""

    async def caller(self, token: str | None, *, scope: str) -> Caller:
        """The caller; a Refusal KEY, FORBIDDEN or BUDGET."""

    def spent(self, caller: Caller, tokens: int) -> None:
        """Count an answer's tokens against the caller's budget."""


class NoKeys:
    """No keys: every caller may do everything. For this machine only."""

    async def caller(self, token: str | None, *, scope: str) -> Caller:
        """The caller."""
        return Caller(key="")

    def spent(self, caller: Caller, tokens: int) -> None:
        """Nothing is counted."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request's head."""

    method: str
    path: str
    """Below the session, if the path names one."""
    session: str
    token: str | None
    headers: Mapping[str, str] = field(repr=False)
    query: Mapping[str, str]
    id: str


def incoming(scope: Scope) -> Incoming:
    """The head of a request; a Refusal for an invalid session id."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    path = scope["path"]
    session = headers.get(SESSION_HEADER, "")
    if path.startswith("/sessions/"):
        _, _, session, *rest = path.split("/", 3)
        path = f"/{rest[0]}" if rest else "/"
    token = _token(headers)
    if token is not None and IN_KEY in token:
        token, _, in_key = token.partition(IN_KEY)
        session = session or in_key
    if session and not SESSION.fullmatch(session):
        message = "A session's name has 1 to 128 letters, digits or . _ : @ -"
        raise Refusal(Cause.INVALID, message, where="session")
    asked = headers.get("x-request-id", "")
    return Incoming(
        method=scope["method"],
        path=path,
        session=session,
        token=token,
        headers=headers,
        query=dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)),
        id=asked if SESSION.fullmatch(asked) else uuid.uuid4().hex,
    )


def _token(headers: Mapping[str, str]) -> str | None:
    """The key, as OpenAI's and Anthropic's clients send it."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and bearer.strip():
        return bearer.strip()
    return headers.get("x-api-key") or None


async def body_of(receive: Receive, headers: Mapping[str, str], *, most: int, heard: int = 0) -> bytes:
    """The body; a Refusal beyond `most` bytes, or if it is compressed.

    Of a longer one so many bytes are `heard` before it is refused, at least four times `most`.
    """
    heard = max(heard, 4 * most)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(Cause.INVALID, "Compressed bodies are not read: leave out Content-Encoding.")
    announced = headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > most:
        await _discard(receive, heard)
        raise Refusal(Cause.TOO_LARGE, f"A body has at most {most} bytes, this one {announced}.")
    parts = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(Cause.INVALID, "The request was cut off.")
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > most:
            await _discard(receive, heard)
            raise Refusal(Cause.TOO_LARGE, f"A body has at most {most} bytes, this one more.")
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _discard(receive: Receive, most: int) -> None:
    """Read what is left, up to a limit, so that its sender sees the answer instead of a broken pipe."""
    more = True
    while more and most > 0:
        message = await receive()
        most -= len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)
