"""The gateway of a rollout: agents ask it for the policy, each attempt by a key of its own and within its budget."""

import asyncio
import random
import secrets
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

from typing_extensions import override

from loomrl.config import Sampling
from loomrl.errors import PolicyError
from loomrl.gym.adapters.harness.environment import Harness
from loomrl.gym.adapters.harness.session import Access, AgentTranscript, Budget
from loomrl.gym.base import BaseEnvironment
from loomrl.gym.episode import Attempt
from loomrl.gym.policy import Action, OraclePolicy, Policy, PolicyFactory
from loomrl.http.listen import open_door
from loomrl.http.server import Embedded
from loomrl.serving.agents.ledger import Ledger, Ledgers, Metered, endpoint_of
from loomrl.serving.agents.scripted import Said, Scripted
from loomrl.serving.call import Ask
from loomrl.serving.converse import Conversation, Exchange, Visit
from loomrl.serving.gateway import Gateway, GatewaySettings
from loomrl.serving.policy import ServedPolicy
from loomrl.serving.recorder import Memory
from loomrl.serving.refusal import Cause, Refusal
from loomrl.store.endpoints import Arm
from loomrl.types import NO_VERSION, Failure, Message, Task, Turn

CLOSING_S = 5.0
"""Time limit of calls that are open when their attempt ends."""


class _Exchange(Exchange):
    """Every session has an arm of its own, since every attempt has a policy of its own."""

    @override
    async def open(self, ask: Ask, visit: Visit) -> Conversation:
        arm = Arm(name="stable", policy=visit.session)
        return await super().open(ask, replace(visit, endpoint=endpoint_of(arm)))


class _Place:
    """The server of one event loop, running while attempts are open."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self.ledgers = Ledgers()
        self.recorder = Memory()
        self._lock = asyncio.Lock()
        self._server: Embedded | None = None
        self._exchange: _Exchange | None = None
        self._users = 0
        self.url = ""

    async def enter(self) -> None:
        """Use the server; the first one starts it."""
        async with self._lock:
            if self._server is None:
                door = open_door("127.0.0.1", 0)
                self._exchange = _Exchange(self.ledgers, self.recorder)
                gateway = Gateway(self._exchange, keys=self.ledgers, settings=self._settings)
                self._server = Embedded(gateway, door.listeners)
                await self._server.start()
                self.url = door.url
            self._users += 1

    async def leave(self) -> None:
        """Stop using it; the last one closes it."""
        self._users -= 1
        async with self._lock:
            if not self._users and self._server is not None and self._exchange is not None:
                server = self._server
                self._server = None
                await server.close()
                await self._exchange.close()


class AgentGateway:
    """Opens policies to the agents of attempts, on whichever event loop plays them."""

    def __init__(self, *, deadline_s: float = 600.0, slots: int = 1024) -> None:
        self._settings = GatewaySettings(deadline_s=deadline_s, slots=slots)
        self._places: WeakKeyDictionary[asyncio.AbstractEventLoop, _Place] = WeakKeyDictionary()

    def serving(
        self, others: PolicyFactory, policy: ServedPolicy | None = None, *, sampling: Sampling | None = None
    ) -> PolicyFactory:
        """The factory, extended to agents: `policy` answers them with this `sampling`, whatever they ask for.

        Without a served policy the factory's own texts answer them; an oracle is that of their tasks.
        """

        def player(environment: BaseEnvironment, rng: random.Random) -> Policy:
            if not isinstance(environment, Harness):
                return others(environment, rng)
            if policy is not None:
                return AgentSessions(self, lambda attempt: policy, sampling=sampling, rng=rng)
            own = others(environment, rng)
            return AgentSessions(self, lambda attempt: Scripted(_texts(environment, own, attempt.task)), rng=rng)

        return player

    def place(self) -> _Place:
        """The server of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._places:
            self._places[loop] = _Place(self._settings)
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
        ledger = Ledger(secrets.token_hex(12), f"sk-{secrets.token_hex(20)}", budget, self._policy(attempt))
        place.ledgers.add(ledger, Metered(ledger, sampling=self._sampling, rng=self._rng))
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
            sequences = await _recorded(place.recorder, access.session)
            await place.leave()
        if ledger.policy.about.number == NO_VERSION:
            sequences = tuple(tuple(replace(turn, tokens=None) for turn in turns) for turns in sequences)
        turns, *threads = sequences or [()]
        return AgentTranscript(turns=turns, threads=tuple(threads), overrun=ledger.overrun, failure=ledger.failure)


async def _recorded(recorder: Memory, session: str) -> tuple[tuple[Turn, ...], ...]:
    """The session's sequences of turns; none if the agent never got an answer."""
    try:
        trajectory = await recorder.complete(session)
    except Refusal as refusal:
        if refusal.cause is Cause.UNKNOWN:
            return ()
        raise
    return trajectory.sequences


def _texts(harness: Harness, policy: Policy, task: Task) -> Said:
    async def says(conversation: tuple[Message, ...]) -> str:
        if isinstance(policy, OraclePolicy):
            return harness.reply(task, conversation)
        return (await policy.act(conversation)).text

    return says
