"""Metrics in Prometheus' text format, and a server for processes that have none of their own."""

import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route as Route

from loomrl.errors import ConfigError, LoomError
from loomrl.http.admission import Admission
from loomrl.http.listen import Door, open_door
from loomrl.http.server import Server
from loomrl.http.site import site_of

Registry = CollectorRegistry
KIND = CONTENT_TYPE_PLAIN_0_0_4
PATH = "/metrics"
TARGETS = "/targets"
TOKEN = "LOOMRL_METRICS_TOKEN"
"""The environment variable of the token that Prometheus sends to processes other machines can reach."""
Targets = Callable[[], Sequence[Mapping[str, Any]]]


def door_at(address: str) -> Door:
    """Listen at `HOST:PORT`; port 0 takes any that is free. Beyond this machine LOOMRL_METRICS_TOKEN is needed."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"metrics={address!r:.100}: HOST:PORT is needed, such as 127.0.0.1:0 for any free port.")
    return open_door(host.strip("[]"), int(port), token=os.environ.get(TOKEN))


def process_registry() -> Registry:
    """A registry of this process, with its memory, CPU seconds and open files."""
    registry = Registry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def text_of(registry: Registry) -> bytes:
    """All metrics of a registry."""
    return generate_latest(registry)


def metrics_route(registry: Registry) -> Route:
    """`GET /metrics`. Where the record cannot be read it is 503, which Prometheus takes for `up == 0`."""
    return Route(PATH, _endpoint(lambda: Response(text_of(registry), media_type=KIND)), methods=["GET"])


def targets_route(targets: Targets) -> Route:
    """`GET /targets`: what Prometheus should scrape, for its `http_sd_configs`."""
    return Route(TARGETS, _endpoint(lambda: JSONResponse(list(targets()))), methods=["GET"])


@contextmanager
def exposed(door: Door, routes: Sequence[Route]) -> Iterator[str]:
    """Answer these routes behind the door, in a thread, until the context ends; its URL."""
    app = Starlette(routes=list(routes), middleware=[Middleware(Admission, site=site_of(door), token=door.token)])
    server = Server(app, door.listeners)
    thread = threading.Thread(target=server.run, name="metrics", daemon=True)
    thread.start()
    try:
        yield door.url
    finally:
        server.should_exit = True
        thread.join()


def _endpoint(answer: Callable[[], Response]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            return await run_in_threadpool(answer)
        except LoomError as error:
            return PlainTextResponse(f"{type(error).__name__}: {error}\n", 503)

    return endpoint
