"""The Atropos trajectory API: its routes, spoken so that unmodified environments and trainers work.

Trouble of the protocol's own comes as HTTP 200 with a `status`; a malformed body as 422, and nothing of it is stored.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from weakref import WeakValueDictionary

from pydantic import BaseModel, FailFast, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from loomrl.http.site import Serve, for_programs
from loomrl.hub.atropos.groups import ScoredData
from loomrl.hub.atropos.session import AtroposSession, Settle
from loomrl.hub.atropos.state import Answer, RegisterEnv, Registration
from loomrl.hub.hub import Hub
from loomrl.store.notes import Notes

DELIVERY_TIMEOUT_S = 120.0
NO_EXAMPLE: Answer = {
    "tokens": [],
    "masks": [],
    "scores": [],
    "advantages": [],
    "ref_logprobs": [],
    "generation_params": [],
    "inference_logprobs": [],
    "messages": [],
    "images": [],
}

Groups = TypeAdapter(Annotated[list[ScoredData], FailFast()])


class EnvId(BaseModel):
    """The id of an environment."""

    env_id: int


class Settled(Response):
    """An answer whose last byte leaves only when it is settled.

    A server killed before leaves the client without an answer, so that it asks again, and is known by that.
    """

    media_type = "application/json"

    def __init__(self, request: Request, exchange: Callable[[], tuple[Answer, Settle]], *, turn: asyncio.Lock) -> None:
        super().__init__()
        self._request = request
        self._exchange = exchange
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Exchange, send all but the last byte, settle, send it."""
        async with self._turn:
            answer, settle = await run_in_threadpool(self._exchange)
            self.body = await run_in_threadpool(_encode, answer)
            self.headers["content-length"] = str(len(self.body))
            async with asyncio.timeout(DELIVERY_TIMEOUT_S):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                for part in (self.body[:-1], b""):  # the server waits for the client when it is given more
                    await send({"type": "http.response.body", "body": part, "more_body": True})
                if await self._request.is_disconnected():
                    return
            await run_in_threadpool(settle)
            await send({"type": "http.response.body", "body": self.body[-1:], "more_body": False})


class AtroposRoutes:
    """The calls of the protocol, over one session."""

    def __init__(self, session: AtroposSession) -> None:
        self._session = session
        self._polling = asyncio.Lock()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._latest = NO_EXAMPLE

    def routes(self) -> list[Route]:
        """All of them."""
        table: Mapping[str, tuple[str, Serve]] = {
            "/": ("GET", self._root),
            "/register": ("POST", self._register),
            "/register-env": ("POST", self._register_environment),
            "/disconnect-env": ("POST", self._disconnect),
            "/wandb_info": ("GET", self._wandb_info),
            "/info": ("GET", self._info),
            "/status": ("GET", self._status),
            "/status-env": ("GET", self._status_of),
            "/scored_data": ("POST", self._accept_scored_data),
            "/scored_data_list": ("POST", self._scored_data_list),
            "/batch": ("GET", for_programs(self._batch)),
            "/latest_example": ("GET", self._latest_example),
            "/reset_data": ("GET", for_programs(self._reset)),
        }
        routes = []
        for path, (method, serve) in table.items():
            route = Route(path, _validate(serve))
            route.methods = {method}  # Starlette lets HEAD in with GET: here it would take a batch and drop it
            routes.append(route)
        return routes

    async def _root(self, _: Request) -> Response:
        return JSONResponse({"message": "LoomRL hub, speaking the Atropos API"})

    async def _register(self, request: Request) -> Response:
        asked = Registration.model_validate_json(await request.body())
        return JSONResponse(await run_in_threadpool(self._session.register, asked))

    async def _register_environment(self, request: Request) -> Response:
        asked = RegisterEnv.model_validate_json(await request.body())
        return JSONResponse(await run_in_threadpool(self._session.register_environment, asked))

    async def _disconnect(self, request: Request) -> Response:
        asked = EnvId.model_validate_json(await request.body())
        return JSONResponse(await run_in_threadpool(self._session.disconnect, asked.env_id))

    async def _wandb_info(self, _: Request) -> Response:
        trainer = self._session.state.trainer
        return JSONResponse({"group": trainer and trainer.wandb_group, "project": trainer and trainer.wandb_project})

    async def _info(self, _: Request) -> Response:
        trainer = self._session.state.trainer
        known = (trainer.batch_size, trainer.max_token_len) if trainer else (-1, -1)
        return JSONResponse(dict(zip(("batch_size", "max_token_len"), known, strict=True)))

    async def _status(self, _: Request) -> Response:
        queue = await run_in_threadpool(self._session.queue)
        return JSONResponse({"current_step": self._session.state.step, "queue_size": len(queue)})

    async def _status_of(self, request: Request) -> Response:
        body = await request.body()
        asked = EnvId.model_validate_json(body) if body else EnvId.model_validate(dict(request.query_params))
        return JSONResponse(await run_in_threadpool(self._session.status_of, asked.env_id))

    async def _accept_scored_data(self, request: Request) -> Response:
        body = await request.body()
        data = await run_in_threadpool(ScoredData.model_validate_json, body)
        return self._submit(request, body, [data], lambda answers: answers[0])

    async def _scored_data_list(self, request: Request) -> Response:
        body = await request.body()
        return self._submit(request, body, await run_in_threadpool(Groups.validate_json, body), _sum_up)

    def _submit(
        self, request: Request, body: bytes, groups: list[ScoredData], combine: Callable[[list[Answer]], Answer]
    ) -> Response:
        content = hashlib.sha256(request.url.path.encode() + body).hexdigest()
        key = request.headers.get("idempotency-key")

        def exchange() -> tuple[Answer, Settle]:
            answers, settle = self._session.submit(groups, content=content, key=key)
            if groups:
                self._latest = groups[-1].model_dump()
            return combine(answers), settle

        # Equal posts take turns: the second must know whether the first one's answer got out.
        turn = self._turns.setdefault(key or content, asyncio.Lock())
        return Settled(request, exchange, turn=turn)

    async def _batch(self, request: Request) -> Response:
        await request.body()  # what is received next is the disconnection
        return Settled(request, self._session.batch, turn=self._polling)

    async def _latest_example(self, _: Request) -> Response:
        return JSONResponse(self._latest)

    async def _reset(self, _: Request) -> Response:
        await run_in_threadpool(self._session.reset)
        self._latest = NO_EXAMPLE
        return PlainTextResponse("Reset successful")


def atropos_routes(hub: Hub, notes: Notes, *, clock: Callable[[], float] = time.time) -> list[Route]:
    """The routes of the Atropos API over a hub, for `create_app(hub, extra_routes=…)`, which guards and unpacks."""
    return AtroposRoutes(AtroposSession(hub, notes, clock=clock)).routes()


def _validate(serve: Serve) -> Serve:
    """The endpoint, with a malformed body answered as FastAPI does."""

    async def endpoint(request: Request) -> Response:
        try:
            return await serve(request)
        except ValidationError as error:
            return JSONResponse({"detail": _faults(error)}, 422)

    return endpoint


def _sum_up(answers: list[Answer]) -> Answer:
    """The one answer to a list of groups."""
    buffered = [answer for answer in answers if answer["status"] == "buffered"]
    more = {"buffered": len(buffered), "last_buffer_size": buffered[-1]["buffer_size"]} if buffered else {}
    return {"status": "received", "groups_processed": len(answers), **more}


def _encode(answer: Answer) -> bytes:
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _faults(error: ValidationError) -> list[dict[str, Any]]:
    """The faults and their places, without echoing the body."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return [{**fault, "loc": ["body", *fault["loc"]]} for fault in faults[:10]]
