"""The training service on the bus: requests that others publish become jobs, and questions about jobs are answered."""

import time
from collections.abc import Callable

import msgspec

from loomrl.bus.bus import Bus, Delivery, Subscription
from loomrl.bus.dead import Cause, letter_from
from loomrl.bus.event import TRAINING_REQUEST
from loomrl.bus.origin import STORE, origin_of
from loomrl.coordinator.service import TrainingService
from loomrl.errors import ConfigError, EventError, IdTaken, LoomError
from loomrl.safety.redaction import PatternRedactor, Redactor

GROUP = "rl-trainers"
STATUS_REQUEST = "agent.rl.training.status.request"
AT_ONCE = 32


class Inbox:
    """Takes requests from a bus, each once. What cannot be had is put aside with its reason."""

    def __init__(
        self,
        bus: Bus,
        service: TrainingService,
        *,
        redactor: Redactor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._service = service
        self._clock = clock
        self._redactor = redactor or PatternRedactor()
        self._origin = origin_of(service.db)
        self._subscription: Subscription | None = None
        self._is_answering = False

    def step(self) -> int:
        """Take what is there; how many requests. A BusError if the bus cannot be used now."""
        if not self._is_answering:
            self._bus.answer(STATUS_REQUEST, self.answer)
            self._is_answering = True
        if self._subscription is None:
            self._subscription = self._bus.subscribe(TRAINING_REQUEST.subject, group=GROUP)
        given = self._subscription.fetch(AT_ONCE, wait_s=0.0)
        for one in given:
            self._take(one)
            self._subscription.ack([one])
        return len(given)

    def answer(self, question: bytes) -> bytes:
        """The answer to `{"job_id": …}`: the status of the job, or why there is none."""
        try:
            asked = msgspec.json.decode(question, type=dict[str, str])
            if "job_id" not in asked:
                raise EventError('the question is {"job_id": "UUID"}.')
            return msgspec.json.encode(self._service.status(asked["job_id"]))
        except msgspec.MsgspecError as error:
            return _said("EventError", f'the question is {{"job_id": "UUID"}}: {error}')
        except LoomError as error:
            return _said(type(error).__name__, str(error))

    def close(self) -> None:
        """Take no more."""
        if self._subscription is not None:
            self._subscription.close()

    def _take(self, given: Delivery) -> None:
        if given.headers.get(STORE) == self._origin:
            return
        try:
            self._service.start(given.payload, is_known=True)
        except EventError as error:
            self._put_aside(given, Cause.CONTRACT, error)
        except IdTaken as error:
            self._put_aside(given, Cause.REUSED, error)
        except ConfigError as error:
            self._put_aside(given, Cause.REFUSED, error)

    def _put_aside(self, given: Delivery, cause: Cause, error: LoomError) -> None:
        letter = letter_from(given, cause, str(error), redactor=self._redactor, at=self._clock())
        self._bus.publish([letter])


def _said(error: str, message: str) -> bytes:
    return msgspec.json.encode({"error": error, "message": message})
