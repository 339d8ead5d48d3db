"""The training service of the contract: answered from the record, over HTTP and over the bus."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BeforeValidator, Field
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from loomrl.bus.agent import STORE, origin_of
from loomrl.bus.bus import Bus, Delivery, Subscription
from loomrl.bus.dead import Cause, letter_from
from loomrl.bus.event import TRAINING_REQUEST
from loomrl.bus.outgoing import deployment_event, deployment_on_record, is_told, iso, status_event
from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.contract import job_from, status_of
from loomrl.coordinator.job import JobPhase, TrainingJob
from loomrl.coordinator.ledger import ask_for, cancel, find_job
from loomrl.errors import ConfigError, EventError, IdTaken, LoomError, StoreError
from loomrl.http.admission import Admission
from loomrl.http.listen import Door
from loomrl.http.server import Server
from loomrl.http.site import Site, site_of
from loomrl.safety.redaction import PatternRedactor, Redactor
from loomrl.schema import Config
from loomrl.store import LoomDB
from loomrl.store.deployments import DEPLOYMENTS
from loomrl.store.endpoints import show_endpoint
from loomrl.store.events import Event
from loomrl.store.trainings import list_trainings

STATUSES: Mapping[str, tuple[str, ...]] = {
    status: tuple(phase.value for phase in JobPhase if phase.status == status)
    for status in ("queued", "running", "completed", "failed", "cancelled")
}
MOST = 1000
Answer = dict[str, Any]


def _seconds(given: object) -> float:
    """A time in Unix seconds or in ISO 8601, without a zone in UTC, as Unix seconds."""
    text = str(given)
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("not a time: write 2026-01-31T12:00:00Z or Unix seconds") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


Moment = Annotated[float, BeforeValidator(_seconds)]


class JobsQuery(Config):
    """Parameters of `GET /jobs`."""

    status: Literal["queued", "running", "completed", "failed", "cancelled"] | None = None
    limit: int = Field(50, ge=1, le=MOST)
    since: Moment | None = None


class ModelsQuery(Config):
    """Parameters of `GET /models`."""

    deployed_since: Moment = 0.0
    limit: int = Field(50, ge=1, le=MOST)


class NoSuchJob(StoreError):
    """A job that is not on record."""


class JobOver(ConfigError):
    """A job that cannot be cancelled any more."""


@dataclass(frozen=True, slots=True)
class TrainingService:
    """Answers about one loop's trainings, and takes requests for new ones."""

    db: LoomDB
    plan: LoopExperiment
    collected: Callable[[], int] = lambda: 0
    """Trajectories that were collected up to now."""
    live: Callable[[TrainingJob], Answer] = lambda job: {}
    """Parts of the status of a running training that are not in its row."""
    clock: Callable[[], float] = time.time

    def health(self) -> Answer:
        """The state of the service; a StoreError if the record cannot be read."""
        show_endpoint(self.db, self.plan.endpoint)
        return {"status": "ok", "endpoint": self.plan.endpoint, "loop": self.plan.name}

    def start(self, body: bytes, *, is_known: bool = False) -> Answer:
        """Queue a training; the same request again is no other one. An EventError or ConfigError says what is wrong.

        `is_known`: it came over the bus.
        """
        request = TRAINING_REQUEST.parse(body)
        stable = show_endpoint(self.db, self.plan.endpoint).stable.policy
        job = job_from(self.plan, request, base_model=stable, collected=self.collected(), now=self.clock())
        ask_for(self.db, self.plan, job, is_known=is_known)
        return self.status(job.id)

    def status(self, id: str) -> Answer:
        """The status of a training, as the contract has it."""
        return self._answer(self._job(id))

    def cancel(self, id: str, *, who: str, why: str = "") -> Answer:
        """Cancel a training."""
        job = self._job(id)
        try:
            return self._answer(cancel(self.db, job.id, who=who, why=why, at=self.clock()))
        except ConfigError as error:
            raise JobOver(str(error)) from None

    def jobs(self, query: JobsQuery) -> Answer:
        """The latest trainings of the endpoint, latest moved first."""
        found = list_trainings(
            self.db,
            endpoint=self.plan.endpoint,
            states=None if query.status is None else STATUSES[query.status],
            since=query.since,
            limit=query.limit,
        )
        return {"jobs": [self._answer(TrainingJob.of(row)) for row in found]}

    def models(self, query: ModelsQuery) -> Answer:
        """The latest deployments of the endpoint, as `agent.rl.model.deployed.v1` has them, newest first."""
        models = [
            deployment_event(**deployment_on_record(self.db, Event(kind="", subject=one.id, created_at=one.created_at)))
            for one in DEPLOYMENTS.latest(self.db, endpoint=self.plan.endpoint, limit=MOST)
            if one.created_at >= query.deployed_since and is_told({"stage": one.stage.value, "share": one.share})
        ]
        return {"models": models[: query.limit]}

    def _job(self, id: str) -> TrainingJob:
        try:
            return find_job(self.db, str(uuid.UUID(id)))
        except (ValueError, StoreError):
            raise NoSuchJob(f"job_id={id!r:.100} is unknown: GET /jobs lists those there are.") from None

    def _answer(self, job: TrainingJob) -> Answer:
        said = status_of(job) | (self.live(job) if job.phase is JobPhase.RUNNING else {})
        return {"job_id": job.id, **status_event(job.id, said, at=job.at), "created_at": iso(job.asked_at)}


def status_code(error: LoomError) -> int:
    """The HTTP status of an error."""
    match error:
        case NoSuchJob():
            return 404
        case JobOver():
            return 409
        case EventError():
            return 400
        case ConfigError():
            return 422
    return 409 if isinstance(error, IdTaken) else 503


MAX_BYTES = 1 << 20
Ask = Callable[[TrainingService, Request, bytes], Answer]


def create_app(service: TrainingService, *, site: Site, token: str | None, beside: Sequence[Route] = ()) -> Starlette:
    """The application that answers for a service, and for other routes `beside` its own."""
    routes = [
        Route("/health", _endpoint(service, _health), methods=["GET"]),
        Route("/training/start", _endpoint(service, _start, status=202), methods=["POST"]),
        Route("/training/{job_id}/status", _endpoint(service, _status), methods=["GET"]),
        Route("/training/{job_id}/cancel", _endpoint(service, _cancel), methods=["POST"]),
        Route("/jobs", _endpoint(service, _jobs), methods=["GET"]),
        Route("/models", _endpoint(service, _models), methods=["GET"]),
        *beside,
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Admission, site=site, token=token, max_bytes=MAX_BYTES)],
        exception_handlers={LoomError: _refuse},
    )


@contextmanager
def serve_training(service: TrainingService, door: Door, beside: Sequence[Route] = ()) -> Iterator[str]:
    """Answer behind the door, in a thread, until the context ends; its URL."""
    app = create_app(service, site=site_of(door), token=door.token, beside=beside)
    server = Server(app, door.listeners, tls=door.tls)
    thread = threading.Thread(target=server.run, name="training service", daemon=True)
    thread.start()
    try:
        yield door.url
    finally:
        server.should_exit = True
        thread.join()


def _health(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.health()


def _start(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.start(body)


def _status(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.status(request.path_params["job_id"])


def _cancel(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.cancel(request.path_params["job_id"], who="http")


def _jobs(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.jobs(JobsQuery.parse(dict(request.query_params), origin="query"))


def _models(service: TrainingService, request: Request, body: bytes) -> Answer:
    return service.models(ModelsQuery.parse(dict(request.query_params), origin="query"))


def _endpoint(service: TrainingService, ask: Ask, *, status: int = 200) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        body = await request.body()
        answer = await run_in_threadpool(ask, service, request, body)
        return JSONResponse(answer, status)

    return endpoint


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, LoomError)
    return JSONResponse({"error": type(error).__name__, "message": str(error)}, status_code(error))


GROUP = "rl-trainers"
STATUS_REQUEST = "agent.rl.training.status.request"
AT_ONCE = 32


class Inbox:
    """Takes requests from a bus, each once. Requests that are refused become dead letters with the reason."""

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
        """Take the waiting requests and return their number. A BusError if the bus cannot be used now."""
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
            return _error_answer("EventError", f'the question is {{"job_id": "UUID"}}: {error}')
        except LoomError as error:
            return _error_answer(type(error).__name__, str(error))

    def close(self) -> None:
        """Stop taking requests."""
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


def _error_answer(error: str, message: str) -> bytes:
    return msgspec.json.encode({"error": error, "message": message})
