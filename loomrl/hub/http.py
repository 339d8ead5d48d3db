"""The hub over HTTP: an ASGI application with the `/v2` routes, and whatever other protocol is mounted beside them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from loomrl.errors import Conflict, CorruptPayload, HubError, LeaseLost, LoomError, StoreError
from loomrl.http.gate import MAX_BYTES, Gate
from loomrl.http.site import JSON, Site
from loomrl.hub import wire
from loomrl.hub.codec import split
from loomrl.hub.hub import Hub, HubStats

log = logging.getLogger(__name__)
SWEEP_S = 1.0
STATUS: dict[type[LoomError], int] = {
    CorruptPayload: 400,
    Conflict: 409,
    LeaseLost: 410,
    HubError: 422,
    StoreError: 503,
}
Answer = Callable[[Hub, bytes], Response]
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
    v2 = [Route(f"/v2/{name}", _endpoint(hub, answer), methods=["POST"]) for name, answer in _ANSWERS.items()]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sweeper = asyncio.create_task(_sweep_often(hub))
        yield
        sweeper.cancel()

    return Starlette(
        routes=[*v2, Route("/v2/health", _endpoint(hub, _health), methods=["GET"]), *extra_routes],
        middleware=[Middleware(Gate, site=site, token=token, max_bytes=max_bytes)],
        exception_handlers={LoomError: _refuse},
        lifespan=lifespan,
    )


def _append(hub: Hub, body: bytes) -> Response:
    return _json(wire.Cursors(hub.append_payloads(list(split(body)))))


def _open(hub: Hub, body: bytes) -> Response:
    return _json(wire.Admitted(hub.open(wire.parse(body, wire.OpenBody).plans)))


def _demand(hub: Hub, body: bytes) -> Response:
    return _json(wire.Number(hub.demand(version=wire.parse(body, wire.VersionBody).version)))


def _lease(hub: Hub, body: bytes) -> Response:
    asked = wire.parse(body, wire.LeaseBody)
    lease = hub.lease(
        asked.count,
        version=asked.version,
        consumer=asked.consumer,
        at_least=asked.at_least,
        lease_id=asked.lease_id,
    )
    return Response(wire.pack_lease(lease), media_type=wire.PAYLOADS)


def _lease_groups(hub: Hub, body: bytes) -> Response:
    asked = wire.parse(body, wire.LeaseGroupsBody)
    lease = hub.lease_groups(asked.ids, version=asked.version, consumer=asked.consumer, lease_id=asked.lease_id)
    return Response(wire.pack_lease(lease), media_type=wire.PAYLOADS)


def _ready(hub: Hub, body: bytes) -> Response:
    return _json(wire.Waiting(hub.ready(limit=wire.parse(body, wire.LimitBody).limit)))


def _renew(hub: Hub, body: bytes) -> Response:
    return _json(wire.Number(hub.renew(wire.parse(body, wire.LeaseIdBody).lease_id)))


def _release(hub: Hub, body: bytes) -> Response:
    hub.release(wire.parse(body, wire.LeaseIdBody).lease_id)
    return _json(wire.Done())


def _ack(hub: Hub, body: bytes) -> Response:
    asked = wire.parse(body, wire.AckBody)
    hub.ack(asked.lease_id, version=asked.version)
    return _json(wire.Done())


def _read(hub: Hub, body: bytes) -> Response:
    asked = wire.parse(body, wire.ReadBody)
    page = hub.read(asked.after, limit=asked.limit, selection=asked.selection)
    return Response(wire.pack_page(page), media_type=wire.PAYLOADS)


def _stats(hub: Hub, _: bytes) -> Response:
    return _json(hub.stats())


def _share(hub: Hub, body: bytes) -> Response:
    asked = wire.parse(body, wire.ShareBody)
    hub.share(asked.environment, weight=asked.weight, min_share=asked.min_share)
    return _json(wire.Done())


def _remember(hub: Hub, body: bytes) -> Response:
    asked = wire.parse(body, wire.NoteBody)
    hub.remember(asked.key, asked.text)
    return _json(wire.Done())


def _recall(hub: Hub, body: bytes) -> Response:
    return _json(wire.Note(hub.recall(wire.parse(body, wire.NoteBody).key)))


def _sweep(hub: Hub, _: bytes) -> Response:
    hub.sweep()
    return _json(wire.Done())


def _health(hub: Hub, _: bytes) -> Response:
    """Reads from the store, so that a hub whose database is down says so."""
    hub.recall("health")
    return _json(wire.Done())


_ANSWERS: dict[str, Answer] = {
    "append": _append,
    "open": _open,
    "demand": _demand,
    "lease": _lease,
    "lease_groups": _lease_groups,
    "ready": _ready,
    "renew": _renew,
    "release": _release,
    "ack": _ack,
    "read": _read,
    "stats": _stats,
    "share": _share,
    "remember": _remember,
    "recall": _recall,
    "sweep": _sweep,
}


def _endpoint(hub: Hub, answer: Answer) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        message = await request.receive()  # the gate hands a body over in one piece; `body()` would copy it
        return await run_in_threadpool(answer, hub, message["body"])

    return endpoint


def _json(message: wire.Message | HubStats) -> Response:
    return Response(msgspec.json.encode(message), media_type=wire.JSON)


async def _refuse(_: Request, error: Exception) -> Response:
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    return JSONResponse({"error": type(error).__name__, "message": str(error)}, status)


async def _sweep_often(hub: Hub) -> None:
    """Leases expire and groups time out even while nobody asks."""
    while True:
        await asyncio.sleep(SWEEP_S)
        try:
            await run_in_threadpool(hub.sweep)
        except LoomError as error:
            log.warning("The hub could not be swept: %s", error)
