"""A job: one training of an endpoint's policy, from the request to the end of its release. Pure data."""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from loomrl.store.trainings import TrainingRow

NAMESPACE = uuid.UUID("5b1a6f0e-9c1b-5d0c-8a8b-3f6f1f1c2a77")


class JobPhase(StrEnum):
    """The state of a job. From DONE on it is over."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    """The training is over, and its policy is in front of the gate."""
    RELEASING = "releasing"
    DONE = "done"
    """The policy is the stable one."""
    BACK = "back"
    """The release ended where it began."""
    REFUSED = "refused"
    """The gate did not let the policy pass."""
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """True for an end."""
        return not LEGAL[self]

    @property
    def status(self) -> str:
        """The word of the contract `agent.rl.training.status.v1`."""
        return (
            self.value
            if self in (JobPhase.QUEUED, JobPhase.RUNNING, JobPhase.FAILED, JobPhase.CANCELLED)
            else "completed"
        )


LEGAL: Mapping[JobPhase, frozenset[JobPhase]] = {
    JobPhase.QUEUED: frozenset({JobPhase.RUNNING, JobPhase.FAILED, JobPhase.CANCELLED}),
    JobPhase.RUNNING: frozenset({JobPhase.RUNNING, JobPhase.COMPLETED, JobPhase.FAILED, JobPhase.CANCELLED}),
    JobPhase.COMPLETED: frozenset(
        {JobPhase.COMPLETED, JobPhase.RELEASING, JobPhase.DONE, JobPhase.REFUSED, JobPhase.CANCELLED}
    ),
    JobPhase.RELEASING: frozenset({JobPhase.DONE, JobPhase.BACK}),
    JobPhase.DONE: frozenset(),
    JobPhase.BACK: frozenset(),
    JobPhase.REFUSED: frozenset(),
    JobPhase.FAILED: frozenset(),
    JobPhase.CANCELLED: frozenset(),
}
"""Phase → the phases that may follow it."""


class Trigger(StrEnum):
    """The reason of a job, by the contract's words."""

    SCHEDULE = "scheduled"
    COUNT = "threshold_reached"
    HAND = "manual"
    DEGRADATION = "performance_degradation"


class Priority(StrEnum):
    """Urgent ones go first."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"

    @property
    def rank(self) -> int:
        """0 for what goes first."""
        return [Priority.URGENT, Priority.HIGH, Priority.NORMAL, Priority.LOW].index(self)


USUAL = {Trigger.HAND: Priority.HIGH, Trigger.DEGRADATION: Priority.URGENT}
"""Trigger → its priority, if it is not the normal one."""


class Code(StrEnum):
    """The kind of a failure, by the contract's words."""

    OOM = "OOM"
    CONVERGENCE = "CONVERGENCE"
    DATA = "DATA"
    INFRA = "INFRA"
    TIMEOUT = "TIMEOUT"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class JobFault:
    """A failure."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A job as one row of its log has it."""

    id: str
    """A UUID: the contract's `training_job_id`."""
    number: int = 1
    """Number of the row."""
    endpoint: str
    phase: JobPhase = JobPhase.QUEUED
    trigger: Trigger
    priority: Priority = Priority.NORMAL
    asked_at: float
    at: float
    """Time of the row."""
    since: float
    """The phase began then."""
    reason: str = ""
    who: str = ""
    """The person who asked for it or changed it last; empty for the coordinator."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """The request in the contract's form, without id and time."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Path of a setting of the loop's training → its value in this job."""
    selection: Mapping[str, Any] = field(default_factory=dict)
    """The same for the loop's data."""
    seen: int = 0
    """Trajectories collected when it was requested or began."""
    due: float = 0.0
    """Moment of the schedule that triggered it."""
    fallen: int = 0
    """Position of the last reward of the degradation that triggered it."""
    previous: str = ""
    """The failed job that this one retries."""
    attempt: int = 1
    """Number of the attempt, from 1."""
    not_before: float = 0.0
    run: str = ""
    dataset: str = ""
    samples: int = 0
    experiment: Mapping[str, Any] = field(default_factory=dict)
    """The resolved experiment, once it has begun."""
    host: str = ""
    """The machine with its present work; empty for a cluster."""
    begun_at: float = 0.0
    ended_at: float = 0.0
    """End of the training."""
    tenths: int = 0
    """Tenths of the training that are done."""
    policy: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)
    gates: int = 0
    """Number of attempts at the gate."""
    gate_at: float = 0.0
    verdict: str = ""
    release: str = ""
    is_cancelled: bool = False
    """A person has cancelled it."""
    fault: JobFault | None = None

    def to(self, phase: JobPhase, *, at: float, **changes: Any) -> Self:
        """The job's next row."""
        assert phase in LEGAL[self.phase], f"{self.phase} → {phase}"
        since = self.since if phase is self.phase else at
        return replace(self, phase=phase, number=self.number + 1, at=at, since=since, **changes)

    @property
    def is_open(self) -> bool:
        """True until it is over."""
        return not self.phase.is_over

    @property
    def has_begun(self) -> bool:
        """True while it holds its endpoint."""
        return self.is_open and self.phase is not JobPhase.QUEUED

    def row(self) -> TrainingRow:
        """The row that stores it."""
        content = {name: value for name, value in asdict(self).items() if name not in OWN}
        return TrainingRow(
            id=self.id,
            number=self.number,
            endpoint=self.endpoint,
            state=self.phase.value,
            run=self.run,
            content=content | {"fault": None if self.fault is None else asdict(self.fault)},
            created_at=self.at,
        )

    @classmethod
    def of(cls, row: TrainingRow) -> Self:
        """The job in a row."""
        content = dict(row.content)
        fault = content.pop("fault")
        return cls(
            id=row.id,
            number=row.number,
            endpoint=row.endpoint,
            phase=JobPhase(row.state),
            run=row.run,
            at=row.created_at,
            trigger=Trigger(content.pop("trigger")),
            priority=Priority(content.pop("priority")),
            fault=None if fault is None else JobFault(Code(fault["code"]), fault["message"]),
            **content,
        )


OWN = ("id", "number", "endpoint", "phase", "run", "at", "fault")
"""Fields that have a column."""


def new_id() -> str:
    """A random id."""
    return str(uuid.uuid4())


def derive_id(*parts: object) -> str:
    """An id derived from the parts, equal for equal decisions."""
    return str(uuid.uuid5(NAMESPACE, "\0".join(map(str, parts))))
