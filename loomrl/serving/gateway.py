"""The parts of a gateway that its routes share: endpoints, keys, record, monitor, watchers, limits."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from loomrl.observability import trace
from loomrl.safety.redaction.log import redacted_logger
from loomrl.serving.call import Gathered, Usage
from loomrl.serving.dispatch import ArmReplica, EndpointView, candidates, only_arm
from loomrl.serving.feedback.intake import FeedbackIntake
from loomrl.serving.measure import MeasuredCall, Measures
from loomrl.serving.meter import GatewayMeter, MeteredCall
from loomrl.serving.monitor.monitor import Monitor
from loomrl.serving.recorder import Recorder
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.request import Caller, CallerKeys
from loomrl.serving.room import Room
from loomrl.store.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class Observed:
    """A call from when it is given to an arm. Without watchers nothing happens."""

    measured: MeasuredCall | None = None
    metered: MeteredCall | None = None

    def first(self, candidate: ArmReplica) -> None:
        """The first token is here, from this one."""
        if self.measured is not None:
            self.measured.first()
        if self.metered is not None:
            self.metered.first(candidate)

    def note_answer(self, candidate: ArmReplica, usage: Usage | None = None) -> None:
        """The answer of this one is complete."""
        if self.measured is not None:
            self.measured.note_answer(candidate.arm.name)
        if self.metered is not None:
            self.metered.note_answer(candidate, usage)

    def note_choices(self, arm: str, choices: Sequence[Gathered], *, prompt_chars: int) -> None:
        """The choices as they were drawn."""
        if self.measured is not None:
            self.measured.note_choices(arm, choices, prompt_chars=prompt_chars)

    def note_verdict(self, *, violation: bool) -> None:
        """The monitor has seen the answer."""
        if self.measured is not None:
            self.measured.note_verdict(violation=violation)
        if self.metered is not None and violation:
            self.metered.note_violation()

    def note_failure(self, error: BaseException) -> None:
        """The call has no answer."""
        if self.measured is not None and isinstance(error, Refusal):
            self.measured.note_failure(error)
        if self.metered is not None:
            self.metered.note_failure(error)


UNSEEN = Observed()


@contextmanager
def observing(observed: Observed) -> Iterator[None]:
    """Observe a block: what it raises ends the call."""
    try:
        yield
    except BaseException as error:
        observed.note_failure(error)
        raise


log = redacted_logger(__name__)
Mode = Literal["before", "after", "off"]
MOST_LATER = 4096
"""Calls being recorded after their answer, at most; further ones wait until they are recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Limits of a gateway."""

    deadline_s: float = 120.0
    slots: int = 1024
    """Calls answered at a time."""
    queue: int = 1024
    """Calls that wait for a place."""
    max_bytes: int = 10 << 20
    unknown: Literal["refuse", "ignore"] = "refuse"
    """Fields of a request that are unknown or unsupported: refused, or left out and named in a header."""


@dataclass(kw_only=True, eq=False)
class Gateway:
    """One gateway. Mode `before` records a call before its answer ends, `after` soon after it."""

    view: EndpointView
    recorder: Recorder | None
    """None if nothing is recorded, as in mode `off`."""
    keys: CallerKeys
    mode: Mode = "before"
    rate: float = 1.0
    """Share of sessions whose acts are recorded."""
    monitor: Monitor | None = None
    measures: Measures | None = None
    meter: GatewayMeter | None = None
    intake: FeedbackIntake | None = None
    note_refusal: Callable[[str, Refusal], None] | None = None
    """Hears of every refused request of a session, by its name in the path."""
    settings: GatewaySettings = field(default_factory=GatewaySettings)
    is_ready: bool = True
    """False tells load balancers to go elsewhere; open requests go on."""
    _rooms: dict[str, Room] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.mode == "off":
            self.recorder = None
        if self.meter is not None:
            self.meter.follow(self._rooms)

    def find_endpoint(self, name: str, caller: Caller) -> Endpoint:
        """The endpoint of a name; of `ENDPOINT@ARM` with that arm alone, so that nothing is compared."""
        if caller.endpoint is not None:
            return caller.endpoint
        known = self.view.endpoints()
        name, pinned, arm = name.partition("@")
        found = known[0] if not name and len(known) == 1 else self.view.endpoint(name)
        if found is None:
            names = ", ".join(sorted(each.name for each in known)) or "none"
            raise Refusal(RefusalCause.UNKNOWN, f"There is no model {name!r:.100}. Known: {names}.", where="model")
        return only_arm(found, arm) if pinned else found

    def can_answer(self) -> bool:
        """True if a policy is up, and the gateway does not drain."""
        return self.is_ready and any(any(candidates(self.view, each, "")) for each in self.view.endpoints())

    def deadline(self) -> float:
        """The end of a call that begins now, on the event loop's clock."""
        return asyncio.get_running_loop().time() + self.settings.deadline_s

    def room(self, endpoint: Endpoint) -> Room:
        """The admission to an endpoint."""
        room = self._rooms.get(endpoint.name)
        if room is None:
            room = self._rooms[endpoint.name] = Room(slots=self.settings.slots, queue=self.settings.queue)
        return room

    def observe(
        self, endpoint: Endpoint, options: Sequence[ArmReplica], unit: str, *, is_alone: bool = False, **whose: str
    ) -> Observed:
        """Watch a call that is given to the first of these."""
        return Observed(
            None if self.measures is None else self.measures.begin(endpoint, unit, is_alone=is_alone, **whose),
            None if self.meter is None else self.meter.begin(endpoint.name, options),
        )

    async def record(self, work: Coroutine[Any, Any, None], *, deadline: float) -> None:
        """Record: durably before this returns, or in the background, as the mode says."""
        if self.mode == "after" and len(self._tasks) < MOST_LATER:
            self.run_later(log_refusal(trace_record(work)))
            return
        try:
            async with asyncio.timeout_at(deadline):
                await trace_record(work)
        except TimeoutError:
            raise Refusal(
                RefusalCause.TIMEOUT, "The answer could not be recorded in time.", retry_after_s=1.0
            ) from None

    def run_later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run this in the background to its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for all background work."""
        while self._tasks:
            await asyncio.wait(self._tasks)


async def trace_record(work: Coroutine[Any, Any, None]) -> None:
    """The work of recording, in a span of its own where the call is traced."""
    above = trace.below()
    with trace.ending(trace.begin("record", below=above) if above else trace.NOTHING):
        await work


async def log_refusal(work: Coroutine[Any, Any, None]) -> None:
    """Work of the recorder that no caller waits for."""
    try:
        await work
    except Refusal as refusal:
        log.warning("A call is not on record: %s", refusal)
