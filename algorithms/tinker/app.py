"""The routes of the `tinker` client, behind keys with the scope `train`."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from loomrl.algorithms.tinker.service import AGAIN_S, TinkerRefusal, TinkerService
from loomrl.algorithms.tinker.training import SCHEME
from loomrl.algorithms.tinker.wire import (
    PROTOBUF,
    CreateModelBody,
    CreateSamplerBody,
    CreateSessionBody,
    SampleBody,
)
from loomrl.errors import ArtifactError, ConfigError, LoomError, RunTaken, StoreAway
from loomrl.http.admission import Admission
from loomrl.http.listen import Door
from loomrl.http.server import serve
from loomrl.http.site import Site, site_of
from loomrl.serving.refusal import Refusal
from loomrl.serving.request import Caller, CallerKeys

PREFIX = "tml-"
"""The client wants its keys to begin so: ours follows."""
CLIENT_CONFIG = {"pjwt_auth_enabled": False, "parallel_fwdbwd_chunks": True, "custom_loss_server_side": False}
VERBS = ("forward_backward", "optim_step", "save_weights", "save_weights_for_sampler", "load_weights")
Answer = Callable[[TinkerService, Caller, Request], Awaitable[Any]]


async def _config(service: TinkerService, caller: Caller, request: Request) -> Any:
    return CLIENT_CONFIG


async def _nothing(service: TinkerService, caller: Caller, request: Request) -> Any:
    return {}


async def _accept(service: TinkerService, caller: Caller, request: Request) -> Any:
    return {"status": "accepted"}


async def _capabilities(service: TinkerService, caller: Caller, request: Request) -> Any:
    return service.capabilities()


async def _create_session(service: TinkerService, caller: Caller, request: Request) -> Any:
    return await service.create_session(
        caller, CreateSessionBody.parse(await _read_object(request), origin="create_session")
    )


async def _beat(service: TinkerService, caller: Caller, request: Request) -> Any:
    return await service.beat(caller, await _word(request, "session_id"))


async def _finish(service: TinkerService, caller: Caller, request: Request) -> Any:
    told = await _read_object(request)
    reason = told.get("reason")
    kind = str(reason.get("type")) if isinstance(reason, dict) else "success"
    return await service.finish(caller, request.path_params["session"], kind)


async def _create_model(service: TinkerService, caller: Caller, request: Request) -> Any:
    return await service.create_model(caller, CreateModelBody.parse(await _read_object(request), origin="create_model"))


async def _info(service: TinkerService, caller: Caller, request: Request) -> Any:
    return await service.info(caller, await _word(request, "model_id"))


async def _submit(verb: str, service: TinkerService, caller: Caller, request: Request) -> Any:
    return await service.submit(caller, verb, await request.body())


async def _create_sampler(service: TinkerService, caller: Caller, request: Request) -> Any:
    body = CreateSamplerBody.parse(await _read_object(request), origin="create_sampling_session")
    return await service.create_sampler(caller, body)


async def _sampler(service: TinkerService, caller: Caller, request: Request) -> Any:
    return await service.sampler(caller, request.path_params["sampler"])


async def _sample(service: TinkerService, caller: Caller, request: Request) -> Any:
    return await service.sample(caller, SampleBody.parse(await _read_object(request), origin="asample"))


async def _retrieve(service: TinkerService, caller: Caller, request: Request) -> Any:
    id = await _word(request, "request_id")
    found = await service.retrieve(caller, id)
    if found is None:
        return JSONResponse({"type": "try_again", "request_id": id, "queue_state": "active"}, 408)
    return Response(found, media_type="application/json" if found[:1] == b"{" else PROTOBUF)


async def _training_run(service: TinkerService, caller: Caller, request: Request) -> Any:
    return await service.training_run(request.path_params["model"])


async def _checkpoints(service: TinkerService, caller: Caller, request: Request) -> Any:
    return await service.checkpoints(request.path_params["model"])


async def _delete_checkpoint(service: TinkerService, caller: Caller, request: Request) -> Any:
    named = request.path_params
    return await service.delete_checkpoint(caller, f"{named['model']}/{named['kind']}/{named['name']}")


async def _weights_info(service: TinkerService, caller: Caller, request: Request) -> Any:
    path = await _word(request, "tinker_path")
    return await service.weights_info(path if path.startswith(SCHEME) else SCHEME + path)


ROUTES: Mapping[tuple[str, str], Answer] = {
    ("POST", "client/config"): _config,
    ("POST", "client/dynamic_config"): _nothing,
    ("POST", "telemetry"): _accept,
    ("GET", "get_server_capabilities"): _capabilities,
    ("POST", "create_session"): _create_session,
    ("POST", "session_heartbeat"): _beat,
    ("POST", "sessions/{session}/finish"): _finish,
    ("POST", "create_model"): _create_model,
    ("POST", "get_info"): _info,
    ("POST", "create_sampling_session"): _create_sampler,
    ("GET", "samplers/{sampler}"): _sampler,
    ("POST", "asample"): _sample,
    ("POST", "retrieve_future"): _retrieve,
    ("GET", "training_runs/{model}"): _training_run,
    ("GET", "training_runs/{model}/checkpoints"): _checkpoints,
    ("DELETE", "training_runs/{model}/checkpoints/{kind}/{name}"): _delete_checkpoint,
    ("POST", "weights_info"): _weights_info,
    **{("POST", verb): partial(_submit, verb) for verb in VERBS},
}


def create_app(service: TinkerService, keys: CallerKeys, *, site: Site) -> Starlette:
    """The application that answers for a service."""
    routes = [
        Route(f"/api/v1/{path}", _endpoint(service, keys, answer), methods=[method])
        for (method, path), answer in ROUTES.items()
    ]
    return Starlette(
        routes=[*routes, Route("/api/v1/healthz", _health)],
        middleware=[Middleware(Admission, site=site, token=None)],
        exception_handlers={
            LoomError: _refuse,
            Refusal: _refuse,
            TinkerRefusal: _refuse,
            HTTPException: _unknown,
        },
    )


def serve_tinker(service: TinkerService, keys: CallerKeys, door: Door) -> None:
    """Serve behind the door until interrupted or terminated."""
    serve(create_app(service, keys, site=site_of(door, PROTOBUF)), door.listeners, tls=door.tls)


def _endpoint(service: TinkerService, keys: CallerKeys, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        caller = await keys.caller(given.removeprefix(PREFIX) or None, scope="train")
        made = await answer(service, caller, request)
        return made if isinstance(made, Response) else JSONResponse(made)

    return endpoint


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _read_object(request: Request) -> dict[str, Any]:
    """A body that is a JSON object."""
    try:
        told = json.loads(await request.body() or b"{}")
    except ValueError as error:
        raise ConfigError(f"{request.url.path}: the body is no JSON: {error}.") from None
    if not isinstance(told, dict):
        raise ConfigError(f"{request.url.path}: the body must be an object, got {type(told).__name__}.")
    return told


async def _word(request: Request, name: str) -> str:
    """A field of the body that is a string."""
    found = (await _read_object(request)).get(name)
    if not isinstance(found, str):
        raise ConfigError(f"{request.url.path}: {name} must be a string, got {type(found).__name__}.")
    return found


async def _refuse(_: Request, error: Exception) -> Response:
    if _status(error) == 503:
        await asyncio.sleep(AGAIN_S)
    told = {"error": type(error).__name__, "message": " ".join(str(error).split())}
    return JSONResponse(told, _status(error))


def _status(error: Exception) -> int:
    match error:
        case TinkerRefusal() | Refusal():
            return error.status
        case ConfigError():
            return 400
        case RunTaken() | StoreAway() | ArtifactError():
            return 503
    return 422


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = ", ".join(path for _, path in ROUTES)
    message = f"{request.method} {request.url.path} is not there. Below /api/v1 there are: {known}."
    return JSONResponse({"error": "Unknown", "message": message}, error.status_code)
