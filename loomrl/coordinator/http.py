"""The training service over HTTP, by the paths of the contract."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from loomrl.coordinator.service import Answer, TrainingService, status_code
from loomrl.errors import ConfigError, LoomError
from loomrl.http.admission import Admission
from loomrl.http.listen import Door
from loomrl.http.server import Server
from loomrl.http.site import Site, site_of

MAX_BYTES = 1 << 20
Ask = Callable[[TrainingService, Request, bytes], Answer]


def create_app(service: TrainingService, *, site: Site, token: str | None, beside: Sequence[Route] = ()) -> Starlette:
    """The application that answers for a service, and for other routes `beside` its own."""
    routes = [
        Route("/health", _endpoint(service, _health), methods=["GET"]),
        Route("/training/start", _endpoint(service, _start, status=202), methods=["POST"]),
        Route("/training/{job_id}/status", _endpoint(service, _status), methods=["GET"]),
        Route("/training/{job_id}/cancel", _endpoint(service, _cancel), methods=["POST"]),
        Route("/jobs", _endpoint(service, _jobs), methods=["GET"]),
        Route("/models", _endpoint(service, _models), methods=["GET"]),
        *beside,
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Admission, site=site, token=token, max_bytes=MAX_BYTES)],
        exception_handlers={LoomError: _refuse},
    )


@contextmanager
def served(service: TrainingService, door: Door, beside: Sequence[Route] = ()) -> Iterator[str]:
    """Answer behind the door, in a thread, until the context ends; its URL."""
    app = create_app(service, site=site_of(door), token=door.token, beside=beside)
    server = Server(app, door.listeners, tls=door.tls)
    thread = threading.Thread(target=server.run, name="training service", daemon=True)
    thread.start()
    try:
        yield door.url
    finally:
        server.should_exit = True
        thread.join()


def _health(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.health()


def _start(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.start(body)


def _status(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.status(request.path_params["job_id"])


def _cancel(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.cancel(request.path_params["job_id"], who="http")


def _jobs(service: TrainingService, request: Request, body: bytes) -> Answer:
    asked = _only(request.query_params, "status", "limit", "since")
    return service.jobs(status=asked.get("status"), limit=_whole(asked), since=asked.get("since"))


def _models(service: TrainingService, request: Request, body: bytes) -> Answer:
    asked = _only(request.query_params, "deployed_since", "limit")
    return service.models(deployed_since=asked.get("deployed_since"), limit=_whole(asked))


def _only(given: Mapping[str, str], *known: str) -> Mapping[str, str]:
    for name in given:
        if name not in known:
            raise ConfigError(f"query parameter {name!r:.60} is unknown. Known: {', '.join(known)}.")
    return given


def _whole(asked: Mapping[str, str]) -> int:
    text = asked.get("limit", "50")
    if not text.isdecimal() or len(text) > 9:
        raise ConfigError(f"limit={text!r:.60}: a whole number is needed.")
    return int(text)


def _endpoint(service: TrainingService, ask: Ask, *, status: int = 200) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        answer = await run_in_threadpool(ask, service, request, body)
        return JSONResponse(answer, status)

    return endpoint


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, LoomError)
    return JSONResponse({"error": type(error).__name__, "message": str(error)}, status_code(error))
