"""A chat call from its request to its record: parse → admit → session → sample → answer → record.

All dialects take this way; a dialect is only the wire format at both ends.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import msgspec

from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.call import AnswerChoice, ChatAnswer, ChatRequest, ChoiceClosed, Event, Gathered, Heading, Usage
from loomrl.serving.dialect.dialect import Dialect, Reading, references
from loomrl.serving.dispatch import ArmReplica, Begun, apply_preference, begin, candidates, close, next_event
from loomrl.serving.gateway import UNSEEN, Gateway, Observed, log_refusal, observing
from loomrl.serving.monitor.monitor import AnswerOrigin
from loomrl.serving.monitor.watch import AnswerScreen, AskStable
from loomrl.serving.recording.record import CallToRecord, SpokenChoice
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.repeat import merge
from loomrl.serving.request import Caller, HttpReply, HttpRequest, read_json
from loomrl.serving.split import shadows, stable
from loomrl.serving.thread import KnownBeginning, RecalledConversation, continuation
from loomrl.store.endpoints import Endpoint, Role, State

log = redacted_logger(__name__)
LARGE = 1 << 17
"""Bytes from which a body is read in a thread: pictures and long lists would keep other callers waiting."""
MOST_RECALLED = 1024
"""Earlier answers that a request may name."""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall:
    """The circumstances of one call."""

    id: str
    endpoint: Endpoint
    session: str
    is_new: bool = False
    """The session was named for this call: nothing of it is on record."""
    unit: str
    """The unit that keeps its arm: the caller's user, else the session."""
    key: str
    dialect: str
    deadline: float
    """On the event loop's clock."""
    at: float = field(default_factory=time.time)
    observed: Observed = UNSEEN


async def answer_chat(gateway: Gateway, dialect: Dialect, request: HttpRequest, reply: HttpReply) -> None:
    """Answer one call of a dialect."""
    caller = await gateway.keys.caller(request.token, scope="act")
    deadline = gateway.deadline()
    body = await request.body(gateway.settings.max_bytes)
    ask = await _read(gateway, dialect, body, caller, reply)
    endpoint = gateway.find_endpoint(ask.model, caller)
    session = caller.session or request.session or await _find_session(gateway, ask, caller)
    named = session or uuid.uuid4().hex
    call = ChatCall(
        id=uuid.uuid4().hex,
        endpoint=endpoint,
        session=named,
        is_new=not session,
        unit=ask.user or named,
        key=caller.key,
        dialect=dialect.path,
        deadline=deadline,
    )
    # the session comes first: callers without a key take turns by it
    async with gateway.room(endpoint).enter(caller.key or named, deadline=deadline):
        await request.run_unless_gone(_answer(gateway, dialect, ask, call, caller, reply))


async def _read(gateway: Gateway, dialect: Dialect, body: bytes, caller: Caller, reply: HttpReply) -> ChatRequest:
    raw = await asyncio.to_thread(read_json, body) if len(body) > LARGE else read_json(body)
    return await read_request(gateway, dialect, raw, caller, reply, is_large=len(body) > LARGE)


async def read_request(
    gateway: Gateway,
    dialect: Dialect,
    raw: Mapping[str, Any],
    caller: Caller,
    reply: HttpReply,
    *,
    is_large: bool = False,
) -> ChatRequest:
    """The request with the conversations that it names; `reply` says which of its fields were left out."""
    ignored: list[str] | None = [] if gateway.settings.unknown == "ignore" else None
    reading = Reading(await _recall(gateway, raw, caller), ignored)
    ask = await asyncio.to_thread(dialect.read, raw, reading) if is_large else dialect.read(raw, reading)
    reply.ignored = tuple(ignored or ())
    return ask


async def _recall(gateway: Gateway, raw: Mapping[str, Any], caller: Caller) -> Mapping[str, RecalledConversation]:
    """The conversations on record that a request names by ids of answers, as far as they are the caller's."""
    recorder = gateway.recorder
    calls = references(raw)
    if not calls or recorder is None:
        return {}
    if len(calls) > MOST_RECALLED:
        message = f"{len(calls)} answers are named, more than {MOST_RECALLED}: send the conversation itself."
        raise Refusal(RefusalCause.INVALID, message)
    found = {call: await recorder.recall(call, key=caller.key) for call in calls}
    return {call: one for call, one in found.items() if one is not None}


async def _find_session(gateway: Gateway, ask: ChatRequest, caller: Caller) -> str:
    """The open session that the conversation continues, for callers who name none; empty if there is none."""
    if gateway.recorder is None or not ask.store or ask.prompt is not None:
        return ""
    return await gateway.recorder.session_of(caller.key, ask) or ""


async def _answer(
    gateway: Gateway, dialect: Dialect, ask: ChatRequest, call: ChatCall, caller: Caller, reply: HttpReply
) -> None:
    conversation = await (_open_prompts if ask.further else open_conversation)(gateway, ask, call)
    reply.heading = conversation.heading
    reply.is_recorded = conversation.is_recorded
    try:
        if ask.stream:
            await _stream(dialect, ask, conversation, reply)
            return
        answer = await conversation.whole()
        await conversation.record()
        reply.heading = conversation.heading
        await reply.whole(200, _encode(dialect.whole(ask, answer)))
    finally:
        reply.usage = conversation.usage
        gateway.keys.spent(caller, reply.usage.prompt + reply.usage.completion)


async def _stream(dialect: Dialect, ask: ChatRequest, conversation: "Answering", reply: HttpReply) -> None:
    """The stream begins with the first event that may leave: until then another arm may answer, or a refusal."""
    stream = dialect.stream(ask)
    try:
        async with aclosing(conversation.events()) as events:
            async for event in events:
                if not reply.is_begun:
                    reply.heading = conversation.heading
                    await reply.begin(200, "text/event-stream", stream.begin(conversation.heading))
                await reply.more(stream.write(event))
        await conversation.record()
    except Refusal as refusal:
        if not reply.is_begun:
            raise
        await reply.end(stream.fail(refusal))
        return
    await reply.end(stream.finish(conversation.usage))


async def _open_prompts(gateway: Gateway, ask: ChatRequest, call: ChatCall) -> "PromptsAnswering":
    """The answers to all prompts of a request, once the first tokens of each are here."""
    asks = [replace(ask, prompt=prompt, further=()) for prompt in (ask.prompt, *ask.further)]
    calls = [call, *(replace(call, id=uuid.uuid4().hex) for _ in ask.further)]
    opening = [asyncio.create_task(open_conversation(gateway, *pair)) for pair in zip(asks, calls, strict=True)]
    try:
        return PromptsAnswering(await asyncio.gather(*opening), each=ask.drawing.n)
    except BaseException:
        for task in opening:
            task.cancel()
        for one in await asyncio.gather(*opening, return_exceptions=True):
            if isinstance(one, ChatAnswering):
                await one.close()
        raise


async def open_conversation(gateway: Gateway, ask: ChatRequest, call: ChatCall) -> "ChatAnswering":
    """The conversation, once its first tokens are here."""
    endpoint = call.endpoint
    if gateway.monitor is not None:
        gateway.monitor.refuse_held(endpoint.name, call.session)
    options = list(candidates(gateway.view, endpoint, call.unit))
    if options:
        ask = apply_preference(ask, options[0].policy.about, endpoint.name)
    known = None
    recorder = gateway.recorder
    is_read_only = ask.drawing.max_tokens == 0  # nothing is drawn, so that there is nothing to keep or compare
    takes = recorder is not None and not is_read_only and await recorder.takes(endpoint.name, ask)
    # a session that was named for this call has nothing on record, and need not be read
    if recorder is not None and takes and ask.prompt is None and not call.is_new:
        known = await recorder.find_beginning(call.session, ask, key=call.key)
    if endpoint.state is not State.SERVING and known is None:
        message = f"Endpoint {endpoint.name!r} is being drained: it takes no new conversations."
        raise Refusal(RefusalCause.UNAVAILABLE, message)
    observed = UNSEEN
    if not is_read_only:
        observed = gateway.observe(endpoint, options, call.unit, session=call.session, key=call.key)
    with observing(observed):
        begun = await begin(options, continuation(ask, known), endpoint=endpoint, deadline=call.deadline)
    observed.first(begun.candidate)
    # after the first token, so that shadows do not delay the arm that answers
    for arm in () if is_read_only else shadows(endpoint.name, endpoint.arms, call.unit):
        for policy in gateway.view.replicas(arm.policy)[:1]:
            gateway.run_later(_ask_shadow(gateway, ArmReplica(arm, policy), ask, call))
    return ChatAnswering(gateway, ask, replace(call, observed=observed), known=known, begun=begun, is_recorded=takes)


async def _ask_shadow(gateway: Gateway, candidate: ArmReplica, ask: ChatRequest, call: ChatCall) -> None:
    """A shadow's answer, which no caller gets; recorded as a session of its own."""
    shadow = replace(
        call, id=uuid.uuid4().hex, session=f"{call.session}~{candidate.arm.name}", is_new=False, at=time.time()
    )
    try:
        takes = gateway.recorder is not None and await gateway.recorder.takes(call.endpoint.name, ask)
        begun = await begin([candidate], continuation(ask, None), endpoint=call.endpoint, deadline=call.deadline)
        conversation = ChatAnswering(gateway, ask, shadow, known=None, begun=begun, is_recorded=takes)
        async for _ in conversation.events():
            pass
        await conversation.record()
    except Refusal as refusal:
        log.info("Shadow %s did not answer: %s", candidate.arm.name, refusal)


class Answering(Protocol):
    """A call from its first event to its record."""

    heading: Heading
    is_recorded: bool

    def events(self) -> AsyncGenerator[Event, None]:
        """The events that may leave; a Refusal if the answer breaks off. What was sampled by then is recorded."""

    async def whole(self) -> ChatAnswer:
        """The answer, once it is complete; a Refusal if it breaks off."""

    @property
    def usage(self) -> Usage:
        """Counts up to now."""

    async def record(self) -> None:
        """Record the call: durably before this returns, or in the background, as the mode says."""


class PromptsAnswering:
    """The answers to the prompts of one request, each a call of its own, as one."""

    def __init__(self, answers: Sequence["ChatAnswering"], *, each: int) -> None:
        """`each`: the number of answers to a prompt."""
        self._answers = answers
        self._each = each
        self.heading = answers[0].heading
        self.is_recorded = answers[0].is_recorded

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events of all, numbered through."""
        async with aclosing(merge([self._numbered(place) for place in range(len(self._answers))])) as events:
            async for event in events:
                yield event

    async def whole(self) -> ChatAnswer:
        """All answers."""
        choices = await gather_choices(self.events(), self._each * len(self._answers))
        return ChatAnswer(heading=self.heading, choices=choices, usage=self.usage)

    @property
    def usage(self) -> Usage:
        """The sums."""
        counts = [answer.usage for answer in self._answers]
        prompt, cached, completion = (
            sum(getattr(one, name) for one in counts) for name in ("prompt", "cached", "completion")
        )
        return Usage(prompt=prompt, cached=cached, completion=completion)

    async def record(self) -> None:
        """Record every call."""
        await asyncio.gather(*(answer.record() for answer in self._answers))

    async def _numbered(self, place: int) -> AsyncGenerator[Event, None]:
        async with aclosing(self._answers[place].events()) as events:
            async for event in events:
                yield replace(event, index=event.index + place * self._each)


async def gather_choices(events: AsyncGenerator[Event, None], count: int) -> tuple[AnswerChoice, ...]:
    """The whole choices of an answer."""
    gathered = [Gathered() for _ in range(count)]
    async with aclosing(events):
        async for event in events:
            gathered[event.index].add(event)
    return tuple(each.choice() for each in gathered)


class ChatAnswering:
    """One call from its first event to its record."""

    def __init__(
        self,
        gateway: Gateway,
        ask: ChatRequest,
        call: ChatCall,
        *,
        known: KnownBeginning | None,
        begun: Begun,
        is_recorded: bool,
    ) -> None:
        self._gateway = gateway
        self._ask = ask
        self._call = call
        self._known = known
        self.is_recorded = is_recorded
        self._is_cut = False
        self._watch: AnswerScreen | None = None
        self._answer_by(begun)

    def _answer_by(self, begun: Begun) -> None:
        """Answer with this candidate."""
        call = self._call
        candidate = begun.candidate
        self._begun = begun
        self._choices = [Gathered() for _ in range(self._ask.drawing.n)]
        self.heading = Heading(
            id=call.id,
            created=call.at,
            model=self._ask.model,
            version=candidate.policy.about.version,
            arm=candidate.arm.name,
            session=call.session,
            trajectory=call.session if self.is_recorded else "",
        )
        monitor = self._gateway.monitor
        if monitor is not None and monitor.has_texts and candidate.arm.role is not Role.SHADOW:
            origin = AnswerOrigin.of(call.endpoint, candidate, call.session)
            earlier = [] if self._watch is None else self._watch.hits
            self._watch = AnswerScreen(
                monitor, self._ask, origin, deadline=call.deadline, call=call.id, earlier=earlier
            )

    async def events(self) -> AsyncGenerator[Event, None]:
        """The events that may leave; a Refusal if the answer breaks off. What was sampled by then is recorded."""
        observed = self._call.observed
        try:
            with observing(observed):
                async with aclosing(self._sample() if self._watch is None else self._screen(self._watch)) as allowed:
                    async for event in allowed:
                        yield event
            observed.note_answer(self._begun.candidate, self.usage)
            observed.note_choices(self.heading.arm, self._choices, prompt_chars=self._ask.prompt_chars)
            if self._watch is not None:
                observed.note_verdict(violation=bool(self._watch.hits))
        except Refusal:
            if self._watch is not None and self._watch.hits:
                observed.note_verdict(violation=True)
            raise

    async def whole(self) -> ChatAnswer:
        """The answer, once it is complete; a Refusal if it breaks off."""
        choices = await gather_choices(self.events(), len(self._choices))
        return ChatAnswer(heading=self.heading, choices=choices, usage=self.usage)

    async def close(self) -> None:
        """Give up an answer that no event was taken of."""
        self._begun.span.end()
        await close(self._begun.rest)

    @property
    def usage(self) -> Usage:
        """Counts up to now."""
        cached = 0 if self._known is None else len(self._known.ids_T)
        return Usage(
            prompt=cached + len(self._choices[0].opened),
            cached=cached,
            completion=sum(len(choice.ids) for choice in self._choices),
        )

    async def record(self) -> None:
        """Record the call: durably before this returns, or in the background, as the mode says."""
        recorder = self._gateway.recorder
        if recorder is not None and self.is_recorded:
            await self._gateway.record(recorder.keep(self._to_record()), deadline=self._call.deadline)

    async def _sample(self) -> AsyncGenerator[Event, None]:
        """All events, as they are drawn."""
        is_whole = False
        try:
            for event in self._begun.first:
                self._choices[event.index].add(event)
                yield event
            while True:
                try:
                    event = await next_event(self._begun.rest, self._call.deadline)
                except StopAsyncIteration:
                    break
                self._choices[event.index].add(event)
                yield event
            is_whole = True
        finally:
            self._begun.span.end()
            if not is_whole:
                await close(self._begun.rest)
                if not self._is_cut:
                    self._record_broken()

    async def _screen(self, watch: AnswerScreen) -> AsyncGenerator[Event, None]:
        """The events that the monitor lets through, or the stable arm's if it asks for them."""
        first = stable(self._call.endpoint.arms)
        may_move = first is not None and first.name != self.heading.arm
        try:
            async with aclosing(self._sample()) as drawn, aclosing(watch.events(drawn, may_move=may_move)) as allowed:
                async for event in allowed:
                    yield event
                self._is_cut = True
            return
        except AskStable:
            pass
        await self._move_to_stable()
        assert self._watch is not None
        async with aclosing(self._screen(self._watch)) as events:
            async for event in events:
                yield event

    async def _move_to_stable(self) -> None:
        """Let the stable arm answer. The other arm's tokens are recorded as a session of their own."""
        call = self._call
        options = [one for one in candidates(self._gateway.view, call.endpoint, "") if one.arm.role is Role.STABLE]
        asked = continuation(self._ask, self._known)
        self._answer_by(await begin(options, asked, endpoint=call.endpoint, deadline=call.deadline))

    def _record_broken(self) -> None:
        """Record the call so far. If the stable arm answers in its place, it is a session of its own."""
        call = self._to_record()
        recorder = self._gateway.recorder
        if recorder is None or not self.is_recorded or not any(len(choice.ids_T) for choice in call.choices):
            return
        if self._watch is not None and self._watch.has_moved:
            call = replace(call, id=uuid.uuid4().hex, session=f"{call.session}~{call.arm}")
        self._gateway.run_later(log_refusal(recorder.keep(call)))

    def _to_record(self) -> CallToRecord:
        call = self._call
        return CallToRecord(
            id=call.id,
            session=call.session,
            endpoint=call.endpoint.name,
            arm=self._begun.candidate.arm.name,
            version=self.heading.version,
            parent="" if self._known is None else self._known.parent,
            dialect=call.dialect,
            ask=self._ask,
            choices=tuple(
                _to_choice(index, choice, ("", "") if self._watch is None else self._watch.said(index))
                for index, choice in enumerate(self._choices)
            ),
            key=call.key,
            started_at=call.at,
            finished_at=time.time(),
        )


def _to_choice(index: int, choice: Gathered, said: tuple[str, str]) -> SpokenChoice:
    rule, text = said
    closed = choice.closed or ChoiceClosed(
        text="".join(each.text for each in choice.drawn) if rule else "", finish="stop"
    )
    return SpokenChoice(
        index=index,
        opened_T=choice.opened,
        ids_T=choice.ids,
        logprobs_T=choice.logprobs,
        versions_T=choice.versions,
        shifts_T=choice.shifts,
        text=closed.text,
        calls=closed.calls,
        sights=choice.sights,
        finish="cancelled" if choice.closed is None else closed.finish,
        rule=rule,
        said=text,
    )
