"""The hub over HTTP: an ASGI application with the `/v2` routes, and other protocols mounted beside them."""

from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from loomrl.errors import Conflict, CorruptPayload, HubError, LeaseLost, LoomError, StoreError
from loomrl.http.admission import MAX_BYTES, Admission
from loomrl.http.listen import Door
from loomrl.http.server import serve
from loomrl.http.site import JSON, Site, site_of
from loomrl.hub import wire
from loomrl.hub.hub import Hub

STATUS: dict[type[LoomError], int] = {
    CorruptPayload: 400,
    Conflict: 409,
    LeaseLost: 410,
    HubError: 422,
    StoreError: 503,
}
Answer = Callable[[Hub, bytes], tuple[bytes, str]]
THIS_MACHINE = Site(content_types=frozenset({JSON, wire.PAYLOADS}))


def create_app(
    hub: Hub,
    *,
    site: Site = THIS_MACHINE,
    token: str | None = None,
    extra_routes: Sequence[BaseRoute] = (),
    max_bytes: int = MAX_BYTES,
) -> Starlette:
    """The application that serves `hub`. Routes that are given stand behind the same token and size limits."""
    v2 = [Route(f"/v2/{name}", _endpoint(hub, one.serve), methods=["POST"]) for name, one in wire.OPERATIONS.items()]
    return Starlette(
        routes=[*v2, Route("/v2/health", _endpoint(hub, _health), methods=["GET"]), *extra_routes],
        middleware=[Middleware(Admission, site=site, token=token, max_bytes=max_bytes)],
        exception_handlers={LoomError: _refuse},
    )


def _health(hub: Hub, _: bytes) -> tuple[bytes, str]:
    """Reads from the store, so that a hub whose database is down says so."""
    hub.stats()
    return wire.DONE, wire.JSON


def _endpoint(hub: Hub, answer: Answer) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        message = await request.receive()  # admission hands a body over in one piece; `body()` would copy it
        content, media_type = await run_in_threadpool(answer, hub, message["body"])
        return Response(content, media_type=media_type)

    return endpoint


async def _refuse(_: Request, error: Exception) -> Response:
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return JSONResponse({"error": type(error).__name__, "message": str(error)}, status)


def serve_hub(hub: Hub, door: Door, *, extra_routes: Sequence[BaseRoute] = ()) -> None:
    """Serve behind the door until interrupted or terminated; then SystemExit or KeyboardInterrupt, to close the hub."""
    site = site_of(door, wire.PAYLOADS)
    serve(create_app(hub, site=site, token=door.token, extra_routes=extra_routes), door.listeners, tls=door.tls)
