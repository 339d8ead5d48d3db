"""The budget of an attempt, its use, and the policy within that budget."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from loomrl.config import Sampling
from loomrl.errors import PolicyError
from loomrl.gym.adapters.harness.session import CONTEXT, Budget
from loomrl.serving.answer import Closed, Event
from loomrl.serving.door import Caller
from loomrl.serving.policy import About, Act, Acted, Continuation, ServedPolicy
from loomrl.serving.refusal import Cause, Refusal
from loomrl.store.ab_tests import AbTest
from loomrl.store.endpoints import Arm, Endpoint
from loomrl.types import Failure

ENDPOINT = "policy"


def endpoint_of(*arms: Arm) -> Endpoint:
    """The one endpoint, with these arms."""
    return Endpoint(name=ENDPOINT, revision=1, arms=arms, created_at=0.0)


@dataclass(slots=True, eq=False)
class Ledger:
    """The account of one attempt: its identity, its budget, its use so far."""

    session: str
    key: str
    budget: Budget
    policy: ServedPolicy
    calls: int = 0
    tokens: int = 0
    overrun: str = ""
    failure: Failure | None = None
    is_over: bool = False
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    open: int = 0

    def admit(self) -> None:
        """Count a call; a Refusal if the budget is used up."""
        if self.is_over:
            raise Refusal(Cause.CONFLICT, "The attempt is over.")
        left = {"calls": self.budget.calls - self.calls, "tokens": self.budget.tokens - self.tokens}
        for name, count in left.items():
            if count <= 0:
                self.overrun = self.overrun or name
                most = getattr(self.budget, name)
                raise Refusal(Cause.BUDGET, f"The attempt has used up its budget of {most} {name}.")
        self.calls += 1


class Metered:
    """The policy of one attempt: sampled as training wants it, counted, and its failures noted."""

    def __init__(self, ledger: Ledger, *, sampling: Sampling | None, rng: random.Random) -> None:
        self._ledger = ledger
        self._sampling = sampling
        self._rng = rng

    @property
    def about(self) -> About:
        """The policy's own."""
        return self._ledger.policy.about

    async def act(self, act: Act) -> Acted:
        """As the policy does."""
        return await self._ledger.policy.act(act)

    async def answer(self, continuation: Continuation) -> AsyncIterator[Event]:
        """The policy's answer, within the budget."""
        ledger = self._ledger
        ledger.admit()
        ledger.open += 1
        ledger.idle.clear()
        ledger.tokens += len(continuation.known_T)
        try:
            async with aclosing(ledger.policy.answer(self._asked(continuation))) as events:  # type: ignore[type-var]
                async for event in events:
                    if isinstance(event, Closed):
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

    def _asked(self, continuation: Continuation) -> Continuation:
        """Temperature and top-p are the experiment's: the learner recomputes with these."""
        if self._sampling is None:
            return continuation
        drawing = continuation.drawing
        own = self._sampling
        most = own.max_tokens if drawing.max_tokens is None else min(own.max_tokens, drawing.max_tokens)
        seed = self._rng.getrandbits(63)
        asked = replace(drawing, temperature=own.temperature, top_p=own.top_p, max_tokens=most, seed=seed)
        return replace(continuation, drawing=asked)

    def _note(self, refusal: Refusal) -> None:
        if refusal.cause is Cause.TOO_LONG:
            self._ledger.overrun = self._ledger.overrun or CONTEXT
        elif refusal.status >= 500 and self._ledger.failure is None:
            self._ledger.failure = Failure(PolicyError.boundary, refusal.cause.name.title(), str(refusal))


class Ledgers:
    """The open attempts, as keys and as a view: any model name means the attempt's own policy."""

    def __init__(self) -> None:
        self.by_key: dict[str, Ledger] = {}
        self.by_session: dict[str, tuple[Ledger, ServedPolicy]] = {}

    def add(self, ledger: Ledger, policy: ServedPolicy) -> None:
        """Add an attempt."""
        self.by_key[ledger.key] = ledger
        self.by_session[ledger.session] = ledger, policy

    def remove(self, session: str) -> None:
        """Remove an attempt."""
        ledger, _ = self.by_session.pop(session)
        del self.by_key[ledger.key]

    async def caller(self, token: str | None, *, scope: str) -> Caller:
        """The attempt of a key."""
        ledger = self.by_key.get(token or "")
        if ledger is None:
            raise Refusal(Cause.KEY, "This key belongs to no open attempt.")
        return Caller(key=ledger.session, session=ledger.session)

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
