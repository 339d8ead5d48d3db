"""The training service of the contract: its questions, answered from the record."""

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from loomrl.bus.event import TRAINING_REQUEST
from loomrl.bus.outgoing import deployed_event, is_told, iso, status_event
from loomrl.bus.record import deployment_on_record
from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.job import Job, Phase
from loomrl.coordinator.ledger import ask_for, cancel, find_job
from loomrl.coordinator.request import job_from
from loomrl.coordinator.telling import status_of
from loomrl.errors import ConfigError, EventError, IdTaken, LoomError, StoreError, unknown
from loomrl.store import LoomDB
from loomrl.store.deployments import DEPLOYMENTS
from loomrl.store.endpoints import show_endpoint
from loomrl.store.events import Event
from loomrl.store.trainings import list_trainings

STATUSES: Mapping[str, tuple[str, ...]] = {
    status: tuple(phase.value for phase in Phase if phase.status == status)
    for status in ("queued", "running", "completed", "failed", "cancelled")
}
MOST = 1000
Answer = dict[str, Any]


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
    live: Callable[[Job], Answer] = lambda job: {}
    """What is known of a running training beside its row: parts of a status."""
    clock: Callable[[], float] = time.time

    def health(self) -> Answer:
        """That the record can be read."""
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
        return self._told(self._job(id))

    def cancel(self, id: str, *, who: str, why: str = "") -> Answer:
        """Have a training end."""
        job = self._job(id)
        try:
            return self._told(cancel(self.db, job.id, who=who, why=why, at=self.clock()))
        except ConfigError as error:
            raise JobOver(str(error)) from None

    def jobs(self, *, status: str | None = None, limit: int = 50, since: str | None = None) -> Answer:
        """The latest trainings of the endpoint, latest moved first."""
        if status is not None and status not in STATUSES:
            raise ConfigError(unknown("status", status, STATUSES))
        found = list_trainings(
            self.db,
            endpoint=self.plan.endpoint,
            states=None if status is None else STATUSES[status],
            since=_seconds("since", since),
            limit=_limit(limit),
        )
        return {"jobs": [self._told(Job.of(row)) for row in found]}

    def models(self, *, deployed_since: str | None = None, limit: int = 50) -> Answer:
        """The latest deployments of the endpoint, as `agent.rl.model.deployed.v1` has them, newest first."""
        since = _seconds("deployed_since", deployed_since) or 0.0
        told = [
            deployed_event(**deployment_on_record(self.db, Event(kind="", subject=one.id, created_at=one.created_at)))
            for one in DEPLOYMENTS.latest(self.db, endpoint=self.plan.endpoint, limit=MOST)
            if one.created_at >= since and is_told({"stage": one.stage.value, "share": one.share})
        ]
        return {"models": told[: _limit(limit)]}

    def _job(self, id: str) -> Job:
        try:
            return find_job(self.db, str(uuid.UUID(id)))
        except (ValueError, StoreError):
            raise NoSuchJob(f"job_id={id!r:.100} is unknown: GET /jobs lists those there are.") from None

    def _told(self, job: Job) -> Answer:
        said = status_of(job) | (self.live(job) if job.phase is Phase.RUNNING else {})
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


def _limit(limit: int) -> int:
    if not 1 <= limit <= MOST:
        raise ConfigError(f"limit={limit}: 1 to {MOST}.")
    return limit


def _seconds(name: str, text: str | None) -> float | None:
    """A time, as ISO 8601 or in Unix seconds."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{name}={text!r:.60}: not a time. Write 2026-01-31T12:00:00Z, or Unix seconds.") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
