"""Jobs on record: requested, and moved by coordinators and by people's commands."""

from dataclasses import replace

from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.contract import request_events, request_of, status_events
from loomrl.coordinator.decision import Move
from loomrl.coordinator.job import JobPhase, TrainingJob
from loomrl.errors import ConfigError, StoreError
from loomrl.store import LoomDB
from loomrl.store.endpoints import show_endpoint
from loomrl.store.trainings import Beside, advance, ask, list_trainings, read_trainings, show_log

TRIES = 20
"""Attempts at a person's command while coordinators move the job."""


def jobs_of(db: LoomDB, endpoint: str) -> tuple[int, tuple[TrainingJob, ...]]:
    """The position of the endpoint's newest row, and all its jobs in the order in which they moved last."""
    position, rows = read_trainings(db, endpoint)
    return position, tuple(TrainingJob.of(row) for row in rows)


def find_job(db: LoomDB, id: str) -> TrainingJob:
    """The job of this id, or of the only id that begins so."""
    known = [row.id for row in list_trainings(db, limit=1_000_000) if len(id) >= 4 and row.id.startswith(id)]
    return TrainingJob.of(show_log(db, known[0] if len(known) == 1 else id)[-1])


def ask_for(
    db: LoomDB, plan: LoopExperiment, job: TrainingJob, *, seen: int | None = None, is_known: bool = False
) -> TrainingJob | None:
    """Queue a job; None if the endpoint's jobs have moved on past `seen`. `is_known`: the bus has its request."""
    if not job.request:
        job = replace(job, request=request_of(plan, job, show_endpoint(db, job.endpoint).stable.policy))
    return job if ask(db, job.row(), request_events(job, is_known=is_known), seen=seen) else None


def move(db: LoomDB, plan: LoopExperiment, step: Move, *, beside: Beside | None = None) -> TrainingJob | None:
    """Store the next row of a job with everything that belongs to it; None if the job was moved meanwhile."""
    then = None
    if step.then is not None:
        base_model = show_endpoint(db, step.job.endpoint).stable.policy
        again = replace(step.then, request=request_of(plan, step.then, base_model))
        then = (again.row(), request_events(again))
    told = status_events(step.job, step.alerts)
    return step.job if advance(db, step.job.row(), told, then=then, beside=beside) else None


def cancel(db: LoomDB, id: str, *, who: str, why: str, at: float) -> TrainingJob:
    """Cancel a job: at once if it has not begun, else as soon as its work has stopped."""
    said = f"cancelled by {who}" + (f" ({why})" if why else "")
    for _ in range(TRIES):
        job = find_job(db, id)
        if job.phase is JobPhase.RELEASING:
            raise ConfigError(
                f"job {job.id}: its policy is being released ({job.release}). That ends by "
                f"`loomrl release abort {job.endpoint}`."
            )
        if not job.is_open:
            raise ConfigError(f"job {job.id} is over ({job.phase}: {job.reason}).")
        if job.is_cancelled:
            return job
        if job.phase is JobPhase.QUEUED:
            after = job.to(JobPhase.CANCELLED, at=at, reason=said, who=who, ended_at=at)
        else:
            after = job.to(job.phase, at=at, reason=said, who=who, is_cancelled=True)
        if advance(db, after.row(), status_events(after)):
            return after
    raise StoreError(f"job {id}: it moved on {TRIES} times meanwhile. Say it again.")
