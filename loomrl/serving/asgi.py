"""The gateway as an ASGI application: long answers have a module in `loomrl.serving.routes`."""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from loomrl.observability.exposition import KIND as TEXT
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.body import Body, read_body
from loomrl.serving.dialect.anthropic import MessagesDialect
from loomrl.serving.dialect.chat import ChatDialect
from loomrl.serving.dialect.completions import CompletionsDialect
from loomrl.serving.dialect.dialect import Dialect
from loomrl.serving.dialect.openai import error_of
from loomrl.serving.dialect.responses import ResponsesDialect
from loomrl.serving.feedback.intake import read_feedback_body
from loomrl.serving.gateway import Gateway
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import (
    Headers,
    HttpReply,
    HttpRequest,
    Receive,
    Scope,
    Send,
    log_request,
    read_head,
    read_json,
)
from loomrl.serving.routes.act import answer_act
from loomrl.serving.routes.chat import answer_chat
from loomrl.serving.routes.models import MODELS, answer_models
from loomrl.serving.routes.tokens import COUNT, answer_count, answer_detokenize, answer_embeddings, answer_tokenize

log = redacted_logger(__name__)
Check = Callable[[str, Mapping[str, str]], None]
"""Refuses a request by its method and headers."""
Shape = Callable[[Refusal], dict[str, Any]]
Route = Callable[[Gateway, HttpRequest, HttpReply], Awaitable[None]]
MOST_FEEDBACK_BYTES = 1 << 17
"""The longest correction in any script, and all around it."""


def _chat_route(dialect: Dialect) -> Route:
    return lambda gateway, request, reply: answer_chat(gateway, dialect, request, reply)


class CompleteBody(Body):
    """The worth of a session, given at its end."""

    reward: float | None = None
    success: float | None = None
    correct: float | None = None
    """Success by a second check."""
    outcome: dict[str, Any] | None = None


async def _answer_complete(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """End a session: its trajectory, if it is recorded, and its outcome, if it is measured."""
    caller = await gateway.keys.caller(request.token, scope="record")
    asked = read_body(CompleteBody, read_json(await request.body(gateway.settings.max_bytes) or b"{}"))
    session = request.session
    worth = {"reward": asked.reward, "success": asked.success, "correct": asked.correct}
    is_measured = gateway.measures is not None and gateway.measures.complete(session, key=caller.key, **worth)
    trajectory = ""
    if gateway.recorder is not None:
        try:
            made = await gateway.recorder.complete(session, key=caller.key, **worth, outcome=asked.outcome)
            trajectory = made.id
        except Refusal as refusal:
            if refusal.cause is not RefusalCause.UNKNOWN or not is_measured:
                raise
    elif not is_measured:
        raise Refusal(RefusalCause.UNKNOWN, f"session {session!r:.100} is unknown: this endpoint records nothing.")
    await reply.whole(200, msgspec.json.encode({"session": session, "trajectory": trajectory}))


async def _answer_feedback(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    """Store one judgement."""
    caller = await gateway.keys.caller(request.token, scope="feedback")
    body = await request.body(MOST_FEEDBACK_BYTES, read_on=2 * gateway.settings.max_bytes)
    key = request.headers.get("idempotency-key", "")
    judgement = read_feedback_body(read_json(body), session=caller.session or request.session, key=key)
    if gateway.intake is None:
        raise Refusal(RefusalCause.UNKNOWN, "nothing is known here: this endpoint records nothing.", where="session")
    stored = await gateway.intake.give(judgement, caller=caller, deadline=gateway.deadline())
    await reply.whole(200, msgspec.json.encode({"object": "feedback", **asdict(stored)}))


async def _answer_metrics(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    await gateway.keys.caller(request.token, scope="metrics")
    assert gateway.meter is not None, "the route is known with a meter only"
    await reply.whole(200, gateway.meter.text(), kind=TEXT)


async def _answer_health(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    await reply.whole(200, b"ok", kind="text/plain")


async def _answer_ready(gateway: Gateway, request: HttpRequest, reply: HttpReply) -> None:
    can_answer = gateway.can_answer()
    await reply.whole(200 if can_answer else 503, b"ready" if can_answer else b"not ready", kind="text/plain")


DIALECTS: Mapping[str, Dialect] = {
    dialect.path: dialect for dialect in (ChatDialect(), CompletionsDialect(), ResponsesDialect(), MessagesDialect())
}
"""Stateless, and shared by all requests."""
ROUTES: Mapping[str, tuple[str, Route]] = {
    **{path: ("POST", _chat_route(dialect)) for path, dialect in DIALECTS.items()},
    COUNT: ("POST", answer_count),
    "/tokenize": ("POST", answer_tokenize),
    "/detokenize": ("POST", answer_detokenize),
    "/v1/embeddings": ("POST", answer_embeddings),
    "/v1/act": ("POST", answer_act),
    "/v1/feedback": ("POST", _answer_feedback),
    MODELS: ("GET", answer_models),
    "/complete": ("POST", _answer_complete),
    "/healthz": ("", _answer_health),
    "/readyz": ("", _answer_ready),
    "/metrics": ("GET", _answer_metrics),
}
"""Path → method (empty: any) and answer, at the root or below /sessions/ID."""
PATHS = tuple(path for path in ROUTES if path != "/metrics")
"""The paths that callers may ask for. A gateway's metrics are not for them."""


class GatewayApp:
    """Answers HTTP requests to a gateway."""

    def __init__(self, gateway: Gateway, *, check: Check | None = None) -> None:
        self.gateway = gateway
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "This server speaks plain HTTP only."})
            return
        try:
            request = read_head(scope, receive)
        except Refusal as refusal:
            await self._refuse(scope, scope["path"], refusal, HttpReply(send, uuid.uuid4().hex))
            return
        reply = HttpReply(send, request.id)
        with log_request(request, reply):
            try:
                if self._check is not None:
                    self._check(request.method, request.headers)
                await self._route(request)(self.gateway, request, reply)
            except Refusal as refusal:
                await self._refuse(scope, request.path, refusal, reply)
            except Exception:
                log.exception("Request %s failed.", reply.id)
                message = f"The gateway failed; its log says more about {reply.id}."
                await self._refuse(scope, request.path, Refusal(RefusalCause.INTERNAL, message), reply)

    def _route(self, request: HttpRequest) -> Route:
        path = MODELS if request.path.startswith(f"{MODELS}/") else request.path
        is_missing = (path == "/complete" and not request.session) or (path == "/metrics" and not self.gateway.meter)
        if path not in ROUTES or is_missing:
            raise Refusal(
                RefusalCause.UNKNOWN, f"There is no {request.path!r:.100}. Known: {', '.join(PATHS)}, /metrics."
            )
        method, route = ROUTES[path]
        if method and request.method != method:
            raise Refusal(RefusalCause.METHOD, f"{request.path} takes {method}, not {request.method}.", allow=method)
        return route

    async def _refuse(self, scope: Scope, path: str, refusal: Refusal, reply: HttpReply) -> None:
        if self.gateway.meter is not None:
            self.gateway.meter.count_refusal(refusal.cause)
        if self.gateway.note_refusal is not None and scope["path"].startswith("/sessions/"):
            self.gateway.note_refusal(scope["path"].split("/", 3)[2], refusal)
        if reply.is_begun:
            return  # its stream has said what went wrong, or is cut off
        retry = refusal.retry_after_s
        extra: Headers = [] if retry is None else [(b"retry-after", str(max(1, round(retry))).encode())]
        if refusal.cause is RefusalCause.BUDGET and retry is None:
            extra.append((b"x-should-retry", b"false"))  # clients of OpenAI and Anthropic would try a 429 again
        if refusal.allow:
            extra.append((b"allow", refusal.allow.encode()))
        if refusal.cause is RefusalCause.KEY:
            extra.append((b"www-authenticate", b"Bearer"))
        is_anthropic = any(name == b"anthropic-version" for name, _ in scope["headers"])
        shape = errors_of(path, anthropic=is_anthropic)
        await reply.whole(refusal.status, msgspec.json.encode(shape(refusal)), extra=extra)


def errors_of(path: str, *, anthropic: bool) -> Shape:
    """The writer of errors for a path, below the root or a session; a path of no dialect takes the client's."""
    path = path.replace(COUNT, MessagesDialect.path)
    dialect = next((dialect for dialect in DIALECTS.values() if path.endswith(dialect.path)), None)
    if dialect is None:
        return DIALECTS[MessagesDialect.path].refusal if anthropic else error_of
    return dialect.refusal


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
