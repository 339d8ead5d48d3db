"""The gateway as an ASGI application."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from loomrl.observability.exposition import KIND as TEXT
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving import dispatch
from loomrl.serving.access import told
from loomrl.serving.act import read_act, refuse_forgetting, refuse_language, write_act
from loomrl.serving.call import Ask, Heading
from loomrl.serving.converse import Conversation, Exchange, Visit
from loomrl.serving.dialect import models
from loomrl.serving.dialect.dialect import Dialect
from loomrl.serving.dialect.known import DIALECTS, PATHS, Shape, errors_for
from loomrl.serving.door import Caller, Incoming, Keys, Receive, Scope, Send, body_of, incoming
from loomrl.serving.feedback.intake import Intake
from loomrl.serving.feedback.told import read_told
from loomrl.serving.observe import observing
from loomrl.serving.refusal import Cause, Refusal
from loomrl.serving.reply import JSON, Headers, Reply
from loomrl.serving.room import Room
from loomrl.serving.stepping import is_recorded, new_acts
from loomrl.store.endpoints import Endpoint

log = redacted_logger(__name__)
LARGE = 1 << 17
"""Bytes from which a body is read in a thread: pictures and long lists would keep other callers waiting."""
FEEDBACK_BYTES = 1 << 17
"""The longest correction in any script, and all around it."""
Check = Callable[[str, Mapping[str, str]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Limits of a gateway."""

    deadline_s: float = 120.0
    slots: int = 1024
    """Calls answered at a time."""
    queue: int = 1024
    """Calls that wait for a place."""
    max_bytes: int = 10 << 20


class Gateway:
    """Answers HTTP: other people's dialects, `/v1/act`, sessions, health."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        keys: Keys,
        settings: GatewaySettings | None = None,
        check: Check | None = None,
        intake: Intake | None = None,
    ) -> None:
        self._exchange = exchange
        self._keys = keys
        self._check = check
        self.intake = intake
        self._meter = exchange.meter
        self.settings = settings or GatewaySettings()
        self._rooms: dict[str, Room] = {}
        self._encode = msgspec.json.Encoder().encode
        self._decode = msgspec.json.Decoder().decode
        if self._meter is not None:
            self._meter.follow(self._rooms)
        self.is_ready = True
        """False tells load balancers to go elsewhere; open requests go on."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "This server speaks plain HTTP only."})
            return
        try:
            head = incoming(scope)
        except Refusal as refusal:
            await self._refuse(errors_for(scope, scope["path"]), refusal, Reply(send, uuid.uuid4().hex))
            return
        reply = Reply(send, head.id)
        with told(head, reply):
            await self._one(head, receive, reply, errors_for(scope, head.path))

    async def _one(self, head: Incoming, receive: Receive, reply: Reply, shape: Shape) -> None:
        try:
            if self._check is not None:
                self._check(head.method, head.headers)
            await self._route(head, receive, reply)
        except Refusal as refusal:
            await self._refuse(shape, refusal, reply)
        except Exception:
            log.exception("Request %s failed.", reply.id)
            message = f"The gateway failed; its log says more about {reply.id}."
            await self._refuse(shape, Refusal(Cause.INTERNAL, message), reply)

    async def _route(self, head: Incoming, receive: Receive, reply: Reply) -> None:
        dialect = DIALECTS.get(head.path)
        if dialect is not None:
            _only("POST", head)
            await self._converse(dialect, head, receive, reply)
        elif head.path == "/v1/act":
            _only("POST", head)
            await self._act(head, receive, reply)
        elif head.path == "/complete" and head.session:
            _only("POST", head)
            await self._complete(head, receive, reply)
        elif head.path == "/v1/feedback":
            _only("POST", head)
            await self._feedback(head, receive, reply)
        elif head.path == "/v1/models" or head.path.startswith("/v1/models/"):
            _only("GET", head)
            await self._models(head, reply)
        elif head.path == "/metrics" and self._meter is not None:
            _only("GET", head)
            await self._keys.caller(head.token, scope="metrics")
            await reply.whole(200, self._meter.text(), kind=TEXT)
        elif head.path == "/healthz":
            await reply.whole(200, b"ok", kind="text/plain")
        elif head.path == "/readyz":
            is_ready = self.is_ready and any(self._can_answer(each) for each in self._exchange.view.endpoints())
            await reply.whole(200 if is_ready else 503, b"ready" if is_ready else b"not ready", kind="text/plain")
        else:
            raise Refusal(Cause.UNKNOWN, f"There is no {head.path!r:.100}. Known: {', '.join(PATHS)}, /metrics.")

    # -- conversations ----------------------------------------------------------------------------------------------

    async def _converse(self, dialect: Dialect, head: Incoming, receive: Receive, reply: Reply) -> None:
        caller = await self._keys.caller(head.token, scope="act")
        deadline = self._deadline()
        body = await self._body(receive, head)
        ask = await asyncio.to_thread(self._read, dialect, body) if len(body) > LARGE else self._read(dialect, body)
        endpoint = self._endpoint(ask.model)
        visit = await self._visit(ask, head, caller, endpoint, dialect.path, deadline)
        async with self._room(endpoint).enter(caller.key or visit.session, deadline=deadline):
            await _unless_gone(receive, self._answered(dialect, ask, visit, caller, reply))

    def _read(self, dialect: Dialect, body: bytes) -> Ask:
        return dialect.read(self._object(body))

    async def _answered(self, dialect: Dialect, ask: Ask, visit: Visit, caller: Caller, reply: Reply) -> None:
        conversation = await self._exchange.open(ask, visit)
        reply.heading = conversation.heading
        reply.is_recorded = conversation.is_recorded
        try:
            if ask.stream:
                await self._streamed(dialect, ask, conversation, reply)
                return
            answer = await conversation.whole()
            await conversation.keep()
            reply.heading = conversation.heading
            await reply.whole(200, self._encode(dialect.whole(ask, answer)))
        finally:
            reply.usage = conversation.usage
            self._keys.spent(caller, reply.usage.prompt + reply.usage.completion)

    async def _streamed(self, dialect: Dialect, ask: Ask, conversation: Conversation, reply: Reply) -> None:
        """The stream, begun with the first event that may leave: until then another arm may answer, or a refusal."""
        stream = dialect.stream(ask)
        try:
            async with aclosing(conversation.events()) as events:
                async for event in events:
                    if not reply.is_begun:
                        reply.heading = conversation.heading
                        await reply.begin(200, "text/event-stream", stream.begin(conversation.heading))
                    await reply.more(stream.write(event))
            await conversation.keep()
        except Refusal as refusal:
            if not reply.is_begun:
                raise
            await reply.end(stream.fail(refusal))
            return
        await reply.end(stream.finish(conversation.usage))

    async def _visit(
        self, ask: Ask, head: Incoming, caller: Caller, endpoint: Endpoint, dialect: str, deadline: float
    ) -> Visit:
        session = caller.session or head.session
        recorder = self._exchange.recorder
        if not session and recorder is not None and ask.store and ask.prompt is None:
            session = await recorder.session_of(caller.key, ask) or ""
        is_new = not session
        session = session or uuid.uuid4().hex
        return Visit(
            id=uuid.uuid4().hex,
            endpoint=endpoint,
            session=session,
            is_new=is_new,
            unit=ask.user or session,
            key=caller.key,
            dialect=dialect,
            deadline=deadline,
        )

    # -- control ----------------------------------------------------------------------------------------------------

    async def _act(self, head: Incoming, receive: Receive, reply: Reply) -> None:
        caller = await self._keys.caller(head.token, scope="act")
        ask = read_act(await self._body(receive, head), head.headers.get("content-type", JSON), head.query)
        endpoint = self._endpoint(ask.model)
        deadline = self._deadline()
        session = caller.session or head.session
        at = time.time()
        unit = ask.user or session or head.id
        options = list(dispatch.candidates(self._exchange.view, endpoint, unit))
        if options:
            refuse_language(options[0].policy.about, endpoint.name)
            refuse_forgetting(options[0].policy.about, ask)
        observed = self._exchange.observe(
            endpoint, options, unit, session=session, key=caller.key, is_alone=unit == head.id
        )
        with observing(observed):
            candidate, acted = await self._exchange.act(
                options, ask, endpoint=endpoint, session=session, deadline=deadline, observed=observed
            )
        observed.answered(candidate)
        recorder = self._exchange.recorder
        if recorder is not None and await is_recorded(self._exchange, ask, endpoint=endpoint.name, session=session):
            place = {"session": session, "endpoint": endpoint.name, "key": caller.key, "user": ask.user}
            new = new_acts(candidate, ask.act, acted, place=place, at=at)
            await self._exchange.keep(recorder.keep_acts(new), deadline=deadline)
            reply.is_recorded = True
        reply.heading = Heading(
            id=head.id,
            created=0.0,
            model=endpoint.name,
            version=candidate.policy.about.version,
            arm=candidate.arm.name,
            session=session,
            trajectory=session if reply.is_recorded else "",
        )
        await reply.whole(200, write_act(ask, acted, reply.heading), kind=ask.kind)

    # -- the rest ---------------------------------------------------------------------------------------------------

    async def _complete(self, head: Incoming, receive: Receive, reply: Reply) -> None:
        caller = await self._keys.caller(head.token, scope="record")
        told = self._object(await self._body(receive, head) or b"{}")
        for name in told:
            if name not in ("reward", "success", "outcome"):
                raise Refusal(Cause.INVALID, f"{name!r} is unknown. Known: reward, success, outcome.", where=name)
        reward = _number(told, "reward")
        success = _number(told, "success")
        outcome = told.get("outcome")
        if outcome is not None and not isinstance(outcome, dict):
            raise Refusal(Cause.INVALID, "'outcome' must be an object.", where="outcome")
        trajectory = ""
        measures = self._exchange.measures
        is_measured = measures is not None and measures.complete(
            head.session, key=caller.key, reward=reward, success=success
        )
        if (recorder := self._exchange.recorder) is not None:
            try:
                made = await recorder.complete(
                    head.session, key=caller.key, reward=reward, success=success, outcome=outcome
                )
                trajectory = made.id
            except Refusal as refusal:
                if refusal.cause is not Cause.UNKNOWN or not is_measured:
                    raise
        elif not is_measured:
            raise Refusal(Cause.UNKNOWN, f"session {head.session!r:.100} is unknown: this endpoint records nothing.")
        await reply.whole(200, self._encode({"session": head.session, "trajectory": trajectory}))

    async def _feedback(self, head: Incoming, receive: Receive, reply: Reply) -> None:
        caller = await self._keys.caller(head.token, scope="feedback")
        body = await body_of(receive, head.headers, most=FEEDBACK_BYTES, heard=2 * self.settings.max_bytes)
        key = head.headers.get("idempotency-key", "")
        told = read_told(self._object(body), session=caller.session or head.session, key=key)
        if self.intake is None:
            raise Refusal(Cause.UNKNOWN, "nothing is known here: this endpoint records nothing.", where="session")
        given = await self.intake.give(told, caller=caller, deadline=self._deadline())
        await reply.whole(200, self._encode({"object": "feedback", **asdict(given)}))

    async def _models(self, head: Incoming, reply: Reply) -> None:
        await self._keys.caller(head.token, scope="act")
        endpoints = self._exchange.view.endpoints()
        is_anthropic = "anthropic-version" in head.headers
        name = head.path.removeprefix("/v1/models").removeprefix("/")
        if name:
            endpoints = [self._endpoint(name)]
        listed = [models.Listed(each.name, each.created_at, self._objectives(each)) for each in endpoints]
        answer = models.one(listed[0], anthropic=is_anthropic) if name else models.many(listed, anthropic=is_anthropic)
        await reply.whole(200, self._encode(answer))

    def _objectives(self, endpoint: Endpoint) -> tuple[str, ...]:
        """Those of which its first policy that is up reads a preference."""
        policies = (policy for arm in endpoint.arms for policy in self._exchange.view.replicas(arm.policy))
        return next((policy.about.weighs for policy in policies), ())

    async def _refuse(self, shape: Shape, refusal: Refusal, reply: Reply) -> None:
        if self._meter is not None:
            self._meter.refused(refusal.cause)
        if reply.is_begun:
            return
        retry = refusal.retry_after_s
        extra: Headers = [] if retry is None else [(b"retry-after", str(max(1, round(retry))).encode())]
        if refusal.cause is Cause.BUDGET and retry is None:
            extra.append((b"x-should-retry", b"false"))  # clients of OpenAI and Anthropic would try a 429 again
        if refusal.cause is Cause.KEY:
            extra.append((b"www-authenticate", b"Bearer"))
        await reply.whole(refusal.status, self._encode(shape(refusal)), extra=extra)

    # -- parts ------------------------------------------------------------------------------------------------------

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self.settings.deadline_s

    async def _body(self, receive: Receive, head: Incoming) -> bytes:
        return await body_of(receive, head.headers, most=self.settings.max_bytes)

    def _object(self, body: bytes) -> Mapping[str, Any]:
        try:
            given = self._decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refusal(Cause.INVALID, f"The body is no JSON: {error}.") from None
        if not isinstance(given, dict):
            raise Refusal(Cause.INVALID, "The body must be a JSON object.")
        return given

    def _endpoint(self, name: str) -> Endpoint:
        """The endpoint of a name; of `ENDPOINT@ARM` with that arm alone, so that nothing is compared."""
        view = self._exchange.view
        known = view.endpoints()
        name, pinned, arm = name.partition("@")
        found = known[0] if not name and len(known) == 1 else view.endpoint(name)
        if found is None:
            names = ", ".join(sorted(each.name for each in known)) or "none"
            raise Refusal(Cause.UNKNOWN, f"There is no model {name!r:.100}. Known: {names}.", where="model")
        return dispatch.only_arm(found, arm) if pinned else found

    def _can_answer(self, endpoint: Endpoint) -> bool:
        return any(dispatch.candidates(self._exchange.view, endpoint, ""))

    def _room(self, endpoint: Endpoint) -> Room:
        room = self._rooms.get(endpoint.name)
        if room is None:
            room = self._rooms[endpoint.name] = Room(slots=self.settings.slots, queue=self.settings.queue)
        return room


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work; it is cancelled if the caller hangs up."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    finally:
        task.cancel()
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _only(method: str, head: Incoming) -> None:
    if head.method != method:
        raise Refusal(Cause.INVALID, f"{head.path} takes {method}, not {head.method}.")


def _number(told: Mapping[str, Any], name: str) -> float | None:
    value = told.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise Refusal(Cause.INVALID, f"{name!r} must be a number.", where=name)
    return value


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
