"""Middleware before every route: origin checks, the token, size limits, and decompression within them."""

import hmac
import zlib

import zstandard
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loomrl.http.site import Refused, Site, refusal_of

MAX_BYTES = 128 << 20
OPEN_PATHS = frozenset({"/health", "/v2/health"})
"""Paths that need no token, for load balancers."""

MAX_ZSTD_WINDOW = 1 << 27


class Admission:
    """ASGI middleware: 401 without the token, 413 beyond `max_bytes` (as sent, or unpacked), plain bodies inside.

    421, 403 and 415 for requests that a page of another site than `site` could have sent.
    """

    def __init__(self, app: ASGIApp, *, site: Site, token: str | None, max_bytes: int = MAX_BYTES) -> None:
        self._app = app
        self._site = site
        self._token = token
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "This server speaks plain HTTP only."})
            return
        headers = Headers(scope=scope)
        arrived = False

        async def watch() -> Message:
            nonlocal arrived
            message = await receive()
            arrived = not message.get("more_body", False)
            return message

        try:
            self._site.check(scope["method"], headers)
            self._authorise(scope["path"], headers)
            body = await self._body(headers, watch)
        except Refused as refusal:
            if not arrived:  # what comes after a whole request is the client's goodbye: nothing to wait for
                await _discard(receive, self._max_bytes)
            await refusal_of(refusal)(scope, receive, send)
            return
        await self._app(_plain(scope, len(body)), _replay(body, receive), send)

    def _authorise(self, path: str, headers: Headers) -> None:
        if self._token is None or path in OPEN_PATHS:
            return
        given = headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            raise Refused(401, "This server wants its token: send the header 'Authorization: Bearer TOKEN'.")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced) > self._max_bytes:
            raise self._too_large(f"{announced} bytes")
        chunks = []
        size = 0
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "The request was cut off.")
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            more = message.get("more_body", False)
            if size > self._max_bytes:
                raise self._too_large("more")
        return self._unpack(b"".join(chunks), headers.get("content-encoding", "identity").strip().lower())

    def _unpack(self, body: bytes, encoding: str) -> bytes:
        if encoding == "identity":
            return body
        try:
            plain = _UNPACK[encoding](body, self._max_bytes + 1)
        except KeyError:
            known = ", ".join(sorted(_UNPACK))
            raise Refused(415, f"Content-Encoding {encoding!r} is unknown. Known: {known}.") from None
        except (zlib.error, zstandard.ZstdError, EOFError) as error:
            raise Refused(400, f"The {encoding} body cannot be unpacked: {error}.") from None
        if len(plain) > self._max_bytes:
            raise self._too_large("more, unpacked")
        return plain

    def _too_large(self, found: str) -> Refused:
        return Refused(413, f"A body holds at most {self._max_bytes} bytes, this one {found}. Send it in parts.")


def _gunzip(body: bytes, limit: int) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    plain = stream.decompress(body, limit)
    if not stream.eof and len(plain) < limit:
        raise EOFError("it is cut off")
    return plain


def _unzstd(body: bytes, limit: int) -> bytes:
    stream = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW).stream_reader(body, read_across_frames=True)
    return stream.read(limit)


_UNPACK = {"gzip": _gunzip, "zstd": _unzstd}


async def _discard(receive: Receive, most: int) -> None:
    """Read the rest of a refused request, up to a limit, so that its sender gets our answer instead of a broken
    pipe.
    """
    more = True
    while more and most > 0:
        message = await receive()
        most -= len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)


def _plain(scope: Scope, length: int) -> Scope:
    """The request as if it had been sent uncompressed."""
    kept = [(name, value) for name, value in scope["headers"] if name not in (b"content-encoding", b"content-length")]
    return {**scope, "headers": [*kept, (b"content-length", str(length).encode())]}


def _replay(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
