"""Failures of trainings: their code, and the job that tries again."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from loomrl.config.language import MOST_TOKENS
from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.job import Code, JobFault, JobPhase, TrainingJob, derive_id

CODES: Mapping[str, Code] = {
    "DataError": Code.DATA,
    "CorruptPayload": Code.DATA,
    "OutOfMemoryError": Code.OOM,
    "MemoryError": Code.OOM,
    "ClusterError": Code.INFRA,
    "StoreError": Code.INFRA,
    "ArtifactError": Code.INFRA,
    "HubError": Code.INFRA,
    "LeaseLost": Code.INFRA,
    "ConnectionError": Code.INFRA,
    "OSError": Code.INFRA,
    "RayActorError": Code.INFRA,
    "ActorDiedError": Code.INFRA,
    "NodeDiedError": Code.INFRA,
    "WorkerCrashedError": Code.INFRA,
    "SystemExit": Code.INFRA,
    "KeyboardInterrupt": Code.INFRA,
}
"""Class of an error → its code; others are by their text."""
MEMORY = re.compile(r"out of memory|cannot allocate memory|\bOOM\b", re.IGNORECASE)
DIVERGED = re.compile(r"not finite|\bis -?(nan|inf)\b|diverge", re.IGNORECASE)
DIED = re.compile(r"\bdied\b|connection (refused|reset|lost)|timed out", re.IGNORECASE)
SAID = re.compile(r"^loomrl: (\w+): (.*)$", re.MULTILINE)
"""The last line of a command that ended with a LoomError."""
REPR = re.compile(r"^(\w+)\((.*)\)$", re.DOTALL)
LONGEST = 2000
CHOSEN = re.compile(r"micro_batch_tokens=(\d+)")
"""The number in the message of a learner that ran out of memory."""


def fault_from(error: str, message: str) -> JobFault:
    """The fault of an error by the name of its class and its text."""
    said = f"{error}: {message}"[:LONGEST]
    if MEMORY.search(message):
        return JobFault(Code.OOM, said)
    if error in CODES:
        return JobFault(CODES[error], said)
    if DIVERGED.search(message):
        return JobFault(Code.CONVERGENCE, said)
    return JobFault(Code.INFRA if DIED.search(message) else Code.UNKNOWN, said)


def fault_in(recorded: str | None, log: str, exit_code: int | None) -> JobFault:
    """The fault of a process that ended: from its run's record, else from its log, else from its exit status.

    `exit_code` is None if its end was not seen: its machine went down, or it was killed.
    """
    found = REPR.match(recorded or "")
    if found is not None:
        return fault_from(found[1], found[2])
    told = SAID.findall(log)
    if told:
        return fault_from(*told[-1])
    if exit_code is None or exit_code < 0 or exit_code in (130, 137, 143):
        return JobFault(Code.INFRA, "its process was ended from outside, or its machine went down")
    tail = " ".join(log[-500:].split())
    return fault_from("exit", f"status {exit_code}: {tail}")


def remedy(
    plan: LoopExperiment, job: TrainingJob, fault: JobFault, *, broken: Sequence[str], now: float
) -> TrainingJob | None:
    """The job that retries; None if a retry cannot help."""
    match fault.code:
        case Code.OOM:
            return _again(job, now, settings=_halve_batch(plan, job, fault))
        case Code.CONVERGENCE:
            rate = plan.training.override(job.settings).algorithm.optimizer.learning_rate  # type: ignore[union-attr]
            return _again(job, now, settings={"algorithm.optimizer.learning_rate": rate / 2})
        case Code.DATA if broken:
            without = sorted({*job.selection.get("without", ()), *broken})
            return _again(job, now, selection={"without": without})
        case Code.INFRA:
            return _again(job, now, not_before=now + 60 * plan.patience.infra_minutes, run=job.run)
        case _:
            return None


def _halve_batch(plan: LoopExperiment, job: TrainingJob, fault: JobFault) -> dict[str, Any]:
    """Settings with half the batch and half the tokens per forward pass: those that the run chose, if it did."""
    training = plan.training.override(job.settings)
    assert training.data is not None
    tokens = training.algorithm.optimizer.micro_batch_tokens  # type: ignore[union-attr]
    chosen = CHOSEN.search(fault.message)
    if tokens == "auto":
        tokens = int(chosen[1]) if chosen else MOST_TOKENS
    return {
        "data.batch": max(1, training.data.batch // 2),
        "algorithm.optimizer.micro_batch_tokens": max(1, tokens // 2),
    }


def _again(
    job: TrainingJob,
    now: float,
    *,
    settings: Mapping[str, Any] | None = None,
    selection: Mapping[str, Any] | None = None,
    not_before: float = 0.0,
    run: str = "",
) -> TrainingJob:
    """A retry for the same reason. With `run`, it resumes from the run's last checkpoint."""
    return TrainingJob(
        id=derive_id("again", job.id),
        endpoint=job.endpoint,
        phase=JobPhase.QUEUED,
        trigger=job.trigger,
        priority=job.priority,
        asked_at=now,
        at=now,
        since=now,
        reason=f"attempt {job.attempt + 1}: {job.reason}"[:500],
        who=job.who,
        request=job.request,
        settings={**job.settings, **(settings or {})},
        selection={**job.selection, **(selection or {})},
        seen=job.seen,
        due=job.due,
        fallen=job.fallen,
        previous=job.id,
        attempt=job.attempt + 1,
        not_before=not_before,
        run=run,
        dataset=job.dataset if run else "",
        samples=job.samples if run else 0,
        experiment=job.experiment if run else {},
    )
