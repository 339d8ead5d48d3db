"""The next step of a loop: a pure function of its settings, its record and the time.

The same record gives the same decision. What a step needs beyond the record – a frozen data set, a process,
a verdict – is done by the caller (`loomrl.experiments.coordinate`).
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from cronsim import CronSim

from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.degradation import Fall
from loomrl.coordinator.fault import remedy
from loomrl.coordinator.job import USUAL, Code, JobFault, JobPhase, Priority, TrainingJob, Trigger, derive_id
from loomrl.release.passage import SKEW_S


class WorkState(StrEnum):
    """The state of the process or cluster job that a job needs now."""

    ABSENT = "absent"
    """It was never started."""
    RUNNING = "running"
    ENDED = "ended"
    AWAY = "away"
    """Unknown: it is on another machine, or the cluster does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPolicy:
    """A training that ended well."""

    policy: str
    result: dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """A verdict of the gate on the job's policy against the one in production."""

    id: str
    outcome: str
    is_allowed: bool
    at: float
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOutcome:
    """The job's release."""

    name: str
    phase: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvidence:
    """The evidence on the active job."""

    work: WorkState = WorkState.ABSENT
    outcome: TrainedPolicy | JobFault | None = None
    """Outcome of a training that has ended."""
    broken: tuple[str, ...] = ()
    """Trajectories of its data set that have changed since it was frozen."""
    progress: float = 0.0
    verdict: GateVerdict | None = None
    release: ReleaseOutcome | None = None


NOTHING = JobEvidence()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRecord:
    """A loop at a moment."""

    endpoint: str
    position: int = 0
    """Position of the newest row about the endpoint's jobs."""
    jobs: tuple[TrainingJob, ...] = ()
    """All jobs of the endpoint, in the order in which they moved last."""
    collected: int = 0
    """Trajectories since the beginning."""
    since: float = 0.0
    """Time since which the loop is on record."""
    fall: Fall | None = None
    """The latest degradation of the policy in production."""
    evidence: JobEvidence = NOTHING
    jumped_s: float = 0.0
    """Seconds by which the clock has jumped since the last look."""
    host: str = ""
    """The deciding coordinator's machine."""

    @property
    def active(self) -> TrainingJob | None:
        """The job that has begun and is not over; there is at most one."""
        return next((job for job in self.jobs if job.has_begun), None)

    @property
    def waiting(self) -> list[TrainingJob]:
        """The queued jobs in the order in which they will start."""
        queued = [job for job in self.jobs if job.phase is JobPhase.QUEUED]
        return sorted(queued, key=lambda job: (job.priority.rank, job.asked_at, job.id))

    @property
    def new(self) -> int:
        """Trajectories since the last training was requested or began."""
        return self.collected - max((job.seen for job in self.jobs), default=0)

    @property
    def failures(self) -> int:
        """Failed jobs in a row, up to now."""
        count = 0
        for job in reversed([job for job in self.jobs if job.phase.is_over and job.phase is not JobPhase.CANCELLED]):
            if job.phase is not JobPhase.FAILED:
                break
            count += 1
        return count


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert for people."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJob:
    """Queue a new job."""

    job: TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Freeze the job's data set and resolve its experiment; the job then begins or fails."""

    job: TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRelease:
    """Begin the release of its policy, with this verdict."""

    job: TrainingJob
    verdict: GateVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Write the job's next row with everything that belongs to it."""

    job: TrainingJob
    then: TrainingJob | None = None
    """A job that retries the failed one."""
    alerts: tuple[Alert, ...] = ()


Step = QueueJob | Prepare | BeginRelease | Move


def decide(plan: LoopExperiment, record: LoopRecord, now: float) -> Step | None:
    """The next step, or None while there is nothing to do."""
    active = record.active
    if active is not None:
        step = _follow(plan, record, active, now)
        if step is not None:
            return step
    else:
        ready = [job for job in record.waiting if _is_ready(plan, job, now)]
        if ready:
            return Prepare(job=ready[0])
    asked = trigger_job(plan, record, now)
    return None if asked is None else QueueJob(job=asked)


def _is_ready(plan: LoopExperiment, job: TrainingJob, now: float) -> bool:
    """True if the job's pause is over; an impossibly long pause means that the clock went back."""
    return job.not_before <= now or job.not_before > now + 60 * plan.patience.infra_minutes + SKEW_S


# -- triggers -------------------------------------------------------------------------------------------------------


def trigger_job(plan: LoopExperiment, record: LoopRecord, now: float) -> TrainingJob | None:
    """The job that a trigger asks for."""
    return _degradation_job(record, now) or _scheduled_job(plan, record, now) or _count_job(plan, record, now)


def _degradation_job(record: LoopRecord, now: float) -> TrainingJob | None:
    fall = record.fall
    if fall is None or fall.position <= max((job.fallen for job in record.jobs), default=0):
        return None
    if any(job.trigger is Trigger.DEGRADATION for job in record.jobs if job.is_open):
        return None
    return _new_job(record, Trigger.DEGRADATION, fall.reason, now, fallen=fall.position)


def _scheduled_job(plan: LoopExperiment, record: LoopRecord, now: float) -> TrainingJob | None:
    if plan.triggers.schedule is None or record.waiting or record.new <= 0:
        return None
    moment = last_moment(plan.triggers.schedule, now)
    known = max([record.since, *(max(job.due, job.begun_at) for job in record.jobs)])
    if moment <= known:
        return None
    said = f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC by {plan.triggers.schedule!r}"
    return _new_job(record, Trigger.SCHEDULE, said, now, due=moment)


def _count_job(plan: LoopExperiment, record: LoopRecord, now: float) -> TrainingJob | None:
    least = plan.triggers.count
    if least is None or record.waiting or record.new < least:
        return None
    return _new_job(record, Trigger.COUNT, f"{record.new} new trajectories, of {least}", now)


def _new_job(
    record: LoopRecord, trigger: Trigger, reason: str, now: float, *, due: float = 0.0, fallen: int = 0
) -> TrainingJob:
    return TrainingJob(
        id=derive_id(record.endpoint, record.position, trigger.value),
        endpoint=record.endpoint,
        trigger=trigger,
        priority=USUAL.get(trigger, Priority.NORMAL),
        asked_at=now,
        at=now,
        since=now,
        reason=reason,
        seen=record.collected,
        due=due,
        fallen=fallen,
    )


def last_moment(cron: str, now: float) -> float:
    """The last moment of a schedule up to now."""
    just_after = datetime.fromtimestamp(now + 1e-6, UTC)
    return next(CronSim(cron, just_after, reverse=True)).timestamp()


# -- a job that has begun -------------------------------------------------------------------------------------------


def _follow(plan: LoopExperiment, record: LoopRecord, job: TrainingJob, now: float) -> Step | None:
    if record.jumped_s and job.phase is not JobPhase.RELEASING:
        said = f"the clock jumped by {record.jumped_s:.0f} s: the time of this work begins again"
        return Move(job=replace(job.to(job.phase, at=now, gate_at=now, reason=said), since=now))
    match job.phase:
        case JobPhase.RUNNING:
            return _follow_training(plan, record, job, now)
        case JobPhase.COMPLETED:
            return _follow_gate(plan, record, job, now)
        case _:
            return _follow_release(record, job, now)


def _follow_training(plan: LoopExperiment, record: LoopRecord, job: TrainingJob, now: float) -> Step | None:
    evidence = record.evidence
    is_gone = evidence.work is WorkState.ENDED or (evidence.work is WorkState.AWAY and is_late(plan, job, now))
    if job.is_cancelled and (is_gone or evidence.work is WorkState.ABSENT):
        return Move(job=job.to(JobPhase.CANCELLED, at=now, ended_at=now))
    if is_gone and isinstance(evidence.outcome, TrainedPolicy):
        done = evidence.outcome
        changes = {"policy": done.policy, "result": done.result, "ended_at": now, "tenths": 10}
        return Move(job=job.to(JobPhase.COMPLETED, at=now, reason=f"{done.policy} is trained", **changes))
    if is_gone:
        late = JobFault(Code.TIMEOUT, f"not over after {plan.patience.training_minutes:g} minutes")
        fault = evidence.outcome if isinstance(evidence.outcome, JobFault) and not is_late(plan, job, now) else late
        return fail(plan, record, job, fault, now)
    tenths = int(10 * evidence.progress + 1e-9)
    if tenths > job.tenths:
        return Move(job=job.to(JobPhase.RUNNING, at=now, tenths=tenths))
    return None


def fail(plan: LoopExperiment, record: LoopRecord, job: TrainingJob, fault: JobFault, now: float) -> Move:
    """The end of a failed job, with the retry and the alerts."""
    most = plan.patience.failures
    streak = record.failures + 1
    again = None
    if job.attempt < most and streak % most:
        again = remedy(plan, job, fault, broken=record.evidence.broken, now=now)
    alerts = []
    if not streak % most:
        alerts.append(
            Alert("jobs_failed", f"{streak} trainings failed in a row, the last one by {fault.code}: {fault.message}")
        )
    elif again is None:
        alerts.append(Alert("job_failed", f"{fault.code}: {fault.message}"))
    ended = job.to(JobPhase.FAILED, at=now, fault=fault, ended_at=now, reason=f"{fault.code}: {fault.message}"[:500])
    return Move(job=ended, then=again, alerts=tuple(alerts))


def _follow_gate(plan: LoopExperiment, record: LoopRecord, job: TrainingJob, now: float) -> Step | None:
    evidence = record.evidence
    verdict = record.evidence.verdict
    is_gone = evidence.work is not WorkState.RUNNING and (
        evidence.work is not WorkState.AWAY or is_late(plan, job, now)
    )
    if job.is_cancelled:
        return Move(job=job.to(JobPhase.CANCELLED, at=now)) if is_gone else None
    if verdict is not None and verdict.is_allowed:
        return BeginRelease(job=job, verdict=verdict)
    if verdict is not None and verdict.outcome == "refused":
        reason = f"verdict {verdict.id}: {verdict.why}"
        return _refuse(job, reason, now, verdict=verdict.id)
    if verdict is not None and verdict.outcome == "waiting":
        return None
    if job.gates and not is_gone:
        return None
    if job.gates and evidence.work is WorkState.ABSENT and not is_late(plan, job, now):
        return None  # it is to be started
    if job.gates >= plan.patience.failures:
        return _refuse(job, f"the gate could find nothing out, {job.gates} times", now)
    tried = {"gates": job.gates + 1, "gate_at": now, "host": record.host}
    return Move(job=job.to(JobPhase.COMPLETED, at=now, **tried))


def _refuse(job: TrainingJob, reason: str, now: float, *, verdict: str = "") -> Move:
    ended = job.to(JobPhase.REFUSED, at=now, reason=reason, verdict=verdict)
    return Move(job=ended, alerts=(Alert("validation_failed", f"{job.policy}: {reason}"),))


def _follow_release(record: LoopRecord, job: TrainingJob, now: float) -> Step | None:
    passed = record.evidence.release
    if passed is None or passed.phase == "open":
        return None
    if passed.phase == "done":
        return Move(job=job.to(JobPhase.DONE, at=now, reason=passed.reason))
    name = "rollback" if passed.phase == "rolled_back" else "release_ended"
    alert = Alert(name, f"release {passed.name} of {job.policy} {passed.phase}: {passed.reason}")
    return Move(job=job.to(JobPhase.BACK, at=now, reason=f"{passed.phase}: {passed.reason}"), alerts=(alert,))


# -- work -----------------------------------------------------------------------------------------------------------


def is_late(plan: LoopExperiment, job: TrainingJob, now: float) -> bool:
    """True if the job's present work has had its time."""
    if job.phase is JobPhase.RUNNING:
        return now > job.since + 60 * plan.patience.training_minutes
    return now > job.gate_at + 60 * plan.patience.gate_minutes


def work_of(job: TrainingJob) -> str | None:
    """The name of the work that a job needs now; None if it needs none."""
    if job.phase is JobPhase.RUNNING:
        return "train"
    if job.phase is JobPhase.COMPLETED and job.gates:
        return f"gate-{job.gates}"
    return None
