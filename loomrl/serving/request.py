"""One HTTP request to a gateway: its head and body, who calls, the reply, and what the log says of it."""

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl, quote

import msgspec

from loomrl.observability import trace
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.call import Heading, Usage
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.store.endpoints import Endpoint

log = redacted_logger(__name__)
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
JSON = "application/json"
SESSION = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
SESSION_HEADER = "x-loomrl-session"
PRINTED = "".join(map(chr, range(32, 127)))
"""Letters that a header may have as they are."""
IN_KEY = "~"
"""`KEY~SESSION`: for programs in which only the key can be set."""
QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that machines ask again and again."""
OPERATIONS = {"/v1/completions": "text_completion", "/v1/act": "act"}
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The holder of a key."""

    key: str
    """The key's id, not the key."""
    session: str = ""
    """The session that the key is bound to, if any."""
    endpoint: Endpoint | None = None
    """The endpoint that the key is bound to, for any model that the caller names."""
    is_admin: bool = False
    """The key may read what other keys recorded."""


class CallerKeys(Protocol):
    """Knows callers by their keys."""

    async def caller(self, token: str | None, *, scope: str) -> Caller:
        """The caller; a Refusal KEY, FORBIDDEN or BUDGET."""

    def spent(self, caller: Caller, tokens: int) -> None:
        """Count an answer's tokens against the caller's budget."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request whose head was read."""

    method: str
    path: str
    """Below the session, if the path names one."""
    session: str
    token: str | None
    headers: Mapping[str, str] = field(repr=False)
    query: Mapping[str, str]
    id: str
    receive: Receive = field(repr=False)

    async def body(self, most: int, *, read_on: int = 0) -> bytes:
        """The body; a Refusal beyond `most` bytes, or if it is compressed.

        At least `read_on` bytes of a longer body are read before it is refused, and at least four times `most`: its
        sender sees the answer instead of a broken pipe.
        """
        read_on = max(read_on, 4 * most)
        if self.headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(RefusalCause.INVALID, "Compressed bodies are not read: leave out Content-Encoding.")
        announced = self.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > most:
            await self._discard(read_on)
            raise Refusal(RefusalCause.TOO_LARGE, f"A body has at most {most} bytes, this one {announced}.")
        parts = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Refusal(RefusalCause.INVALID, "The request was cut off.")
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > most:
                await self._discard(read_on)
                raise Refusal(RefusalCause.TOO_LARGE, f"A body has at most {most} bytes, this one more.")
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def run_unless_gone(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; it is cancelled if the caller hangs up."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._wait_until_gone())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        finally:
            task.cancel()
            gone.cancel()

    async def _wait_until_gone(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _discard(self, most: int) -> None:
        more = True
        while more and most > 0:
            message = await self.receive()
            most -= len(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)


def read_head(scope: Scope, receive: Receive) -> HttpRequest:
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
        raise Refusal(RefusalCause.INVALID, message, where="session")
    wanted = headers.get("x-request-id", "")
    return HttpRequest(
        method=scope["method"],
        path=path,
        session=session,
        token=token,
        headers=headers,
        query=dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)),
        id=wanted if SESSION.fullmatch(wanted) else uuid.uuid4().hex,
        receive=receive,
    )


def _token(headers: Mapping[str, str]) -> str | None:
    """The key, as OpenAI's and Anthropic's clients send it."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and bearer.strip():
        return bearer.strip()
    return headers.get("x-api-key") or None


def read_json(body: bytes) -> Mapping[str, Any]:
    """The JSON object in a body."""
    try:
        found = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(RefusalCause.INVALID, f"The body is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise Refusal(RefusalCause.INVALID, "The body must be a JSON object.")
    return found


class HttpReply:
    """Writes one response, with the headers that all of them have."""

    def __init__(self, send: Send, id: str) -> None:
        self._send = send
        self.id = id
        self.heading: Heading | None = None
        self.is_recorded = False
        self.ignored: tuple[str, ...] = ()
        """Paths of the request's fields that were left out."""
        self.is_begun = False
        self.status = 0
        """0 until it is begun."""
        self.usage: Usage | None = None

    async def whole(self, status: int, body: bytes, *, kind: str = JSON, extra: Headers | None = None) -> None:
        """Send the response at once."""
        await self._start(status, kind, [(b"content-length", str(len(body)).encode()), *(extra or [])])
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, status: int, kind: str, body: bytes) -> None:
        """Send the first part."""
        await self._start(status, kind, [(b"cache-control", b"no-cache")])
        await self.more(body)

    async def more(self, body: bytes) -> None:
        """Send a further part."""
        if body:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes) -> None:
        """Send the last part."""
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self, status: int, kind: str, extra: Headers) -> None:
        self.is_begun = True
        self.status = status
        headers: Headers = [(b"content-type", kind.encode()), (b"x-request-id", self.id.encode()), *extra]
        if self.ignored:
            headers.append((b"x-loomrl-ignored", quote(", ".join(self.ignored), safe=PRINTED).encode()))
        if (heading := self.heading) is not None:
            headers += [
                (b"x-loomrl-version", heading.version.encode()),
                (b"x-loomrl-arm", heading.arm.encode()),
                (b"x-loomrl-recorded", b"true" if self.is_recorded else b"false"),
            ]
            if heading.trajectory:
                headers += [
                    (b"x-loomrl-session", heading.session.encode()),
                    (b"x-loomrl-trajectory", heading.trajectory.encode()),
                ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


@contextmanager
def log_request(request: HttpRequest, reply: HttpReply) -> Iterator[None]:
    """Trace and log the request that is answered in the block, never its content."""
    if request.path in QUIET:
        yield
        return
    path = request.path[:100]
    began = time.perf_counter()
    above = request.headers.get("traceparent", "")
    with trace.serving(f"{request.method} {path}", request=request.id, traceparent=above) as span:
        yield
        _describe(span, request, reply)
        if log.isEnabledFor(logging.INFO):
            log.info("%s %s %d", request.method, path, reply.status, extra=_fields(reply, began))


def _describe(span: trace.Span, request: HttpRequest, reply: HttpReply) -> None:
    """Set the conventions' names for servers and for generative AI."""
    if span is trace.NOTHING:
        return
    span.set(
        http__request__method=request.method, url__path=request.path[:100], http__response__status_code=reply.status
    )
    if (heading := reply.heading) is not None:
        operation = OPERATIONS.get(request.path, "chat")
        span.rename(f"{operation} {heading.model}")
        span.set(
            gen_ai__operation__name=operation,
            gen_ai__provider__name="loomrl",
            gen_ai__request__model=heading.model,
            gen_ai__response__model=heading.version,
            gen_ai__response__id=heading.id,
            gen_ai__conversation__id=_random_session(heading),
            loomrl__arm=heading.arm,
            loomrl__recorded=reply.is_recorded,
        )
    if (usage := reply.usage) is not None:
        span.set(gen_ai__usage__input_tokens=usage.prompt, gen_ai__usage__output_tokens=usage.completion)
    if reply.status >= 500:
        span.set(error__type=str(reply.status))


def _fields(reply: HttpReply, began: float) -> dict[str, object]:
    fields: dict[str, object] = {"status": reply.status, "ms": round(1000 * (time.perf_counter() - began), 2)}
    if (heading := reply.heading) is not None:
        fields |= {"endpoint": heading.model, "arm": heading.arm, "version": heading.version}
        fields |= {"session": session} if (session := _random_session(heading)) else {}
    if reply.usage is not None:
        fields |= {"prompt_tokens": reply.usage.prompt, "completion_tokens": reply.usage.completion}
    return fields


def _random_session(heading: Heading) -> str | None:
    """The session's id, unless the caller chose it: it may be a person's name."""
    return heading.session if trace.is_random(heading.session) else None
