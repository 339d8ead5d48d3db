"""Measuring: the outcomes of calls become observations of the arm that their unit was assigned to.

An endpoint is measured while more than one arm could answer, or a test runs: else there is nothing to compare.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from loomrl.errors import StoreError
from loomrl.release.guard import UNEARNED
from loomrl.safety.phrase import refuses
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.call import Gathered
from loomrl.serving.dispatch import MOVABLE, EndpointView
from loomrl.serving.refusal import Refusal
from loomrl.serving.repeat import after_commits
from loomrl.serving.split import assign_arm
from loomrl.store import LoomDB
from loomrl.store.endpoints import Endpoint, Role
from loomrl.store.feedback import FEEDBACK
from loomrl.store.observations import Observation, append_observations, unit_hash
from loomrl.types import Feedback

log = redacted_logger(__name__)
K = TypeVar("K")
V = TypeVar("V")
FLUSH_S = 0.2
SETTLE_S = 2.0
"""A unit's calls that end within this time after the first one has ended are one observation of each metric."""
MOST_UNITS = 200_000
"""Units remembered at most. A later call of a forgotten one is observed again, but not counted twice."""
MOST_WAITING = 100_000
"""Observations that wait while LoomDB cannot be written."""
NEGATIVE = 0.5
"""Feedback below this is negative: a thumb down, less than half of the stars, a correction, a session that was left."""
BAD_AT_ONCE = ("error", "violation")
"""Metrics that a unit's first 1 settles."""
WRONG = (*BAD_AT_ONCE, "empty")
"""Metrics of which a 1 in a later call went wrong."""
LATER = 5
"""Calls of a unit after it was settled that are one observation of `later`: a 1 at the first that went wrong."""
TOLD = ("reward", "success", "correct")
"""Metrics that an outcome tells; `correct` is the success by a second check."""
OUTCOMES = 4
"""Sessions of a user whose mean outcome is one observation, such as `reward_of_user`."""


@dataclass(slots=True, eq=False)
class _Unit:
    """A unit under one revision of its endpoint."""

    endpoint: str
    revision: int
    arm: str
    test: str
    unit: int
    values: dict[str, list[float]] = field(default_factory=dict)
    """Metric → values that wait to be settled."""
    settled: set[str] = field(default_factory=set)
    has_ended: bool = False
    """A call of it has ended, so that it is soon settled."""
    is_over: bool = False
    later: int = 0
    """Calls that have ended since it was settled."""
    outcomes: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metric → session → its outcome."""

    def observation(self, metric: str, value: float, at: float) -> Observation:
        return Observation(
            revision=self.revision, arm=self.arm, unit=self.unit, metric=metric, value=value, at=at, test=self.test
        )


@dataclass(frozen=True, slots=True)
class _MeasuredSession:
    """A session's key, and its unit if that is measured."""

    key: str
    unit: _Unit | None
    told: dict[str, float] = field(default_factory=dict)
    """Metric → the first that was told."""

    def unearned(self) -> float | None:
        """Success beyond what a second check finds; None until both are known."""
        if not {"success", "correct"} <= self.told.keys():
            return None
        return max(0.0, self.told["success"] - self.told["correct"])


class MeasuredCall:
    """One call that is measured, from when it is given to an arm."""

    __slots__ = ("_begun", "_is_alone", "_measures", "_unit")

    def __init__(self, measures: "Measures", unit: _Unit, *, is_alone: bool) -> None:
        self._measures = measures
        self._unit = unit
        self._is_alone = is_alone
        self._begun = time.perf_counter()

    def first(self) -> None:
        """The first token is here."""
        self._measures.note(self._unit, "first_token_s", time.perf_counter() - self._begun)

    def note_answer(self, arm: str) -> None:
        """The answer is complete. That of another arm is an error of the assigned one."""
        self._measures.note(self._unit, "latency_s", time.perf_counter() - self._begun)
        self._measures.note(self._unit, "error", float(arm != self._unit.arm))
        if self._is_alone:
            self._measures.over(self._unit)
        else:
            self._measures.end_call(self._unit)

    def note_failure(self, refusal: Refusal) -> None:
        """The call has no answer: an error of the arm, unless the request itself was wrong."""
        if refusal.cause in MOVABLE:
            self._measures.note(self._unit, "error", 1.0)
            self._measures.end_call(self._unit)

    def note_choices(self, arm: str, choices: Sequence[Gathered], *, prompt_chars: int) -> None:
        """The choices as they were drawn. Those of another arm say nothing about the assigned one."""
        if arm != self._unit.arm:
            return
        self._measures.settle(self._unit, "prompt_chars", float(prompt_chars))  # before all that depends on it
        logprobs = np.concatenate([choice.logprobs for choice in choices])
        self._measures.note(self._unit, "tokens", len(logprobs) / len(choices))
        if len(logprobs):
            self._measures.note(self._unit, "entropy", -float(logprobs.mean()))
        whole = [choice.closed for choice in choices if choice.closed is not None]
        if whole:
            empty = sum(not closed.text.strip() and not closed.calls for closed in whole)
            self._measures.note(self._unit, "empty", empty / len(whole))
            self._measures.note(self._unit, "refusal", sum(refuses(closed.text) for closed in whole) / len(whole))

    def note_verdict(self, *, violation: bool) -> None:
        """The monitor has seen the answer."""
        self._measures.note(self._unit, "violation", float(violation))


class Measures:
    """The outcomes that one gateway sees, in LoomDB every `FLUSH_S`."""

    def __init__(self, db: LoomDB, view: EndpointView, *, source: str, settle_s: float = SETTLE_S) -> None:
        self._db = db
        self._view = view
        self._source = source
        self._settle_s = settle_s
        self._units: OrderedDict[tuple[str, int, str, str], _Unit] = OrderedDict()
        self._sessions: OrderedDict[tuple[str, str], _MeasuredSession] = OrderedDict()
        self._due: deque[tuple[float, _Unit]] = deque()
        self._waiting: dict[str, list[Observation]] = {}
        self._feedback = 0
        self._follow_feedback = after_commits(db, self._join_feedback)
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def start(self) -> None:
        """Begin to write, and to join feedback."""
        self._feedback = await asyncio.to_thread(FEEDBACK.last, self._db)
        self._task = asyncio.create_task(self._keep_flushing())

    async def close(self) -> None:
        """Settle every unit, and write the rest."""
        self._closing.set()
        if self._task is not None:
            await self._task  # not cancelled: what it was writing would be lost
        for unit in self._units.values():
            self.over(unit)
        try:
            await self._flush(math.inf)
        except StoreError as error:
            log.warning("The last observations of this gateway are lost: %s", error)

    def begin(
        self, endpoint: Endpoint, unit: str, *, session: str = "", key: str = "", is_alone: bool = False
    ) -> MeasuredCall | None:
        """Begin to measure a call; None where nothing is compared.

        `is_alone`: no other call has this unit, so its answer settles it.
        """
        there = self._unit(endpoint, unit)
        if session and (name := (endpoint.name, session)) not in self._sessions:
            _remember_bounded(self._sessions, name, _MeasuredSession(key, there))
        return None if there is None else MeasuredCall(self, there, is_alone=is_alone)

    def complete(self, session: str, *, key: str | None, **told: float | None) -> bool:
        """End a session: its reward counts for the arm that it was first assigned to.

        False if no call of it came here, or it is another key's (None does not check).
        """
        found = [(name, each) for name in self._names() if (each := self._sessions.get((name, session))) is not None]
        for _, each in found:
            if key is not None and each.key != key:
                return False
            if each.unit is None:
                continue
            for metric, value in told.items():
                if value is not None:
                    each.told.setdefault(metric, value)
                    self.settle(each.unit, metric, value)
                    self._join_outcome(each.unit, metric, session, value)
            if (unearned := each.unearned()) is not None:
                self.settle(each.unit, UNEARNED, unearned)
        return bool(found)

    def _names(self) -> list[str]:
        return [each.name for each in self._view.endpoints()]

    def _unit(self, endpoint: Endpoint, unit: str) -> _Unit | None:
        tests = self._view.tests(endpoint.name)
        if not tests and sum(arm.role is not Role.SHADOW for arm in endpoint.arms) < 2:
            return None
        assignment = assign_arm(endpoint, tests, unit)
        if assignment is None:
            return None
        key = (endpoint.name, endpoint.revision, assignment.test, unit)
        there = self._units.get(key)
        if there is None:
            hashed = unit_hash(unit)
            there = _Unit(endpoint.name, endpoint.revision, assignment.arm.name, assignment.test, hashed)
            _remember_bounded(self._units, key, there)
        return there

    def note(self, unit: _Unit, metric: str, value: float) -> None:
        """One more value of a unit's metric, unless that was observed."""
        if unit.is_over:
            self._note_later(unit, metric, value)
        if metric in unit.settled:
            return
        if metric in BAD_AT_ONCE and value >= 1.0:
            unit.values.pop(metric, None)
            self.settle(unit, metric, 1.0)
        elif not unit.is_over:
            unit.values.setdefault(metric, []).append(value)

    def _note_later(self, unit: _Unit, metric: str, value: float) -> None:
        """Calls after the first ones, which alone are observed otherwise."""
        if metric not in WRONG:
            return
        if value >= 1.0:
            self.settle(unit, "later", 1.0)
        unit.later += metric == "error"  # of each call that ends
        if unit.later > LATER:  # all is known about those before this one
            self.settle(unit, "later", 0.0)

    def _join_outcome(self, unit: _Unit, metric: str, session: str, value: float) -> None:
        """A user's sessions, of which the first of a metric is an observation by itself."""
        if f"{metric}_of_user" in unit.settled:
            return
        outcomes = unit.outcomes.setdefault(metric, {})
        outcomes.setdefault(session, value)
        if len(outcomes) == OUTCOMES:
            self.settle(unit, f"{metric}_of_user", sum(outcomes.values()) / OUTCOMES)
            del unit.outcomes[metric]

    def settle(self, unit: _Unit, metric: str, value: float) -> None:
        """The unit's observation of a metric, unless there is one."""
        if metric not in unit.settled:
            unit.settled.add(metric)
            self._waiting.setdefault(unit.endpoint, []).append(unit.observation(metric, value, time.time()))

    def end_call(self, unit: _Unit) -> None:
        """A call of the unit has ended, however long it took."""
        if not unit.has_ended:
            unit.has_ended = True
            self._due.append((time.monotonic() + self._settle_s, unit))

    def over(self, unit: _Unit) -> None:
        """Settle a unit: of its later calls only the first error and the first violation are observed."""
        unit.is_over = True
        for metric, values in unit.values.items():
            self.settle(unit, metric, sum(values) / len(values))
        unit.values = {}

    # -- writing ----------------------------------------------------------------------------------------------------

    async def _keep_flushing(self) -> None:
        while not await self._is_closing():
            try:
                await self._flush(time.monotonic())
            except StoreError as error:
                log.warning("Observations wait: %s", error)
            except Exception:
                log.exception("Observations could not be written.")

    async def _is_closing(self) -> bool:
        """False after `FLUSH_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._closing.wait()
        return self._closing.is_set()

    async def _flush(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            self.over(self._due.popleft()[1])
        if self._sessions:
            await self._follow_feedback()
        waiting = self._waiting
        self._waiting = {}
        for endpoint in list(waiting):
            try:
                await asyncio.to_thread(
                    append_observations, self._db, endpoint, self._source, waiting[endpoint], time.time()
                )
            except StoreError:
                for name, kept in waiting.items():
                    self._waiting[name] = [*kept, *self._waiting.get(name, [])][-MOST_WAITING:]
                raise
            del waiting[endpoint]

    async def _join_feedback(self) -> None:
        """Feedback of sessions that were measured here."""
        for position, judgement in await asyncio.to_thread(FEEDBACK.read, self._db, after=self._feedback):
            self._feedback = position
            self.complete(judgement.trajectory, key=None, **metrics_of_feedback(judgement))


def metrics_of_feedback(judgement: Feedback) -> dict[str, float]:
    """The metrics that feedback says something about, and their values.

    A comment judges nothing. Of a choice between two answers of one session, neither says anything about its arm.
    """
    if judgement.kind == "outcome":
        return {name: float(judgement.data[name]) for name in TOLD if name in judgement.data}
    if judgement.kind == "comment" or (judgement.kind == "choice" and "trajectory" not in judgement.data):
        return {}
    return {"negative": float(judgement.value < NEGATIVE)}


def _remember_bounded(held: OrderedDict[K, V], name: K, value: V) -> None:
    held[name] = value
    if len(held) > MOST_UNITS:
        held.popitem(last=False)
