"""The gateway's answer to one request, with the headers that all of them have."""

from loomrl.serving.call import Heading, Usage
from loomrl.serving.door import Send

JSON = "application/json"
Headers = list[tuple[bytes, bytes]]


class Reply:
    """Writes one response, with the headers that all of them have."""

    def __init__(self, send: Send, id: str) -> None:
        self._send = send
        self.id = id
        self.heading: Heading | None = None
        self.is_recorded = False
        self.is_begun = False
        self.status = 0
        """0 until it is begun."""
        self.usage: Usage | None = None

    async def whole(self, status: int, body: bytes, *, kind: str = JSON, extra: Headers | None = None) -> None:
        """The response at once."""
        await self._start(status, kind, [(b"content-length", str(len(body)).encode()), *(extra or [])])
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, status: int, kind: str, body: bytes) -> None:
        """The first part."""
        await self._start(status, kind, [(b"cache-control", b"no-cache")])
        await self.more(body)

    async def more(self, body: bytes) -> None:
        """A further part."""
        if body:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes) -> None:
        """The last part."""
        await self._send({"type": "http.response.body", "body": body})

    async def _start(self, status: int, kind: str, extra: Headers) -> None:
        self.is_begun = True
        self.status = status
        headers: Headers = [(b"content-type", kind.encode()), (b"x-request-id", self.id.encode()), *extra]
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
