"""Dispatch of a call: the chosen arm first, then another replica, then the stable arm, within a deadline."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from loomrl.errors import ConfigError
from loomrl.gym.preference import line, parse_weights
from loomrl.observability.trace import NOTHING, Span, below, ending
from loomrl.observability.trace import begin as begin_span
from loomrl.serving.call import ChatMessage, ChatRequest, Event, PromptOpened
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation, ServedPolicy
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.split import assign_arm, stable
from loomrl.store.ab_tests import AbTest
from loomrl.store.endpoints import Arm, Endpoint, Role


class EndpointView(Protocol):
    """The endpoints and policies that are served now."""

    def endpoint(self, name: str) -> Endpoint | None:
        """The endpoint of this name."""

    def endpoints(self) -> Sequence[Endpoint]:
        """All of them."""

    def tests(self, endpoint: str) -> Sequence[AbTest]:
        """The A/B tests that run on an endpoint."""

    def replicas(self, policy: str) -> Sequence[ServedPolicy]:
        """The replicas of an arm's policy that can be reached; the one to ask first comes first."""


MOVABLE = frozenset({RefusalCause.UNAVAILABLE, RefusalCause.TIMEOUT, RefusalCause.FULL, RefusalCause.INTERNAL})
"""Causes for which another replica or arm may answer."""
PATIENCE = 0.5
"""Share of the remaining time that an arm gets for its first event if another arm could still answer."""


@dataclass(frozen=True, slots=True)
class ArmReplica:
    """A replica that could answer, and its arm."""

    arm: Arm
    policy: ServedPolicy


def candidates(view: EndpointView, endpoint: Endpoint, unit: str) -> Iterator[ArmReplica]:
    """The replicas to try, in order: at most two of the unit's arm, then two of the stable one."""
    first, last = assign_arm(endpoint, view.tests(endpoint.name), unit), stable(endpoint.arms)
    arms = [arm for arm in (None if first is None else first.arm, last) if arm is not None]
    for arm in dict.fromkeys(arms):
        for policy in view.replicas(arm.policy)[:2]:
            yield ArmReplica(arm, policy)


def none_up(endpoint: Endpoint) -> Refusal:
    """The refusal where no replica is up."""
    message = f"No replica of endpoint {endpoint.name!r} is up."
    return Refusal(RefusalCause.UNAVAILABLE, message, retry_after_s=1.0)


def only_arm(endpoint: Endpoint, name: str) -> Endpoint:
    """The endpoint with one of its arms alone; a Refusal names those that a caller may choose."""
    heard = {arm.name: arm for arm in endpoint.arms if arm.role is not Role.SHADOW}
    if name not in heard:
        known = ", ".join(f"{endpoint.name}@{each}" for each in heard)
        message = f"Endpoint {endpoint.name!r} has no arm {name!r:.100} that answers. Known: {known}."
        raise Refusal(RefusalCause.UNKNOWN, message, where="model")
    return replace(endpoint, arms=(replace(heard[name], share=1.0, role=Role.STABLE),))


@dataclass(slots=True)
class Begun:
    """An answer that has begun: from now on no other replica can give it."""

    candidate: ArmReplica
    first: list[Event]
    rest: AsyncIterator[Event]
    span: Span = NOTHING
    """The arm's span, open until the answer is over."""


async def begin(
    options: Sequence[ArmReplica],
    continuation: Continuation,
    *,
    endpoint: Endpoint,
    deadline: float,
) -> Begun:
    """The first answer that begins in time."""
    failure: Refusal | None = None
    for place, option in enumerate(options):
        span = _span(option, endpoint)
        events = option.policy.answer(_below(continuation, span))
        try:
            first = await _first(events, _until(deadline, is_last=place == len(options) - 1))
        except BaseException as error:
            span.end(error)
            if not isinstance(error, Refusal) or error.cause not in MOVABLE:
                raise
            failure = error
            continue
        return Begun(option, first, events, span)
    raise failure or none_up(endpoint)


async def _first(events: AsyncIterator[Event], deadline: float) -> list[Event]:
    """The events up to the first that is more than a prompt."""
    first = [await next_event(events, deadline)]
    while isinstance(first[-1], PromptOpened):
        first.append(await next_event(events, deadline))
    return first


async def next_event(events: AsyncIterator[Event], deadline: float) -> Event:
    """The next event; a Refusal at the deadline. The end of the events is StopAsyncIteration."""
    try:
        async with asyncio.timeout_at(deadline):
            return await anext(events)
    except TimeoutError:
        await close(events)
        raise Refusal(
            RefusalCause.TIMEOUT, "The policy did not answer before the deadline.", retry_after_s=1.0
        ) from None


async def close(events: AsyncIterator[Event]) -> None:
    """End an answer that is no longer wanted."""
    async with aclosing(events):  # type: ignore[type-var]
        pass


async def act(
    options: Sequence[ArmReplica], wish: ActRequest, *, endpoint: Endpoint, deadline: float
) -> tuple[ArmReplica, ActResult]:
    """The actions of the first replica that answers in time."""
    failure: Refusal | None = None
    for place, option in enumerate(options):
        span = _span(option, endpoint)
        try:
            with ending(span):
                async with asyncio.timeout_at(_until(deadline, is_last=place == len(options) - 1)):
                    return option, await option.policy.act(wish)
        except TimeoutError:
            failure = Refusal(RefusalCause.TIMEOUT, "The policy did not act before the deadline.", retry_after_s=1.0)
        except Refusal as refusal:
            if refusal.cause not in MOVABLE:
                raise
            failure = refusal
    raise failure or none_up(endpoint)


def _until(deadline: float, *, is_last: bool) -> float:
    now = asyncio.get_running_loop().time()
    return deadline if is_last else now + PATIENCE * (deadline - now)


def _span(option: ArmReplica, endpoint: Endpoint) -> Span:
    """The span of an arm that a call is given to."""
    arm = option.arm
    if not (above := below()):
        return NOTHING
    return begin_span(
        f"arm {arm.name}",
        below=above,
        gen_ai__response__model=option.policy.about.version,
        loomrl__endpoint=endpoint.name,
        loomrl__arm=arm.name,
        loomrl__role=arm.role.value,
    )


def _below(continuation: Continuation, span: Span) -> Continuation:
    """With the span that the engine's is below."""
    return replace(continuation, traceparent=span.traceparent) if span.traceparent else continuation


def apply_preference(ask: ChatRequest, about: About, endpoint: str) -> ChatRequest:
    """The conversation with its preference, as in training; without one all objectives count alike.

    A Refusal if the policy holds no conversations, or does not read such a preference.
    """
    if about.kind == "control":
        message = f"Endpoint {endpoint!r} has a control policy, which cannot chat: ask /v1/act."
        raise Refusal(RefusalCause.INVALID, message, where="model")
    if not about.weighs:
        if ask.preference is not None:
            raise Refusal(RefusalCause.INVALID, "This policy reads no preference: leave it out.", where="preference")
        return ask
    if ask.prompt is not None:
        return ask  # a bare prompt is all that the policy reads
    even = dict.fromkeys(about.weighs, 1 / len(about.weighs))
    try:
        told = line(even if ask.preference is None else parse_weights(ask.preference, about.weighs))
    except ConfigError as error:
        raise Refusal(RefusalCause.INVALID, str(error), where="preference") from None
    first = ask.messages[0]
    if first.role != "system":
        return replace(ask, messages=(ChatMessage(role="system", text=told), *ask.messages))
    return replace(ask, messages=(replace(first, text=f"{first.text}\n{told}"), *ask.messages[1:]))
