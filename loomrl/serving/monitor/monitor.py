"""The monitor of a gateway: its rules, run in time, and what was found."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Generic, TypeVar

import numpy as np

from loomrl.config.monitor import ActionCheck, CustomActionRule, CustomRule, Monitoring, MonitorRule
from loomrl.safety.open import open_action_rule, open_text_rule
from loomrl.safety.redaction.log import redacted_logger
from loomrl.safety.rule import ActionRule, Deed, Found, Saying, TextRule, Wrong, flat
from loomrl.safety.screen import look
from loomrl.serving.dispatch import ArmReplica
from loomrl.serving.monitor.ledger import HitLedger, MonitorHit
from loomrl.serving.policy import ActResult
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.store import LoomDB
from loomrl.store.endpoints import Endpoint, Role
from loomrl.store.observations import Observation

log = redacted_logger(__name__)
T = TypeVar("T")
MOST_LATE = 16
"""Threads that custom rules did not give back in time; at this number custom rules fail at once."""
FAILED = "failed rule"
PATIENCE = 40
"""Times `limit_ms` by the clock for a look that uses little CPU time: it waits, or the machine is busy."""
HAS_THREAD_CLOCKS = hasattr(time, "pthread_getcpuclockid")
"""False on macOS, where a look is late by the clock alone."""
REMEMBERED = 20_000
"""Sessions whose last action is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOrigin:
    """The endpoint, arm, version and session of an answer."""

    endpoint: str
    arm: str
    role: Role
    version: str
    session: str
    revision: int
    """The endpoint's revision."""

    @staticmethod
    def of(endpoint: Endpoint, candidate: ArmReplica, session: str) -> "AnswerOrigin":
        """The origin of a candidate's answer."""
        return AnswerOrigin(
            endpoint=endpoint.name,
            arm=candidate.arm.name,
            role=candidate.arm.role,
            version=candidate.policy.about.version,
            session=session,
            revision=endpoint.revision,
        )


class Late(Exception):
    """A rule did not answer in time."""


class Monitor:
    """A gateway's rules for answers and actions, by name, and the ledger of their hits."""

    def __init__(self, settings: Monitoring, db: LoomDB) -> None:
        self.db = db
        self.settings = settings
        self.ledger = HitLedger(db)
        self.rules: Mapping[str, MonitorRule] = {rule.check.label: rule for rule in settings.rules}
        self._texts: dict[str, TextRule] = {}
        self._own_texts: dict[str, TextRule] = {}
        self._actions: dict[str, ActionRule] = {}
        for name, rule in self.rules.items():
            if isinstance(rule.check, ActionCheck):
                self._actions[name] = open_action_rule(rule.check)
            else:
                own = isinstance(rule.check, CustomRule)
                (self._own_texts if own else self._texts)[name] = open_text_rule(rule.check)
        self._last: OrderedDict[str, Any] = OrderedDict()
        self._late = 0

    @property
    def has_texts(self) -> bool:
        """True if there are rules about answers."""
        return bool(self._texts or self._own_texts)

    @property
    def has_actions(self) -> bool:
        """True if there are rules about actions."""
        return bool(self._actions)

    async def start(self) -> None:
        """Follow and keep the record."""
        await self.ledger.start()

    async def close(self) -> None:
        """Write what is counted."""
        await self.ledger.close()

    def refuse_held(self, endpoint: str, session: str) -> None:
        """A Refusal for a session in quarantine."""
        if self.ledger.is_held(endpoint, session):
            message = f"session {session!r:.100} is in quarantine: its calls are refused until a person frees it."
            raise Refusal(RefusalCause.FORBIDDEN, message, where="session")

    def count(self, origin: AnswerOrigin, rule: str, what: str, *, then: str = "") -> None:
        """Count a hit."""
        hit = MonitorHit(
            endpoint=origin.endpoint,
            arm=origin.arm,
            version=origin.version,
            rule=rule,
            what=what,
            then=then or self.rules[rule].then,
        )
        self.ledger.count(hit, origin.session)
        if self.rules[rule].trip and hit.then != "failed":
            self.ledger.trip(origin.endpoint, _trip(origin))

    # -- answers ----------------------------------------------------------------------------------------------------

    async def look(self, saying: Saying, origin: AnswerOrigin, *, without: frozenset[str]) -> dict[str, Found]:
        """Findings of the rules, in the order of the settings; never raises, never late."""
        found: dict[str, Found] = {}
        for name in self.rules:
            if name in without:
                continue
            one = await self._look(name, saying, origin)
            if one is not None:
                found[name] = one
        return found

    async def _look(self, name: str, saying: Saying, origin: AnswerOrigin) -> Found | None:
        try:
            if name in self._texts:
                return look({name: self._texts[name]}, saying).get(name)
            if name in self._own_texts:
                rule = self._own_texts[name]
                return await self._in_time(lambda: look({name: rule}, saying).get(name))
        except Exception as error:  # noqa: BLE001 - the boundary to rules
            return Found(saying.since, FAILED, has_failed=True) if self._is_closed(name, origin, error) else None
        return None

    # -- actions ----------------------------------------------------------------------------------------------------

    async def judge(
        self, acted: ActResult, observations: Any, origin: AnswerOrigin, *, alone: bool, hits: list[str]
    ) -> ActResult:
        """The actions that may leave; Forbidden where there is none. `alone`: one action of a session.

        Rules that find something are added to `hits`, also if there is a Refusal.
        """
        actions = np.asarray(acted.actions)
        if actions.dtype.kind not in "biuf":
            return acted  # actions of parts have no rules
        allowed = actions.copy()
        last = self._last.get(origin.session) if alone else None
        for row in range(len(actions)):
            seen = flat(observations[row]) if isinstance(observations, np.ndarray) else None
            deed = await self._allow(Deed(action=flat(actions[row]), observation=seen, before=last), origin, hits)
            allowed[row] = deed.action.reshape(actions[row].shape)
        if alone:
            self._remember(origin.session, flat(allowed[0]))
        if np.array_equal(allowed, actions, equal_nan=actions.dtype.kind == "f"):
            return acted
        return replace(acted, actions=allowed, logprobs=None)  # what was not drawn has no log-probability

    async def _allow(self, deed: Deed, origin: AnswerOrigin, hits: list[str]) -> Deed:
        """The deed after all rules in turn."""
        for name, rule in self._actions.items():
            wrong = await self._wrong(name, rule, deed, origin)
            if wrong is None:
                continue
            chosen = self.rules[name]
            if not wrong.has_failed:
                hits.append(name)
                self.count(origin, name, wrong.what)
                if chosen.then == "count":
                    continue
                await self._intervene(name, chosen, origin)
            instead = wrong.instead if chosen.action is None else np.resize(chosen.action, deed.action.shape)
            if instead is None:
                raise ForbiddenAction(name, may_move=False)
            deed = replace(deed, action=instead.astype(deed.action.dtype))
        return deed

    async def _intervene(self, name: str, rule: MonitorRule, origin: AnswerOrigin) -> None:
        """A Refusal unless the rule lets another action take the place of the wrong one."""
        if rule.then == "quarantine":
            await self.ledger.hold(origin.endpoint, origin.session, name)
            self.refuse_held(origin.endpoint, origin.session)
        if rule.then == "stable" and origin.role is not Role.STABLE:
            raise ForbiddenAction(name, may_move=True)

    async def _wrong(self, name: str, rule: ActionRule, deed: Deed, origin: AnswerOrigin) -> Wrong | None:
        try:
            if isinstance(self.rules[name].check, CustomActionRule):
                return await self._in_time(lambda: rule.judge(deed))
            return rule.judge(deed)
        except Exception as error:  # noqa: BLE001 - the boundary to rules
            return Wrong(FAILED, has_failed=True) if self._is_closed(name, origin, error) else None

    def _remember(self, session: str, action: Any) -> None:
        self._last[session] = action
        self._last.move_to_end(session)
        if len(self._last) > REMEMBERED:
            self._last.popitem(last=False)

    # -- rules of one's own -----------------------------------------------------------------------------------------

    def _is_closed(self, name: str, origin: AnswerOrigin, error: Exception) -> bool:
        log.warning("Rule %s failed: %s: %s", name, type(error).__name__, error if isinstance(error, Late) else "")
        self.count(origin, name, type(error).__name__, then="failed")
        return self.settings.fails == "closed" and self.rules[name].then != "count"

    async def _in_time(self, work: Callable[[], T]) -> T:
        """Its result from a thread of its own; Late if it takes longer than the settings allow."""
        if self._late >= MOST_LATE:
            raise Late("too many of its threads did not come back")
        look = _Look(work)
        try:
            return await look.result(self.settings.limit_ms / 1000)
        except Late:
            self._late += 1
            look.when_over(self._count_back)
            raise

    def _count_back(self) -> None:
        self._late -= 1


class _Look(Generic[T]):
    """A look of a custom rule, running in a thread of its own."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[T] = self._loop.create_future()
        self._work = work
        self._clock: int | None = None
        threading.Thread(target=self._run, daemon=True).start()

    async def result(self, limit_s: float) -> T:
        """The result; Late after `limit_s` of CPU time, or `PATIENCE` times that by the clock."""
        begun = self._loop.time()
        while not (await asyncio.wait({self._done}, timeout=limit_s))[0]:
            if self._cpu_s() >= limit_s:
                raise Late(f"no answer within limit_ms={limit_s * 1000:g} of CPU time")
            if self._loop.time() - begun >= PATIENCE * limit_s:
                raise Late(f"no answer within {PATIENCE} times limit_ms={limit_s * 1000:g}")
        return self._done.result()

    def when_over(self, call: Callable[[], None]) -> None:
        """Call this once the thread has come back; its result is dropped."""

        def drop(done: asyncio.Future[T]) -> None:
            done.exception()  # or asyncio would complain that it was never asked for
            call()

        self._done.add_done_callback(drop)

    def _run(self) -> None:
        if HAS_THREAD_CLOCKS:  # asked for by the thread itself: the clock of an ended thread may not be asked for
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        answer: Any = None
        error: Exception | None = None
        try:
            answer = self._work()
        except Exception as raised:  # noqa: BLE001 - handed to the caller of `result`
            error = raised
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._settle, answer, error)

    def _settle(self, answer: Any, error: Exception | None) -> None:
        if error is None:
            self._done.set_result(answer)
        else:
            self._done.set_exception(error)

    def _cpu_s(self) -> float:
        """CPU seconds of the thread; 0 before it runs, where threads have no clocks, and after its end."""
        if self._clock is None:
            return 0.0
        with suppress(OSError):
            return time.clock_gettime(self._clock)
        return 0.0


def _trip(origin: AnswerOrigin) -> Observation:
    unit = int.from_bytes(blake2b(origin.session.encode(), digest_size=8).digest())
    return Observation(revision=origin.revision, arm=origin.arm, unit=unit, metric="trip", value=1.0, at=time.time())


class ForbiddenAction(Refusal):
    """An action that may not leave, with none in its place. `may_move`: the stable arm may know a better one."""

    def __init__(self, rule: str, *, may_move: bool) -> None:
        super().__init__(RefusalCause.FORBIDDEN, f"Rule {rule!r} allows no such action here.", where="observation")
        self.may_move = may_move
