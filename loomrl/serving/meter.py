"""A gateway's metrics. A call that another arm answered is an error of the arm it was given to."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from loomrl.observability import family
from loomrl.observability.exposition import process_registry, text_of
from loomrl.serving.call import Usage
from loomrl.serving.dispatch import MOVABLE, ArmReplica
from loomrl.serving.refusal import Refusal, RefusalCause
from loomrl.serving.room import Room

WINDOW_S = 300.0
SLICE_S = 10.0
"""The error rate's window, and its parts."""


@dataclass(slots=True)
class _ArmMetrics:
    """The metrics of one arm, looked up once."""

    version: str
    outcomes: Mapping[str, Counter]
    errors: Counter
    latency: Histogram
    first: Histogram
    rate: Histogram
    tokens: Mapping[str, Counter]
    violating: Counter


class MeteredCall:
    """One call that is metered, from when it is given to an arm. It ends once."""

    __slots__ = ("_assigned", "_begun", "_endpoint", "_first", "_is_over", "_meter")

    def __init__(self, meter: "GatewayMeter", endpoint: str, assigned: ArmReplica) -> None:
        self._meter = meter
        self._endpoint = endpoint
        self._assigned = meter.arm(endpoint, assigned)
        self._begun = time.perf_counter()
        self._first = 0.0
        self._is_over = False

    def first(self, candidate: ArmReplica) -> None:
        """The first token is here, from this one."""
        self._first = time.perf_counter()
        self._meter.arm(self._endpoint, candidate).first.observe(self._first - self._begun)

    def note_answer(self, candidate: ArmReplica, usage: Usage | None = None) -> None:
        """The answer of this one is complete."""
        now = time.perf_counter()
        arm = self._meter.arm(self._endpoint, candidate)
        arm.latency.observe(now - self._begun)
        if usage is not None:
            arm.tokens["prompt"].inc(usage.prompt)
            arm.tokens["cached"].inc(usage.cached)
            arm.tokens["completion"].inc(usage.completion)
            if usage.completion > 1 and now > self._first:
                arm.rate.observe((usage.completion - 1) / (now - self._first))
        self._end("answered" if arm is self._assigned else "moved")

    def note_violation(self) -> None:
        """A rule of the monitor found something in the answer."""
        self._assigned.violating.inc()

    def note_failure(self, error: BaseException) -> None:
        """The call has no answer. That is the arm's fault, unless the request was wrong or a rule stopped it."""
        if isinstance(error, Refusal):
            self._end("failed" if error.cause in MOVABLE else "refused")
        else:
            self._end("failed" if isinstance(error, Exception) else "gone")

    def _end(self, outcome: str) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._assigned.outcomes[outcome].inc()
        is_error = outcome in ("moved", "failed")
        if is_error:
            self._assigned.errors.inc()
        self._meter.rates.note(self._assigned.version, is_error=is_error)


class GatewayMeter:
    """Counts what one gateway does."""

    def __init__(self) -> None:
        self.registry = process_registry()
        self.rates = ErrorRates()
        self._rooms: Mapping[str, Room] = {}
        self._arms: dict[tuple[str, str, str], _ArmMetrics] = {}
        self._calls = family.CALLS.counter(self.registry)
        self._errors = family.ERRORS.counter(self.registry)
        self._refusals = family.REFUSALS.counter(self.registry)
        self._latency = family.LATENCY.histogram(self.registry)
        self._first = family.FIRST_TOKEN.histogram(self.registry)
        self._rate = family.TOKEN_RATE.histogram(self.registry)
        self._tokens = family.TOKENS.counter(self.registry)
        self._violating = family.VIOLATING.counter(self.registry)
        self._by_cause = {cause: self._refusals.labels(cause.value) for cause in RefusalCause}
        self.registry.register(self.rates)
        self.registry.register(Rooms(lambda: self._rooms))

    def follow(self, rooms: Mapping[str, Room]) -> None:
        """Show these rooms, by endpoint."""
        self._rooms = rooms

    def begin(self, endpoint: str, options: Sequence[ArmReplica]) -> MeteredCall | None:
        """Begin a call that is given to the first of these; None without any."""
        return MeteredCall(self, endpoint, options[0]) if options else None

    def count_refusal(self, cause: RefusalCause) -> None:
        """A request was refused."""
        self._by_cause[cause].inc()

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return text_of(self.registry)

    def arm(self, endpoint: str, candidate: ArmReplica) -> _ArmMetrics:
        """The metrics of an arm."""
        version = candidate.policy.about.version
        key = (endpoint, candidate.arm.name, version)
        found = self._arms.get(key)
        if found is None:
            found = self._arms[key] = self._open(*key)
        return found

    def _open(self, endpoint: str, arm: str, version: str) -> _ArmMetrics:
        outcomes = ("answered", "moved", "failed", "refused", "gone")
        return _ArmMetrics(
            version=version,
            outcomes={each: self._calls.labels(endpoint, arm, version, each) for each in outcomes},
            errors=self._errors.labels(version),
            latency=self._latency.labels(endpoint, arm),
            first=self._first.labels(endpoint, arm),
            rate=self._rate.labels(endpoint, arm),
            tokens={each: self._tokens.labels(endpoint, arm, each) for each in ("prompt", "cached", "completion")},
            violating=self._violating.labels(endpoint, arm),
        )


class ErrorRates(Collector):
    """The share of errors by version, over the last `WINDOW_S`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slices: dict[str, deque[list[float]]] = {}
        """Version → parts of the window: when each began, its calls, its errors."""

    def note(self, version: str, *, is_error: bool) -> None:
        """One more call of a version."""
        slices = self._slices.setdefault(version, deque())
        now = self._clock()
        if not slices or now - slices[-1][0] >= SLICE_S:
            slices.append([now, 0, 0])
            while slices[0][0] < now - WINDOW_S:
                slices.popleft()
        slices[-1][1] += 1
        slices[-1][2] += is_error

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The rates; versions without a call in the window have none."""
        found = family.ERROR_RATE.measured()
        since = self._clock() - WINDOW_S
        for version, slices in list(self._slices.items()):
            recent = [each for each in list(slices) if each[0] >= since]
            if recent:
                errors = sum(each[2] for each in recent)
                calls = sum(each[1] for each in recent)
                found.add_metric([version], errors / calls)
        yield found


class Rooms(Collector):
    """How full the gateway is, by endpoint."""

    def __init__(self, rooms: Callable[[], Mapping[str, Room]]) -> None:
        self._rooms = rooms

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The rooms now."""
        busy = family.BUSY.measured()
        waiting = family.WAITING.measured()
        queue = family.QUEUE.measured()
        for endpoint, room in list(self._rooms().items()):
            busy.add_metric([endpoint], room.busy)
            waiting.add_metric([endpoint], room.waiting)
            queue.add_metric([endpoint], room.queue)
        yield from (busy, waiting, queue)
