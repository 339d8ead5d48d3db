"""A conversation's next answer: session → arm → replica, its events as they come, and its record."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.act import ActAsk
from loomrl.serving.call import Answer, Ask, Closed, Event, Gathered, Heading, Usage
from loomrl.serving.dispatch import Begun, Candidate, View, act, begin, candidates, close, next_event, suited
from loomrl.serving.monitor.monitor import Forbidden, Monitor, Origin
from loomrl.serving.monitor.watch import AnswerWatch, AskStable
from loomrl.serving.observe import UNSEEN, Observed, Watchers, observing, recorded
from loomrl.serving.policy import Acted
from loomrl.serving.recorder import Call, Recorder, SpokenChoice
from loomrl.serving.refusal import Cause, Refusal
from loomrl.serving.split import shadows, stable
from loomrl.serving.thread import Known, continuation
from loomrl.store.endpoints import Endpoint, Role, State

log = redacted_logger(__name__)
Mode = Literal["before", "after", "off"]
MOST_LATER = 4096
"""Calls being recorded after their answer, at most; further ones wait until they are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """The circumstances of a call."""

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
    """Of the event loop's clock."""
    at: float = field(default_factory=time.time)
    observed: Observed = UNSEEN


class Exchange:
    """Answers calls and has them recorded. `before` records before an answer ends, `after` soon after it.

    `rate` is the share of sessions whose acts are recorded.
    """

    def __init__(
        self,
        view: View,
        recorder: Recorder | None,
        *,
        mode: Mode = "before",
        rate: float = 1.0,
        monitor: Monitor | None = None,
        watchers: Watchers | None = None,
    ) -> None:
        self.view = view
        self.rate = rate
        self.monitor = monitor
        watching = watchers or Watchers()
        self.measures = watching.measures
        self.meter = watching.meter
        self.recorder = recorder if mode != "off" else None
        self.mode = mode
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, ask: Ask, visit: Visit) -> "Conversation":
        """The conversation, once its first tokens are here."""
        if self.monitor is not None:
            self.monitor.refuse_held(visit.endpoint.name, visit.session)
        options = list(candidates(self.view, visit.endpoint, visit.unit))
        if options:
            ask = suited(ask, options[0].policy.about, visit.endpoint.name)
        known = None
        takes = self.recorder is not None and await self.recorder.takes(visit.endpoint.name, ask)
        if self.recorder is not None and takes and ask.prompt is None and not visit.is_new:
            known = await self.recorder.known(visit.session, ask, key=visit.key)
        if visit.endpoint.state is not State.SERVING and known is None:
            message = f"Endpoint {visit.endpoint.name!r} is being drained: it takes no new conversations."
            raise Refusal(Cause.UNAVAILABLE, message)
        observed = self.observe(visit.endpoint, options, visit.unit, session=visit.session, key=visit.key)
        with observing(observed):
            begun = await begin(
                options, lambda option: continuation(ask, known), endpoint=visit.endpoint, deadline=visit.deadline
            )
        observed.first(begun.candidate)
        self._ask_shadows(ask, visit)
        return Conversation(self, ask, replace(visit, observed=observed), known=known, begun=begun, is_recorded=takes)

    def observe(
        self, endpoint: Endpoint, options: Sequence[Candidate], unit: str, *, is_alone: bool = False, **whose: str
    ) -> Observed:
        """Watch a call that is given to the first of these."""
        measures = self.measures
        meter = self.meter
        return Observed(
            None if measures is None else measures.begin(endpoint, unit, is_alone=is_alone, **whose),
            None if meter is None else meter.begin(endpoint.name, options),
        )

    async def keep(self, work: Coroutine[Any, Any, None], *, deadline: float) -> None:
        """Record: durably before this returns, or in the background, as the mode says."""
        if self.mode == "after" and len(self._tasks) < MOST_LATER:
            self.later(_logged(recorded(work)))
            return
        try:
            async with asyncio.timeout_at(deadline):
                await recorded(work)
        except TimeoutError:
            raise Refusal(Cause.TIMEOUT, "The answer could not be recorded in time.", retry_after_s=1.0) from None

    async def act(
        self,
        options: Sequence[Candidate],
        ask: ActAsk,
        *,
        endpoint: Endpoint,
        session: str,
        deadline: float,
        observed: Observed,
    ) -> tuple[Candidate, Acted]:
        """The actions of the first replica that answers in time, as far as the monitor allows them."""
        monitor = self.monitor
        if monitor is None or not monitor.has_actions:
            return await act(options, ask.act, endpoint=endpoint, deadline=deadline)
        monitor.refuse_held(endpoint.name, session)
        hits: list[str] = []

        async def allowed(options: Sequence[Candidate]) -> tuple[Candidate, Acted]:
            candidate, acted = await act(options, ask.act, endpoint=endpoint, deadline=deadline)
            origin = _origin(endpoint, candidate, session)
            is_alone = ask.is_one and bool(session)
            return candidate, await monitor.judge(acted, ask.act.observations, origin, alone=is_alone, hits=hits)

        try:
            try:
                found = await allowed(options)
            except Forbidden as forbidden:
                others = [one for one in options if one.arm.role is Role.STABLE]
                if not forbidden.may_move or not others:
                    raise
                found = await allowed(others)
        except Refusal:
            if hits:
                observed.judged(violation=True)
            raise
        observed.judged(violation=bool(hits))
        return found

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in the background to its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for all background work."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ask_shadows(self, ask: Ask, visit: Visit) -> None:
        for arm in shadows(visit.endpoint.name, visit.endpoint.arms, visit.unit):
            for policy in self.view.replicas(arm.policy)[:1]:
                self.later(self._shadow(Candidate(arm, policy), ask, visit))

    async def _shadow(self, candidate: Candidate, ask: Ask, visit: Visit) -> None:
        """A shadow's answer, which no caller gets; recorded as a session of its own."""
        shadow = Visit(
            id=uuid.uuid4().hex,
            endpoint=visit.endpoint,
            session=f"{visit.session}~{candidate.arm.name}",
            unit=visit.unit,
            key=visit.key,
            dialect=visit.dialect,
            deadline=visit.deadline,
        )
        try:
            takes = self.recorder is not None and await self.recorder.takes(visit.endpoint.name, ask)
            begun = await begin(
                [candidate], lambda _: continuation(ask, None), endpoint=visit.endpoint, deadline=visit.deadline
            )
            heard = Conversation(self, ask, shadow, known=None, begun=begun, is_recorded=takes)
            async for _ in heard.events():
                pass
            await heard.keep()
        except Refusal as refusal:
            log.info("Shadow %s did not answer: %s", candidate.arm.name, refusal)


class Conversation:
    """One call from its first event to its record."""

    def __init__(
        self,
        exchange: Exchange,
        ask: Ask,
        visit: Visit,
        *,
        known: Known | None,
        begun: Begun,
        is_recorded: bool,
    ) -> None:
        self._exchange = exchange
        self._ask = ask
        self._visit = visit
        self._known = known
        self.is_recorded = is_recorded
        self._is_cut = False
        self._watch: AnswerWatch | None = None
        self._answer_by(begun)

    def _answer_by(self, begun: Begun) -> None:
        """Answer with this one."""
        visit = self._visit
        candidate = begun.candidate
        self._begun = begun
        self._choices = [Gathered() for _ in range(self._ask.drawing.n)]
        self.heading = Heading(
            id=visit.id,
            created=visit.at,
            model=self._ask.model,
            version=candidate.policy.about.version,
            arm=candidate.arm.name,
            session=visit.session,
            trajectory=visit.session if self.is_recorded else "",
        )
        monitor = self._exchange.monitor
        if monitor is not None and monitor.has_texts and candidate.arm.role is not Role.SHADOW:
            origin = _origin(visit.endpoint, candidate, visit.session)
            earlier = [] if self._watch is None else self._watch.hits
            self._watch = AnswerWatch(
                monitor, self._ask, origin, deadline=visit.deadline, call=visit.id, earlier=earlier
            )

    def events(self) -> AsyncGenerator[Event, None]:
        """The events that may leave; a Refusal if the answer breaks off. What was sampled by then is recorded."""
        allowed = self._drawn() if self._watch is None else self._watched(self._watch)
        return self._observed(allowed, self._visit.observed)

    async def _observed(self, allowed: AsyncGenerator[Event, None], observed: Observed) -> AsyncGenerator[Event, None]:
        """The same events; how they end is the call's outcome."""
        try:
            with observing(observed):
                async with aclosing(allowed):
                    async for event in allowed:
                        yield event
            observed.answered(self._begun.candidate, self.usage)
            observed.spoke(self.heading.arm, self._choices, prompt_chars=self._ask.prompt_chars)
            if self._watch is not None:
                observed.judged(violation=bool(self._watch.hits))
        except Refusal:
            if self._watch is not None and self._watch.hits:
                observed.judged(violation=True)
            raise

    async def _watched(self, watch: AnswerWatch) -> AsyncGenerator[Event, None]:
        """The events that the monitor lets through, or the stable arm's if it asks for them."""
        first = stable(self._visit.endpoint.arms)
        may_move = first is not None and first.name != self.heading.arm
        try:
            async with aclosing(self._drawn()) as drawn, aclosing(watch.events(drawn, may_move=may_move)) as allowed:
                async for event in allowed:
                    yield event
                self._is_cut = True
            return
        except AskStable:
            pass
        await self._move()
        assert self._watch is not None
        async with aclosing(self._watched(self._watch)) as events:
            async for event in events:
                yield event

    async def _move(self) -> None:
        """Let the stable arm answer. The other arm's tokens are recorded as a session of their own."""
        options = [
            one for one in candidates(self._exchange.view, self._visit.endpoint, "") if one.arm.role is Role.STABLE
        ]
        begun = await begin(
            options,
            lambda _: continuation(self._ask, self._known),
            endpoint=self._visit.endpoint,
            deadline=self._visit.deadline,
        )
        self._answer_by(begun)

    async def _drawn(self) -> AsyncGenerator[Event, None]:
        """All events, as they are drawn."""
        is_whole = False
        try:
            for event in self._begun.first:
                self._choices[event.index].add(event)
                yield event
            while True:
                try:
                    event = await next_event(self._begun.rest, self._visit.deadline)
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
                    self._exchange.later(self._keep_broken(self._broken()))

    async def whole(self) -> Answer:
        """The answer, once it is complete; a Refusal if it breaks off."""
        heard = [Gathered() for _ in self._choices]
        async for event in self.events():
            heard[event.index].add(event)
        return Answer(heading=self.heading, choices=tuple(choice.choice() for choice in heard), usage=self.usage)

    @property
    def usage(self) -> Usage:
        """Counts up to now."""
        cached = 0 if self._known is None else len(self._known.ids_T)
        return Usage(
            prompt=cached + len(self._choices[0].opened),
            cached=cached,
            completion=sum(len(choice.ids) for choice in self._choices),
        )

    async def keep(self) -> None:
        """Record the call: durably before this returns, or in the background, as the mode says."""
        recorder = self._exchange.recorder
        if recorder is None or not self.is_recorded:
            return
        await self._exchange.keep(recorder.keep(self._call()), deadline=self._visit.deadline)

    def _broken(self) -> Call:
        """The call so far. If the stable arm answers in its place, it is a session of its own."""
        call = self._call()
        if self._watch is None or not self._watch.has_moved:
            return call
        return replace(call, id=uuid.uuid4().hex, session=f"{call.session}~{call.arm}")

    async def _keep_broken(self, call: Call) -> None:
        recorder = self._exchange.recorder
        if recorder is None or not self.is_recorded or not any(len(choice.ids_T) for choice in call.choices):
            return
        await _logged(recorder.keep(call))

    def _call(self) -> Call:
        visit = self._visit
        arm = self._begun.candidate.arm
        return Call(
            id=visit.id,
            session=visit.session,
            endpoint=visit.endpoint.name,
            arm=arm.name,
            version=self.heading.version,
            parent="" if self._known is None else self._known.parent,
            dialect=visit.dialect,
            ask=self._ask,
            choices=tuple(
                _spoken(index, choice, None if self._watch is None else self._watch.said(index))
                for index, choice in enumerate(self._choices)
            ),
            key=visit.key,
            started_at=visit.at,
            finished_at=time.time(),
        )


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Refusal as refusal:
        log.warning("A call is not on record: %s", refusal)


def _spoken(index: int, choice: Gathered, said: tuple[str, str] | None) -> SpokenChoice:
    rule, text = said or ("", "")
    closed = choice.closed or Closed(text="".join(each.text for each in choice.drawn) if rule else "", finish="stop")
    return SpokenChoice(
        index=index,
        opened_T=choice.opened,
        ids_T=choice.ids,
        logprobs_T=choice.logprobs,
        versions_T=choice.versions,
        text=closed.text,
        calls=closed.calls,
        sights=choice.sights,
        finish="cancelled" if choice.closed is None else closed.finish,
        rule=rule,
        said=text,
    )


def _origin(endpoint: Endpoint, candidate: Candidate, session: str) -> Origin:
    return Origin(
        endpoint=endpoint.name,
        arm=candidate.arm.name,
        role=candidate.arm.role,
        version=candidate.policy.about.version,
        session=session,
        revision=endpoint.revision,
    )
