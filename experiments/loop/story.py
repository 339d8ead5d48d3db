"""A demonstration of the loop: feedback, the versions trained from it, and the decisions of gate and release."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.job import JobPhase, TrainingJob
from loomrl.coordinator.ledger import jobs_of
from loomrl.evaluation.report import Report, Score
from loomrl.experiments.evaluate import evaluate_policies
from loomrl.experiments.loop.crowd import Answered, Crowd, Honesty, Manner
from loomrl.experiments.loop.production import RUN, Production, ProductionError
from loomrl.gym.task_mixture import open_task_mixture
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import ENDPOINTS
from loomrl.store.sessions import opt_out, person_hash, sessions_of

LEVEL = 2
TEMPERATURE = 1.0
"""Sampling temperature in production."""
PATIENCE_S = 1800.0
"""Time limit of a chapter."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A time with people of one behaviour, until the given number of versions have been proposed and decided about."""

    manner: Manner
    proposals: int = 1
    prelude: int = 0
    """Conversations before the coordinator is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A version that was trained, and what became of it."""

    honesty: Honesty
    policy: str
    phase: str
    reason: str
    most_share: float
    """Largest share of the traffic before it was stable."""
    asked_at: float
    trained_at: float
    over_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """The record of a demonstration."""

    began: float
    ended: float
    answered: Sequence[Answered]
    proposals: Sequence[Proposal]
    reports: Sequence[Report]
    """On the same held-out tasks: of the first version, and of each that became the stable one."""
    said: int
    failed: Sequence[str]
    secrets: int
    found: Sequence[str] = field(default_factory=tuple)
    """Files with one of the secrets."""
    outsiders: int = 0
    """Recorded sessions of people who opted out."""

    @property
    def satisfied(self) -> tuple[float, float]:
        """Success of the version in production at the beginning, and at the end."""
        return _success(self.reports[0].overall), _success(self.reports[-1].overall)

    @property
    def families(self) -> dict[str, tuple[float, float]]:
        """The same for each family."""
        first, last = self.reports[0].by_family, self.reports[-1].by_family
        return {name: (_success(first[name]), _success(last[name])) for name in first}


def demonstrate(
    production: Production,
    chapters: Sequence[Chapter],
    *,
    changes: Mapping[str, Any],
    episodes: int,
    seed: int,
    say: Say,
) -> Demonstration:
    """Serve the policy RUN, and let the chapters happen one after the other."""
    plan = production.plan(dict(changes))
    began = time.time()
    with open_store(production.store_url) as db, production.serving(plan.endpoint) as url:
        mixture = open_task_mixture(production.base(seed), db)
        crowd = Crowd(url, plan.endpoint, mixture, level=LEVEL, seed=seed)
        outsiders = [f"person-{number}" for number in range(1000) if crowd.is_opted_out(number, Manner())]
        opt_out(db, plan.endpoint, outsiders, at=time.time())
        say(f"people talk to {url}; {len(outsiders)} of 1,000 opted out")
        for chapter in chapters:
            asyncio.run(_happen(production, plan, chapter, crowd, db, say))
        jobs = _over(db, plan.endpoint)
        honesties = [chapter.manner.honesty for chapter in chapters for _ in range(chapter.proposals)]
        proposals = [_proposal(db, job, each) for job, each in zip(jobs, honesties, strict=False)]
    policies = [f"{RUN}/1", *(each.policy for each in proposals if each.phase == JobPhase.DONE)]
    say(f"judging {', '.join(policies)} on {episodes} held-out tasks")
    held_out = production.base(seed).override({"evaluation.episodes": episodes, "evaluation.levels": [LEVEL]})
    result = evaluate_policies(held_out, policies, temperature=TEMPERATURE)
    with open_store(production.store_url) as db, db.read() as connection:
        hashes = [person_hash(plan.endpoint, person) for person in outsiders]
        recorded = sum(len(sessions_of(connection, plan.endpoint, each)) for each in hashes)
    return Demonstration(
        began=began,
        ended=time.time(),
        answered=crowd.answered,
        proposals=proposals,
        reports=result.reports,
        said=crowd.told,
        failed=crowd.failed,
        secrets=len(crowd.secrets),
        found=files_with(production.folder, crowd.secrets),
        outsiders=recorded,
    )


def files_with(folder: Path, secrets: Sequence[str]) -> list[str]:
    """The files below a folder that hold one of these texts."""
    wanted = [secret.encode() for secret in secrets]
    found = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = file.read_bytes()
        if any(secret in content for secret in wanted):
            found.append(str(file.relative_to(folder)))
    return found


async def _happen(
    production: Production, plan: LoopExperiment, chapter: Chapter, crowd: Crowd, db: LoomDB, say: Say
) -> None:
    """Let people talk, and a coordinator learn from them, until enough proposals are over."""
    goal = len(crowd.answered) + chapter.prelude
    await crowd.talk_until(lambda: len(crowd.answered) >= goal, chapter.manner)
    enough = len(_over(db, plan.endpoint)) + chapter.proposals
    known: dict[str, JobPhase] = {}
    deadline = time.monotonic() + PATIENCE_S

    def is_over() -> bool:
        if time.monotonic() > deadline:
            raise ProductionError(f"nothing was decided in {PATIENCE_S:g} s. Logs are in {production.folder}.")
        for job in jobs_of(db, plan.endpoint)[1]:
            if known.get(job.id) is not job.phase:
                known[job.id] = job.phase
                say(f"{chapter.manner.honesty}: training {job.id[:8]} {job.phase}: {job.reason}")
        return len(_over(db, plan.endpoint)) >= enough

    with production.coordinating(plan, db):
        await crowd.talk_until(_now_and_then(is_over), chapter.manner)


def _now_and_then(look: Callable[[], bool], pause_s: float = 0.5) -> Callable[[], bool]:
    """A cached look, repeated every `pause_s`."""
    last, said = 0.0, False

    def looked() -> bool:
        nonlocal last, said
        if time.monotonic() > last + pause_s:
            last, said = time.monotonic(), look()
        return said

    return looked


def _over(db: LoomDB, endpoint: str) -> list[TrainingJob]:
    """The jobs that made a version about which everything is decided, in order."""
    ends = (JobPhase.DONE, JobPhase.BACK, JobPhase.REFUSED)
    return sorted((job for job in jobs_of(db, endpoint)[1] if job.phase in ends), key=lambda job: job.at)


def _proposal(db: LoomDB, job: TrainingJob, honesty: Honesty) -> Proposal:
    revisions = ENDPOINTS.latest(db, name=job.endpoint, limit=1000)
    shares = [arm.share for each in revisions for arm in each.arms if arm.policy == job.policy]
    is_done = job.phase is JobPhase.DONE
    return Proposal(
        honesty=honesty,
        policy=job.policy,
        phase=job.phase,
        reason=job.reason,
        most_share=1.0 if is_done else max(shares, default=0.0),
        asked_at=job.asked_at,
        trained_at=job.begun_at or job.asked_at,
        over_at=job.at,
    )


def _success(score: Score) -> float:
    if score.success.mean is None:
        raise ProductionError("every attempt at the held-out tasks failed: nothing is known of the versions.")
    return score.success.mean
