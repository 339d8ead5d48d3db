"""A record with something of everything that is metered."""

import time
from contextlib import closing
from dataclasses import replace

from loomrl.bus.agent import open_agent_hub, record_agent
from loomrl.bus.outbox import Outbox
from loomrl.bus.sink import REJECTED
from loomrl.bus.stored import StoredBus
from loomrl.config import HubConfig
from loomrl.coordinator.alarm import record_alarms
from loomrl.coordinator.contract import alert_event, status_events
from loomrl.coordinator.decision import Alert
from loomrl.coordinator.job import Code, JobFault, JobPhase, TrainingJob
from loomrl.hub.open import open_endpoint_hub
from loomrl.serving.monitor.ledger import KIND as HIT
from loomrl.store import LoomDB, open_store
from loomrl.store.ab_tests import AbTest, start_test
from loomrl.store.endpoints import Arm, Role, set_endpoint
from loomrl.store.events import EVENTS, Event
from loomrl.store.feedback import append_feedback
from loomrl.store.observations import Observation, append_observations
from loomrl.store.releases import Change, ReleaseRow, advance, begin
from loomrl.store.rewards import StoredReward, store_rewards
from loomrl.store.trainings import advance as move
from loomrl.store.trainings import ask
from loomrl.store.verdicts import StoredVerdict, VerdictOutcome, record_verdict
from loomrl.telemetry.record import STARTED
from loomrl.types import Feedback, Source, Verdict
from tests.coordinator import plans
from tests.hub.hub_samples import attempt

ENDPOINT = plans.ENDPOINT
ALLOWED = Verdict(True, ())


def plant(db: LoomDB, url: str) -> None:
    """All of it."""
    serve(db)
    collect(db, url)
    judge(db, ["t-0", "t-1", "t-2"], version="run/1", total=0.7)
    train(db, "1", [JobPhase.RUNNING, JobPhase.COMPLETED, JobPhase.DONE], seconds=700.0)
    train(db, "2", [JobPhase.RUNNING, JobPhase.FAILED], seconds=30.0)
    release(db, "rolled_back")
    check(db)
    supervise(db)
    compare(db)


def serve(db: LoomDB) -> None:
    """An endpoint with two arms, whose service has begun."""
    arms = [
        Arm(name="stable", policy="run/1", share=0.9),
        Arm(name="canary", policy="run/2", share=0.1, role=Role.CANARY),
    ]
    set_endpoint(db, ENDPOINT, arms, at=1.0)
    EVENTS.append(db, [Event(kind=STARTED, subject=ENDPOINT, created_at=1.0)])


def collect(db: LoomDB, url: str, *, first: int = 0, count: int = 3) -> None:
    """Trajectories of the endpoint, and of an agent of other people's."""
    names = range(first, first + count)
    with open_endpoint_hub(url, ENDPOINT, HubConfig()) as hub:
        hub.append([attempt(f"t-{n}", environment=ENDPOINT, source=Source.PRODUCTION) for n in names])
    record_agent(db, "zero", at=1.0)
    with open_agent_hub(url, "zero", HubConfig()) as hub:
        new = [attempt(f"z-{n}", environment="zero", family="coding", source=Source.FOREIGN) for n in names]
        hub.append(new)


def judge(db: LoomDB, trajectories: list[str], *, version: str, total: float, again: int = 0) -> None:
    """Rewards of these, made by one version."""
    new = [
        StoredReward(
            id=f"{name}-{again}",
            trajectory=name,
            endpoint=ENDPOINT,
            task="t",
            total=total,
            confidence=0.5,
            content={"versions": [version], "raw": total},
            created_at=time.time(),
        )
        for name in trajectories
    ]
    store_rewards(db, new)


def train(db: LoomDB, id: str, phases: list[JobPhase], *, seconds: float, samples: int = 2000) -> None:
    """A training that goes through these phases."""
    at = time.time() - seconds
    job = plans.job(f"00000000-0000-0000-0000-{int(id):012d}", asked_at=at, at=at, since=at, request={"n": id})
    ask(db, job.row(), status_events(job))
    for phase in phases:
        job = _next(job, phase, at=at + seconds, begun_at=at, samples=samples)
        assert move(db, job.row(), status_events(job))


def _next(job: TrainingJob, phase: JobPhase, *, at: float, begun_at: float, samples: int) -> TrainingJob:
    match phase:
        case JobPhase.RUNNING:
            return job.to(phase, at=begun_at, begun_at=begun_at, samples=samples, run=f"run-{job.id[-1]}")
        case JobPhase.COMPLETED:
            return job.to(phase, at=at, ended_at=at, policy="run/2")
        case JobPhase.FAILED:
            return job.to(phase, at=at, ended_at=at, fault=JobFault(Code.OOM, "no memory"))
    return job.to(phase, at=at)


def release(db: LoomDB, ending: str) -> None:
    """A release that began and ended so."""
    row = ReleaseRow(
        release="",
        number=1,
        endpoint=ENDPOINT,
        state="open",
        revision=0,
        reason="begun",
        who="",
        content={"challenger": "run/2"},
        created_at=time.time(),
    )
    change = Change(arms=None, seen=1, verdict=ALLOWED)
    first = begin(db, row, change)
    if ending:
        over = replace(first, number=2, state=ending, revision=1, reason="errors", created_at=time.time())
        assert advance(db, over, change) is not None


def check(db: LoomDB, outcome: VerdictOutcome = VerdictOutcome.ALLOWED, *, id: str = "v-1") -> None:
    """A verdict of the gate about the second version."""
    checks = [{"name": "benchmark coding", "state": "passed", "figures": {"success": {"mean": 0.8}}}]
    verdict = StoredVerdict(
        id=id,
        policy="run/2",
        fingerprint="",
        against="run/1",
        suite="s@1",
        suite_hash="h",
        outcome=outcome,
        report={"checks": checks, "improvement": 0.1},
        created_at=time.time(),
    )
    record_verdict(db, verdict)


def supervise(db: LoomDB) -> None:
    """Feedback, hits, rejected messages, an alert, an alarm that holds, and a bus that is away."""
    append_feedback(
        db, [Feedback(id="f", trajectory="t-0", source="human", kind="thumb", value=1.0, comment="", created_at=1.0)]
    )
    hit = {"arm": "canary", "version": "run/2", "rule": "secrets", "what": "key", "then": "replace", "count": 4}
    now = time.time()
    EVENTS.append(
        db,
        [
            Event(kind=HIT, subject=ENDPOINT, data={**hit, "sessions": []}, created_at=now),
            Event(kind=REJECTED, subject="agent.rl.trajectory.v1", data={"contract": 2, "agents": 1}, created_at=now),
            alert_event(Alert("rollback", "errors"), ENDPOINT, at=now),
            Event(kind="bus.away", subject="outbox", data={"reason": "gone"}, created_at=now - 400),
        ],
    )
    record_alarms(db, ENDPOINT, [Alert("bus_away", "for 6 minutes")], at=now)


def compare(db: LoomDB) -> None:
    """A running A/B test: 30 of 40 units of one arm are glad, and 10 of 40 of the other."""
    now = time.time()
    shares = {"stable": 0.5, "canary": 0.5}
    start_test(
        db,
        AbTest(
            name="words",
            endpoint=ENDPOINT,
            layer="default",
            end=1.0,
            shares=shares,
            metric="success",
            better="higher",
            started_at=now,
        ),
    )
    told = {"revision": 1, "metric": "success", "test": "words", "at": now}
    seen = [
        Observation(**told, arm=arm, unit=2 * unit + place, value=float(unit < glad))  # type: ignore[arg-type]
        for unit in range(40)
        for place, (arm, glad) in enumerate((("stable", 30), ("canary", 10)))
    ]
    append_observations(db, ENDPOINT, "gateway", seen, at=now)


def go_on(url: str) -> None:
    """More of what is counted, and an outbox that has published it to a bus in LoomDB."""
    with open_store(url) as db, StoredBus(open_store(url)) as bus, closing(Outbox(db, url, bus)) as outbox:
        collect(db, url, first=3, count=2)
        judge(db, ["t-3", "t-4"], version="run/2", total=0.9)
        train(db, "3", [JobPhase.RUNNING, JobPhase.COMPLETED], seconds=2000.0)
        outbox.step()
