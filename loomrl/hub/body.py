"""The body of a request: limited in size, inflated if it is gzip, refused with a reason."""

import zlib

from starlette.requests import Request

GZIP = zlib.MAX_WBITS | 16


class Refused(Exception):
    """A request that is answered with this status and this reason, and has changed nothing."""

    def __init__(self, status: int, detail: object) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail


async def read_body(request: Request, limit: int) -> bytes:
    """The body as the client meant it; neither it nor what arrived may be longer than `limit` bytes."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", ""):
        raise Refused(415, f"Content-Encoding: {encoding} is unknown. Known: gzip, identity.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _too_long(limit)
    return inflate(bytes(body), limit) if encoding == "gzip" else bytes(body)


def inflate(packed: bytes, limit: int) -> bytes:
    """Undo gzip, without ever holding more than `limit` bytes of what comes out."""
    stream = zlib.decompressobj(GZIP)
    try:
        body = stream.decompress(packed, limit + 1)
    except zlib.error:
        raise Refused(400, "Invalid gzip payload") from None
    if len(body) > limit:
        raise _too_long(limit)
    if packed and not stream.eof:
        raise Refused(400, "Invalid gzip payload: it ends too early")
    return body


def _too_long(limit: int) -> Refused:
    return Refused(413, f"The body is longer than {limit} bytes: send fewer groups at once, or raise the limit.")
