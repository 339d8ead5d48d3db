"""A demonstration of the loop: feedback, the versions trained from it, and the decisions of gate and release."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from loomrl.config.loop import LoopExperiment
from loomrl.coordinator.job import JobPhase, TrainingJob
from loomrl.coordinator.ledger import jobs_of
from loomrl.evaluation.report import Report, Score
from loomrl.experiments.evaluate import evaluate_policies
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.experiments.loop.crowd import Answered, Crowd, Honesty, Manner
from loomrl.experiments.loop.production import RUN, Production, ProductionError
from loomrl.gym.task_mixture import open_task_mixture
from loomrl.store import LoomDB, open_store
from loomrl.store.datasets import read_rows
from loomrl.store.endpoints import ENDPOINTS, show_endpoint
from loomrl.store.forgettings import spoken
from loomrl.store.runs import POLICIES
from loomrl.store.sessions import opt_out, person_hash, sessions_of
from loomrl.types import Stage

LEVEL = 2
TEMPERATURE = 1.0
"""Sampling temperature in production."""
PATIENCE_S = 1800.0
"""Time limit of a chapter."""
PEOPLE = 1000
AGAIN = ("improvement=null", "regression.margin=0.25")
"""Changes to the gate's suite for a version without a person: what it replaces goes in any case, and what else there is
learnt from fewer people."""
AT_WORK = (JobPhase.RUNNING, JobPhase.COMPLETED)
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
class Departure:
    """A person who was forgotten."""

    person: str
    sessions: int
    at: float
    seconds: float
    stable: str
    """The version in production afterwards."""
    certificate: Mapping[str, Any]


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
    departure: Departure | None = None
    verification: Mapping[str, Any] = field(default_factory=dict)
    """The report of `loomrl verify` on the bundle of the version in production at the end."""

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
        outsiders = [f"person-{number}" for number in range(PEOPLE) if crowd.is_opted_out(number, Manner())]
        opt_out(db, plan.endpoint, outsiders, at=time.time())
        say(f"people talk to {url}; {len(outsiders)} of 1,000 opted out")
        for chapter in chapters:
            asyncio.run(_happen(production, plan, chapter, crowd, db, say))
        jobs = _over(db, plan.endpoint)
        learnt = [job.policy for job in jobs if job.phase is JobPhase.DONE] or [job.policy for job in jobs]
        departure = forget_one(production, plan, learnt, db, say)
        honesties = [chapter.manner.honesty for chapter in chapters for _ in range(chapter.proposals)]
        proposals = [_proposal(db, job, each) for job, each in zip(jobs, honesties, strict=False)]
        policies = [f"{RUN}/1", *(each.policy for each in proposals if each.phase == JobPhase.DONE)]
        policies = [each for each in policies if POLICIES.require(db, each).stage is not Stage.FORGOTTEN]
        stable = show_endpoint(db, plan.endpoint).stable.policy
        policies += [stable] * (stable not in policies)
    say(f"a second process verifies {stable}")
    verification = verify_elsewhere(production, stable)
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
        departure=departure,
        verification=verification,
    )


def forget_one(
    production: Production, plan: LoopExperiment, policies: Sequence[str], db: LoomDB, say: Say
) -> Departure | None:
    """Have a person forgotten whose sessions the last of these versions learnt from, in weights too."""
    person = find_person(db, plan.endpoint, [_learnt(db, policy) for policy in policies])
    if person is None:
        return None
    sessions = spoken(db, plan.endpoint, [person])
    suite = production.folder / "again.json"
    suite.write_text(resolve_suite(plan.suite, AGAIN).model_dump_json())
    key = production.folder / "operator.pem"
    key.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    say(f"{person} asks to be forgotten: {len(sessions)} sessions, {policies[-1]} learnt from them")
    began = time.time()
    told = production.command(
        "people", "forget", person, "--endpoint", plan.endpoint, "--weights",
        "--key", str(key), "--suite", str(suite), "--strategy", "immediate",
    )  # fmt: skip
    return Departure(
        person=person,
        sessions=len(sessions),
        at=began,
        seconds=time.time() - began,
        stable=show_endpoint(db, plan.endpoint).stable.policy,
        certificate=told["certificate"],
    )


def find_person(db: LoomDB, endpoint: str, learnt: Sequence[set[str]]) -> str | None:
    """A person whom the last of these versions learnt from, and if there is one, none of the others.

    `learnt`: the sessions behind each version, the earliest version first.
    """
    if not learnt:
        return None
    before = set().union(*learnt[:-1])
    found = None
    for name in (f"person-{number}" for number in range(PEOPLE)):
        own = spoken(db, endpoint, [name])
        if own & learnt[-1] and not own & before:
            return name
        if own & learnt[-1]:
            found = found or name
    return found


def _learnt(db: LoomDB, policy: str) -> set[str]:
    """The sessions that a version's run learnt from."""
    return {row.trajectory for row in read_rows(db, POLICIES.require(db, policy).data["dataset"], part="train")}


def verify_elsewhere(production: Production, policy: str) -> dict[str, Any]:
    """The report of a process that has nothing but the bundle of a version, on a twentieth of each link."""
    bundle = str(production.folder / "bundle.tar")
    production.command("policies", "export", policy, bundle, "--evidence")
    return production.command("verify", bundle)


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

    at_work = False

    def is_over() -> bool:
        nonlocal at_work
        check()
        if time.monotonic() > deadline:
            raise ProductionError(f"nothing was decided in {PATIENCE_S:g} s. Logs are in {production.folder}.")
        jobs = jobs_of(db, plan.endpoint)[1]
        at_work = any(job.phase in AT_WORK for job in jobs)
        for job in jobs:
            if known.get(job.id) is not job.phase:
                known[job.id] = job.phase
                say(f"{chapter.manner.honesty}: training {job.id[:8]} {job.phase}: {job.reason}")
        return len(_over(db, plan.endpoint)) >= enough

    with production.coordinating(plan, db) as check:
        await crowd.talk_until(_now_and_then(is_over), chapter.manner, lambda: at_work)


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
