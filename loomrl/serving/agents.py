"""The budget of an attempt, its use, and the policy within that budget."""

import asyncio
import json
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from loomrl.config import Sampling
from loomrl.errors import PolicyError
from loomrl.gym.adapters.harness.environment import Harness
from loomrl.gym.adapters.harness.session import CONTEXT, Access, AgentTranscript, Budget
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.episode import Attempt
from loomrl.gym.policy import Action, OraclePolicy, Policy, PolicyFactory
from loomrl.http.listen import open_door
from loomrl.http.server import Embedded
from loomrl.serving.asgi import GatewayApp
from loomrl.serving.call import ChoiceClosed, Event, PromptOpened, TokensDrawn
from loomrl.serving.dialect.openai import message_of
from loomrl.serving.gateway import Gateway, GatewaySettings
from loomrl.serving.policy import About, ActRequest, ActResult, Continuation, ServedPolicy
from loomrl.serving.recorder import MemoryRecorder
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import Caller
from loomrl.serving.wording import CallReader, to_messages
from loomrl.store.ab_tests import AbTest
from loomrl.store.endpoints import Arm, Endpoint
from loomrl.types import NO_VERSION, SEAT, Failure, HeldTime, Message, Task, Turn

ENDPOINT = "policy"


def endpoint_of(*arms: Arm) -> Endpoint:
    """The one endpoint, with these arms."""
    return Endpoint(name=ENDPOINT, revision=1, arms=arms, created_at=0.0)


@dataclass(slots=True, eq=False)
class AttemptLedger:
    """The account of one attempt: its identity, its budget, its use so far."""

    session: str
    key: str
    budget: Budget
    policy: ServedPolicy
    seat: HeldTime | None = None
    calls: int = 0
    tokens: int = 0
    overrun: str = ""
    refused: int = 0
    refusal: str = ""
    """The last refusal of a call."""
    failure: Failure | None = None
    is_over: bool = False
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    open: int = 0

    def admit(self, *, draws: bool) -> None:
        """Count a call that draws something; a Refusal if the budget is used up."""
        if self.is_over:
            raise Refusal(RefusalCause.CONFLICT, "The attempt is over.")
        if not draws:
            return
        left = {"calls": self.budget.calls - self.calls, "tokens": self.budget.tokens - self.tokens}
        for name, count in left.items():
            if count <= 0:
                self.overrun = self.overrun or name
                most = getattr(self.budget, name)
                raise Refusal(RefusalCause.BUDGET, f"The attempt has used up its budget of {most} {name}.")
        self.calls += 1


class BudgetedPolicy:
    """The policy of one attempt: sampled as training wants it, counted, and its failures noted."""

    def __init__(self, ledger: AttemptLedger, *, sampling: Sampling | None, rng: random.Random) -> None:
        self._ledger = ledger
        self._sampling = sampling
        self._rng = rng

    @property
    def about(self) -> About:
        """The policy's own."""
        return self._ledger.policy.about

    async def act(self, act: ActRequest) -> ActResult:
        """The policy's actions."""
        return await self._ledger.policy.act(act)

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """The policy's answer, within the budget."""
        ledger = self._ledger
        SEAT.set(ledger.seat)  # the server's task is no part of the attempt's
        draws = continuation.drawing.max_tokens != 0
        ledger.admit(draws=draws)
        ledger.open += 1
        ledger.idle.clear()
        ledger.tokens += len(continuation.known_T) if draws else 0
        try:
            async with aclosing(ledger.policy.answer(self._constrain(continuation))) as events:  # type: ignore[type-var]
                async for event in events:
                    if not draws:
                        pass
                    elif isinstance(event, ChoiceClosed):
                        ledger.failure = None  # one that failed and was tried again
                    else:
                        ledger.tokens += len(event.ids_T)
                    yield event
        except Refusal as refusal:
            self._note(refusal)
            raise
        finally:
            ledger.open -= 1
            if not ledger.open:
                ledger.idle.set()

    def _constrain(self, continuation: Continuation) -> Continuation:
        """Temperature, top-p and other odds are the experiment's: the learner recomputes with these."""
        if self._sampling is None:
            return continuation
        drawing = continuation.drawing
        own = self._sampling
        most = own.max_tokens if drawing.max_tokens is None else min(own.max_tokens, drawing.max_tokens)
        seed = self._rng.getrandbits(63)
        asked = replace(drawing, temperature=own.temperature, top_p=own.top_p, odds=None, max_tokens=most, seed=seed)
        return replace(continuation, drawing=asked)

    def _note(self, refusal: Refusal) -> None:
        if refusal.cause is RefusalCause.TOO_LONG:
            self._ledger.overrun = self._ledger.overrun or CONTEXT
        elif refusal.status >= 500 and self._ledger.failure is None:
            self._ledger.failure = Failure(PolicyError.boundary, refusal.cause.name.title(), str(refusal))


class AttemptLedgers:
    """The open attempts, as keys and as a view: any model name means the attempt's own policy."""

    def __init__(self) -> None:
        self.by_key: dict[str, AttemptLedger] = {}
        self.by_session: dict[str, tuple[AttemptLedger, ServedPolicy]] = {}

    def add(self, ledger: AttemptLedger, policy: ServedPolicy) -> None:
        """Add an attempt."""
        self.by_key[ledger.key] = ledger
        self.by_session[ledger.session] = ledger, policy

    def note_refusal(self, session: str, refusal: Refusal) -> None:
        """Count a refused request of an attempt."""
        if session in self.by_session:
            ledger, _ = self.by_session[session]
            ledger.refused += 1
            ledger.refusal = f"{refusal.status} {message_of(refusal)}"

    def remove(self, session: str) -> None:
        """Remove an attempt."""
        ledger, _ = self.by_session.pop(session)
        del self.by_key[ledger.key]

    async def caller(self, token: str | None, *, scope: str) -> Caller:
        """The attempt of a key."""
        ledger = self.by_key.get(token or "")
        if ledger is None:
            raise Refusal(RefusalCause.KEY, "This key belongs to no open attempt.")
        arm = Arm(name="stable", policy=ledger.session)  # every attempt has a policy of its own
        return Caller(key=ledger.session, session=ledger.session, endpoint=endpoint_of(arm))

    def spent(self, caller: Caller, tokens: int) -> None:
        """Does nothing: the policies count tokens."""

    def endpoint(self, name: str) -> Endpoint:
        """The same for every name: agents name models of other providers."""
        return endpoint_of()

    def endpoints(self) -> Sequence[Endpoint]:
        """The one endpoint."""
        return [endpoint_of()]

    def tests(self, endpoint: str) -> Sequence[AbTest]:
        """None."""
        return ()

    def replicas(self, version: str) -> Sequence[ServedPolicy]:
        """The policy of the attempt whose session this is."""
        found = self.by_session.get(version)
        return () if found is None else (found[1],)


class Speak(Protocol):
    """Gives the next text of a conversation."""

    def __call__(self, conversation: tuple[Message, ...]) -> Awaitable[str]:
        """The text, with calls as a policy writes them."""


class ScriptedServedPolicy:
    """A ServedPolicy without a model: an oracle, a program, another server. Its ids are the bytes of its messages."""

    def __init__(self, says: Speak, *, tool_role: bool = True) -> None:
        self._says = says
        self._tool_role = tool_role
        self.conversations: list[tuple[Message, ...]] = []
        """Every conversation up to now, with its answer, in the order of the answers."""

    @property
    def about(self) -> About:
        """It has no version."""
        return About(kind="language", version="scripted", number=NO_VERSION, context=2**31)

    async def act(self, act: ActRequest) -> ActResult:
        """Always a Refusal."""
        raise Refusal(RefusalCause.INVALID, "this policy answers in words.")

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """The text, at once."""
        if continuation.prefill or continuation.drawing.max_tokens == 0:
            message = "this policy has whole texts: it can neither continue one, nor read a prompt only."
            raise Refusal(RefusalCause.INVALID, message)
        known_T = continuation.known_T
        tools = () if len(known_T) else continuation.tools
        new = to_messages(continuation.messages, tools, tool_role=self._tool_role)
        conversation = (*_read(known_T), *new)
        try:
            text = await self._says(conversation)
        except Exception as error:  # the boundary to oracles and programs
            raise Refusal(RefusalCause.UNAVAILABLE, f"{type(error).__name__}: {error}") from error
        said = Message("assistant", text)
        self.conversations.append((*conversation, said))
        reader = CallReader()
        shown = reader.add(text) + reader.end()
        yield PromptOpened(ids_T=_encode_messages(new))
        ids_T = _encode_messages([said])
        nothing = np.zeros(len(ids_T), np.float32)
        yield TokensDrawn(
            ids_T=ids_T, logprobs_T=nothing, versions_T=np.full(len(ids_T), NO_VERSION, np.int32), text=shown
        )
        calls = tuple(reader.calls)
        yield ChoiceClosed(text=shown, calls=calls, finish="tool_calls" if calls else "stop")


def _encode_messages(messages: Sequence[Message]) -> Any:
    lines = "".join(f"{json.dumps([message.role, message.content])}\n" for message in messages)
    return np.frombuffer(lines.encode(), np.uint8).astype(np.int32)


def _read(ids_T: Any) -> tuple[Message, ...]:
    lines = ids_T.astype(np.uint8).tobytes().decode().splitlines()
    return tuple(Message(*json.loads(line)) for line in lines)


CLOSING_S = 5.0
"""Time limit of calls that are open when their attempt ends."""


class _LoopServer:
    """The server of one event loop, running while attempts are open."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.ledgers = AttemptLedgers()
        self.recorder = MemoryRecorder()
        self._lock = asyncio.Lock()
        self._server: Embedded | None = None
        self._gateway: Gateway | None = None
        self._users = 0
        self.url = ""

    async def enter(self) -> None:
        """Use the server; the first one starts it."""
        async with self._lock:
            if self._server is None:
                door = open_door("127.0.0.1", 0)
                self._gateway = Gateway(
                    view=self.ledgers,
                    recorder=self.recorder,
                    keys=self.ledgers,
                    settings=self._settings,
                    note_refusal=self.ledgers.note_refusal,
                )
                self._server = Embedded(GatewayApp(self._gateway), door.listeners)
                await self._server.start()
                self.url = door.url
            self._users += 1

    async def leave(self) -> None:
        """Stop using it; the last one closes it."""
        self._users -= 1
        async with self._lock:
            if not self._users and self._server is not None and self._gateway is not None:
                server = self._server
                self._server = None
                await server.close()
                await self._gateway.close()


class AgentGateway:
    """Opens policies to the agents of attempts, on whichever event loop plays them."""

    def __init__(self, *, deadline_s: float = 600.0, slots: int = 1024) -> None:
        self._settings = GatewaySettings(deadline_s=deadline_s, slots=slots)
        self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopServer] = WeakKeyDictionary()

    def serving(
        self, others: PolicyFactory, policy: ServedPolicy | None = None, *, sampling: Sampling | None = None
    ) -> PolicyFactory:
        """The factory, extended to agents: `policy` answers them with this `sampling`, not theirs.

        Without a served policy the factory's own texts answer them; an oracle is that of their tasks.
        """

        def player(environment: BaseEnvironment, rng: random.Random) -> Policy:
            if not isinstance(environment, Harness):
                return others(environment, rng)
            if policy is not None:
                return AgentSessions(self, lambda attempt: policy, sampling=sampling, rng=rng)
            own = others(environment, rng)
            return AgentSessions(
                self, lambda attempt: ScriptedServedPolicy(_texts(environment, own, attempt.task)), rng=rng
            )

        return player

    def place(self) -> _LoopServer:
        """The server of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            self._places[loop] = _LoopServer(self._settings)
        return self._places[loop]


class AgentSessions:
    """A policy as agents see it: `loomrl.gym.adapters.harness.session.PolicySessions`."""

    def __init__(
        self,
        gateway: AgentGateway,
        policy: Callable[[Attempt], ServedPolicy],
        *,
        sampling: Sampling | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._gateway = gateway
        self._policy = policy
        self._sampling = sampling
        self._rng = rng or random.Random()

    async def act(self, conversation: tuple[Message, ...]) -> Action:
        """Always a PolicyError."""
        raise PolicyError("this policy answers agents, over HTTP. An environment with turns needs another one.")

    async def open(self, attempt: Attempt, budget: Budget) -> Access:
        """A session, with a key of its own."""
        place = self._gateway.place()
        await place.enter()
        ledger = AttemptLedger(
            secrets.token_hex(12), f"sk-{secrets.token_hex(20)}", budget, self._policy(attempt), SEAT.get()
        )
        place.ledgers.add(ledger, BudgetedPolicy(ledger, sampling=self._sampling, rng=self._rng))
        base = f"{place.url}/sessions/{ledger.session}"
        return Access(session=ledger.session, openai_base_url=f"{base}/v1", anthropic_base_url=base, api_key=ledger.key)

    async def finish(self, access: Access) -> AgentTranscript:
        """All that was said, once open calls have ended."""
        place = self._gateway.place()
        ledger, _ = place.ledgers.by_session[access.session]
        ledger.is_over = True
        try:
            if ledger.open:
                async with asyncio.timeout(CLOSING_S):
                    await ledger.idle.wait()
        except TimeoutError:
            ledger.failure = ledger.failure or Failure(PolicyError.boundary, "Hang", "a call did not end")
        finally:
            place.ledgers.remove(access.session)
            sequences = await _read_sequences(place.recorder, access.session)
            await place.leave()
        if ledger.policy.about.number == NO_VERSION:
            sequences = tuple(tuple(replace(turn, tokens=None) for turn in turns) for turns in sequences)
        turns, *threads = sequences or [()]
        return AgentTranscript(
            turns=turns,
            threads=tuple(threads),
            overrun=ledger.overrun,
            refused=ledger.refused,
            refusal=ledger.refusal,
            failure=ledger.failure,
        )


async def _read_sequences(recorder: MemoryRecorder, session: str) -> tuple[tuple[Turn, ...], ...]:
    """The session's sequences of turns; none if the agent never got an answer."""
    try:
        trajectory = await recorder.complete(session)
    except Refusal as refusal:
        if refusal.cause is RefusalCause.UNKNOWN:
            return ()
        raise
    return trajectory.sequences


def _texts(harness: Harness, policy: Policy, task: Task) -> Speak:
    async def says(conversation: tuple[Message, ...]) -> str:
        if isinstance(policy, OraclePolicy):
            return harness.reply(task, conversation)
        return (await policy.act(conversation)).text

    return says
