"""The loop around a coordinator's decisions: look, decide, act; tell what people should know."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from loomrl.artifacts import open_artifacts
from loomrl.config import Experiment, HubConfig
from loomrl.config.loop import LoopExperiment, RayPlace
from loomrl.coordinator.alarm import alarms, record_alarms
from loomrl.coordinator.decision import (
    BeginRelease,
    LoopRecord,
    Move,
    Prepare,
    QueueJob,
    Step,
    WorkState,
    decide,
    fail,
    is_late,
    last_moment,
    work_of,
)
from loomrl.coordinator.fault import fault_from
from loomrl.coordinator.job import JobPhase, TrainingJob
from loomrl.coordinator.ledger import ask_for, move
from loomrl.coordinator.report import after, daily, find_report, keep, store
from loomrl.errors import ClusterError, ConfigError, LoomError, StoreError
from loomrl.experiments.coordinate.look import LoopObserver
from loomrl.experiments.data import frozen
from loomrl.experiments.data import settled as with_parent
from loomrl.feedback.reward.judging import Judging, open_judging
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_endpoint_hub, open_hub
from loomrl.load import dump
from loomrl.release.ledger import COORDINATOR, draft_of, first_row
from loomrl.serving.retention.checkpoint import age_checkpoints
from loomrl.store import LoomDB, beside
from loomrl.store.db import is_there
from loomrl.store.endpoints import show_endpoint
from loomrl.store.releases import begin, next_release, read_release
from loomrl.store.runs import run_id
from loomrl.store.verdicts import VERDICTS

Say = Callable[[str], None]
EXPERIMENT = "experiment.yaml"
AGED_S = 3600.0
"""Time between two looks for checkpoints that are too old."""
REPORTED = 20
"""Latest jobs whose reports are looked for."""


class Coordinator:
    """Looks at a loop, decides, and acts. Any number may run at once, and each may be killed at any instant."""

    def __init__(
        self,
        db: LoomDB,
        plan: LoopExperiment,
        *,
        hubs: Sequence[Hub],
        judging: Judging | None = None,
        clock: Callable[[], float] = time.time,
        say: Say = print,
    ) -> None:
        self.db = db
        self.plan = plan
        self._clock = clock
        self._say = say
        self.observer = LoopObserver(db, plan, hubs, clock=clock)
        self._judging = judging
        self._artifacts = open_artifacts(plan.artifact_url)
        self._reported: set[str] = set()
        self._aged_at = float("-inf")
        self._waits: tuple[float, str] | None = None
        """Since when a release cannot begin, and why."""

    def tick(self) -> bool:
        """Judge what is new, decide, act, tell; False if there was nothing to do."""
        judged = self._judging is not None and not self._judging.round().is_idle
        record = self.observer.look()
        step = decide(self.plan, record, self._clock())
        moved = None
        if step is not None:
            moved = self._take(step, record)
        else:
            self._work(record)
        self._tell(record)
        self._age(record)
        return judged or moved is not None

    # -- steps ------------------------------------------------------------------------------------------------------

    def _take(self, step: Step, record: LoopRecord) -> TrainingJob | None:
        """The job as it is after a step; None if another coordinator was first, or it has to wait."""
        match step:
            case QueueJob():
                done = ask_for(self.db, self.plan, step.job, seen=record.position)
            case Prepare():
                done = move(self.db, self.plan, self._prepared(step.job, record))
            case BeginRelease():
                done = self._release(step)
            case Move():
                done = move(self.db, self.plan, step)
        if done is not None:
            self._say(f"{done.id[:8]} {done.phase}: {done.reason}")
        return done

    def _prepared(self, job: TrainingJob, record: LoopRecord) -> Move:
        """The job as it begins, with a frozen data set, a resolved experiment and a run; or its failure."""
        now = self._clock()
        try:
            begun = {"run": job.run} if job.run else self._frozen(job, now)
        except LoomError as error:
            return fail(self.plan, record, job, fault_from(type(error).__name__, str(error)), now)
        changes = {
            "begun_at": now,
            "host": "" if isinstance(self.plan.place, RayPlace) else self.observer.host,
            "seen": record.collected,
            "reason": f"run {begun['run']} on {begun.get('dataset', job.dataset)}",
        }
        return Move(job=job.to(JobPhase.RUNNING, at=now, **changes, **begun))

    def _frozen(self, job: TrainingJob, now: float) -> dict[str, Any]:
        chosen = self.plan.data.override(job.selection)
        if self.plan.days is not None and chosen.since is None:
            since = datetime.fromtimestamp(now - 86_400 * self.plan.days, UTC)
            chosen = chosen.override({"since": since.isoformat()})
        made = frozen(self.db, self.plan.store_url, chosen)
        training = with_parent(self.plan.training.override({**job.settings, "data.dataset": made.id}))
        return {
            "run": run_id(None, self.plan.endpoint),
            "dataset": made.id,
            "samples": made.content["sizes"]["train"],
            "experiment": training.plain,
        }

    def _release(self, step: BeginRelease) -> TrainingJob | None:
        """Begin the release in the transaction of the job's next row; None while it cannot begin."""
        job = step.job
        now = self._clock()
        name = next_release(self.db, job.endpoint)
        verdict = VERDICTS.require(self.db, step.verdict.id)
        why = f"training {job.id}"
        try:
            draft = draft_of(
                job.policy, verdict, endpoint=job.endpoint, plan=self.plan.release, who=COORDINATOR, why=why
            )
            first, change = first_row(self.db, draft, at=now)
            first = replace(first, release=name)
            released = job.to(JobPhase.RELEASING, at=now, release=name, verdict=verdict.id, reason=f"release {name}")
            done = move(
                self.db,
                self.plan,
                Move(job=released),
                beside=lambda connection: begin(connection, first, change),
            )
        except (StoreError, ConfigError) as error:
            self._waits = (self._waits[0] if self._waits else now, str(error))
            return None
        self._waits = None
        return done

    # -- work -------------------------------------------------------------------------------------------------------

    def _work(self, record: LoopRecord) -> None:
        """Have the work of the job that has begun be as its row says."""
        job = record.active
        name = None if job is None else work_of(job)
        if job is None or name is None or record.evidence.work is WorkState.AWAY:
            return
        is_ending = job.is_cancelled or is_late(self.plan, job, self._clock())
        if record.evidence.work is not (WorkState.RUNNING if is_ending else WorkState.ABSENT):
            return
        try:
            self._stop(job, name) if is_ending else self._start(job, name)
        except ClusterError as error:
            self.observer.unreachable = str(error)

    def _start(self, job: TrainingJob, name: str) -> None:
        experiment = Experiment.parse(job.experiment)
        if job.host:
            files = {EXPERIMENT: dump(experiment).encode()} if name == "train" else {}
            self.observer.local.start(f"{job.id}/{name}", self.command(job, name), files)
        elif self.observer.cluster is not None:
            self.observer.cluster.start(f"{job.id}-{name}", experiment, job.run)

    def _stop(self, job: TrainingJob, name: str) -> None:
        if job.host:
            self.observer.local.stop(f"{job.id}/{name}")
        elif self.observer.cluster is not None:
            self.observer.cluster.stop(f"{job.id}-{name}")

    def command(self, job: TrainingJob, name: str) -> list[str]:
        """The command line of a job's work, in its folder."""
        own = [sys.executable, "-P", "-m", "loomrl"]
        if name == "train":
            file = self.observer.local.place(f"{job.id}/{name}") / EXPERIMENT
            return [*own, "train", str(file), "--run", job.run, "--json"]
        against = f"production:{self.plan.endpoint}"
        store = ["--store", self.plan.store_url]
        return [*own, "gate", job.policy, "--against", against, "--suite", self.plan.suite, *store, "--json"]

    def _age(self, record: LoopRecord) -> None:
        """Delete old checkpoints of the loop's trainings."""
        now = self._clock()
        days = self.plan.checkpoint_days
        if days is None or now - self._aged_at < AGED_S:
            return
        self._aged_at = now
        runs = {job.run for job in record.jobs if job.run}
        pruned = age_checkpoints(self.db, days=days, now=now, runs=runs)
        if pruned.deleted:
            self._say(f"checkpoints older than {days:g} days, deleted: {', '.join(pruned.deleted)}")
        for run, reason in pruned.failed.items():
            self._say(f"checkpoints of {run} are not aged: {reason}")

    # -- telling ----------------------------------------------------------------------------------------------------

    def _tell(self, record: LoopRecord) -> None:
        """Alarms that have begun or ended, and the reports that are due."""
        now = self._clock()
        signs = self.observer.signs(record)
        if self._waits is not None:
            signs = replace(signs, stuck_s=now - self._waits[0], stuck_by=self._waits[1])
        for alert in record_alarms(self.db, self.plan.endpoint, alarms(self.plan.alarms, signs), at=now):
            self._say(f"ALERT {alert.name}: {alert.reason}")
        for job in [job for job in record.jobs if not job.is_open][-REPORTED:]:
            self._report_job(job)
        self._report_day(record, now)

    def _report_job(self, job: TrainingJob) -> None:
        name = f"{job.endpoint}/job-{job.id}"
        if name in self._reported:
            return
        if find_report(self.db, name) is None:
            report = after(job, plan=self.plan, verdict=self._verdict(job), release=self._passage(job), at=job.at)
            if keep(self.db, self._artifacts, name, report, at=self._clock()):
                self._say(f"report {name}: {job.phase}, {job.reason}")
        else:
            store(self.db, self._artifacts, name)
        self._reported.add(name)

    def _report_day(self, record: LoopRecord, now: float) -> None:
        if self.plan.reports.schedule is None:
            return
        moment = last_moment(self.plan.reports.schedule, now)
        name = f"{self.plan.endpoint}/{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H-%M-%S}"
        if moment <= self.observer.since or name in self._reported:
            return
        if find_report(self.db, name) is None:
            report = daily(self.plan, self.observer.day(record, at=moment))
            if keep(self.db, self._artifacts, name, report, at=now):
                self._say(f"report {name}")
        self._reported.add(name)

    def _verdict(self, job: TrainingJob) -> dict[str, Any] | None:
        if not job.verdict:
            return None
        found = VERDICTS.require(self.db, job.verdict)
        about = {"id": found.id, "outcome": found.outcome.value, "failed": found.failed_checks}
        return about | {"improvement": found.report["improvement"]}

    def _passage(self, job: TrainingJob) -> dict[str, Any] | None:
        if not job.release:
            return None
        rows = read_release(self.db, job.release)
        strategy = rows[0].content["plan"]["strategy"]
        return {"id": job.release, "state": rows[-1].state, "strategy": strategy, "reason": rows[-1].reason}


@contextmanager
def coordinating(
    db: LoomDB, plan: LoopExperiment, *, clock: Callable[[], float] = time.time, say: Say = print
) -> Iterator[Coordinator]:
    """The coordinator of a loop, with its hubs open. An endpoint that is not there is a StoreError."""
    show_endpoint(db, plan.endpoint)
    with ExitStack() as stack:
        hubs = [open_endpoint_hub(plan.store_url, name, HubConfig()) for name in plan.data.endpoints]
        agents = [beside(plan.store_url, f"agent-{name}") for name in plan.data.agents]
        hubs += [open_hub(url, HubConfig()) for url in agents if is_there(url)]
        for hub in hubs:
            stack.enter_context(hub)
        judging = None
        if plan.rewards is not None:
            judging = stack.enter_context(open_judging(db, plan.store_url, plan.endpoint, plan.rewards))
        yield Coordinator(db, plan, hubs=hubs, judging=judging, clock=clock, say=say)
