"""`loomrl coordinate`: one look after another at a loop, and whatever each step needs beyond the record."""

import json
import math
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection

from loomrl.config import Experiment, HubConfig
from loomrl.config.loop import LoopExperiment, RayPlace
from loomrl.coordinator.decision import (
    Ask,
    Evidence,
    Judged,
    Move,
    Passed,
    Prepare,
    Record,
    Release,
    Step,
    Trained,
    Work,
    decide,
    failed,
    is_late,
    work_of,
)
from loomrl.coordinator.degradation import DegradationWatch
from loomrl.coordinator.fault import fault_from, fault_in
from loomrl.coordinator.job import Job, Phase
from loomrl.coordinator.ledger import ask_for, jobs_of, move
from loomrl.errors import ConfigError, DataError, LoomError, StoreError
from loomrl.experiments.data import frozen
from loomrl.experiments.data import settled as with_parent
from loomrl.experiments.gate.judge import standing_verdict
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.experiments.release import wish_for
from loomrl.experiments.work import Found, LocalWork
from loomrl.feedback.content import Contents
from loomrl.feedback.reward.judging import Judging, open_judging
from loomrl.hub.hub import Hub
from loomrl.load import dump
from loomrl.release.ledger import drafted
from loomrl.serving.archive import open_endpoint_hub
from loomrl.serving.deployment.source import source_of
from loomrl.store import LoomDB, beside
from loomrl.store.datasets import read_rows
from loomrl.store.db import is_there
from loomrl.store.endpoints import history_of, show_endpoint
from loomrl.store.notes import Notes
from loomrl.store.releases import begin_beside, next_release, read_release
from loomrl.store.rewards import reward_before
from loomrl.store.runs import RunStatus, find_run, run_id
from loomrl.store.verdicts import show_verdict
from loomrl.telemetry.sink import metrics_file, read_metrics

Say = Callable[[str], None]
MOST_REVISIONS = 100_000
JOBS = "jobs"
"""Folder of the work of jobs, beside the runs."""


class Works(Protocol):
    """Where work is done."""

    def start(self, name: str, command: Sequence[str]) -> bool:
        """Start it, once."""

    def look(self, name: str) -> Found:
        """What has become of it."""

    def stop(self, name: str) -> None:
        """Have it end."""


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
        self.db, self.plan, self._clock, self._say = db, plan, clock, say
        self._hubs, self._judging = hubs, judging
        self._host = socket.gethostname()
        self._local = LocalWork(Path(plan.training.train.folder) / JOBS)
        settings = plan.triggers.degradation
        self.watch = None if settings is None else DegradationWatch(db, plan.endpoint, settings)
        self._since = float(Notes(db).keep_first(f"loop/{plan.endpoint}", json.dumps(clock())))

    # -- one look ---------------------------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Judge what is new, decide, act; False if there was nothing to do."""
        judged = self._judging is not None and not self._judging.round().is_idle
        record = self.look()
        step = decide(self.plan, record, self._clock())
        if step is not None:
            self._take(step, record)
        else:
            self._work(record)
        return judged or step is not None

    def look(self) -> Record:
        """The loop as it is now."""
        position, jobs = jobs_of(self.db, self.plan.endpoint)
        record = Record(
            endpoint=self.plan.endpoint,
            position=position,
            jobs=jobs,
            collected=sum(
                stats.trajectories - stats.failures for hub in self._hubs for stats in hub.stats().environments.values()
            ),
            since=self._since,
            host=self._host,
        )
        if self.watch is not None:
            policy, after = self._production()
            record = replace(record, fall=self.watch.look(policy, after=after))
        if record.active is not None:
            record = replace(record, evidence=self._evidence(record.active))
        return record

    def _production(self) -> tuple[str, int]:
        """The version in production, and the position of the rewards since which it is the stable one."""
        newest, *earlier = history_of(self.db, self.plan.endpoint, limit=MOST_REVISIONS)
        since, policy = newest.created_at, newest.stable.policy
        for each in earlier:
            if each.stable.policy != policy:
                break
            since = each.created_at
        return source_of(policy, self.db).version, reward_before(self.db, self.plan.endpoint, since)

    # -- evidence ---------------------------------------------------------------------------------------------------

    def _evidence(self, job: Job) -> Evidence:
        match job.phase:
            case Phase.RUNNING:
                return self._of_training(job)
            case Phase.COMPLETED:
                return Evidence(work=self._found(job).work, verdict=self._verdict(job))
            case _:
                row = read_release(self.db, job.release)[-1]
                return Evidence(release=Passed(name=row.release, phase=row.state, reason=row.reason))

    def _found(self, job: Job) -> Found:
        name = work_of(job)
        if name is None:
            return Found(work=Work.ABSENT)
        if job.host not in ("", self._host):
            return Found(work=Work.ELSEWHERE)
        return self._works(job).look(f"{job.id}/{name}")

    def _of_training(self, job: Job) -> Evidence:
        found, run = self._found(job), find_run(self.db, job.run)
        if found.work is not Work.ENDED:
            return Evidence(work=found.work, progress=self._progress(job))
        if run is not None and run.status is RunStatus.FINISHED:
            after: Any = run.result.get("after") or {}
            kept = {"stopped": run.result.get("stopped"), "updates": run.result.get("updates"), "after": after}
            return Evidence(work=Work.ENDED, outcome=Trained(policy=str(run.result["policy"]), result=kept))
        recorded = run.result.get("error") if run is not None and run.status is RunStatus.FAILED else None
        fault = fault_in(recorded, found.log, found.exit_code)
        return Evidence(work=Work.ENDED, outcome=fault, broken=self._broken(job))

    def _progress(self, job: Job) -> float:
        training = Experiment.parse(job.experiment, recorded=True)
        assert training.data is not None
        file = metrics_file(training.train, job.run)
        rows = read_metrics(file) if file.exists() else []
        passes = math.ceil(job.samples / training.data.batch) * training.data.epochs
        return min(1.0, rows[-1]["step"] / max(1, min(passes, training.train.updates))) if rows else 0.0

    def _broken(self, job: Job) -> tuple[str, ...]:
        """The trajectories of a job's data set that are not what was frozen."""
        found = []
        with Contents(self.plan.store_url) as contents:
            for row in read_rows(self.db, job.dataset):
                try:
                    is_whole = contents.read(row) is not None
                except DataError:
                    is_whole = False
                if not is_whole:
                    found.append(row.trajectory)
        return tuple(found)

    def _verdict(self, job: Job) -> Judged | None:
        suite = resolve_suite(self.plan.suite)
        found = standing_verdict(job.policy, f"production:{self.plan.endpoint}", suite, self.db)
        if found is None:
            return None
        checks = [check["name"] for check in found.report["checks"] if check["state"] in ("failed", "error")]
        return Judged(
            id=found.id,
            outcome=found.outcome.value,
            is_allowed=found.is_allowed,
            at=found.created_at,
            why=", ".join(checks),
        )

    # -- steps ------------------------------------------------------------------------------------------------------

    def _take(self, step: Step, record: Record) -> None:
        match step:
            case Ask():
                done = ask_for(self.db, self.plan, step.job, seen=record.position)
            case Prepare():
                done = move(self.db, self.plan, self._prepared(step.job, record))
            case Release():
                done = self._release(step)
            case Move():
                done = move(self.db, self.plan, step)
        if done is not None:
            self._say(f"{done.id[:8]} {done.phase}: {done.reason}")

    def _prepared(self, job: Job, record: Record) -> Move:
        """The job as it begins: with a frozen data set, a resolved experiment and a run; or its failure."""
        now = self._clock()
        try:
            begun = {"run": job.run} if job.run else self._frozen(job, now)
        except LoomError as error:
            return failed(self.plan, record, job, fault_from(type(error).__name__, str(error)), now)
        host = "" if isinstance(self.plan.place, RayPlace) else self._host
        said = f"run {begun['run']} on {begun.get('dataset', job.dataset)}"
        return Move(
            job=job.to(Phase.RUNNING, at=now, begun_at=now, host=host, seen=record.collected, reason=said, **begun)
        )

    def _frozen(self, job: Job, now: float) -> dict[str, Any]:
        chosen = self.plan.data.override(job.selection)
        if self.plan.days is not None and chosen.since is None:
            chosen = chosen.override({"since": _moment(now - 86_400 * self.plan.days)})
        if chosen.suite is None:
            chosen = chosen.override({"suite": self.plan.suite})
        made = frozen(self.db, self.plan.store_url, chosen)
        run = run_id(None, self.plan.endpoint)
        training = self.plan.training.override({**job.settings, "data.dataset": made.id})
        training = with_parent(training.override({"name": self.plan.name}))
        return {
            "run": run,
            "dataset": made.id,
            "samples": made.content["sizes"]["train"],
            "experiment": training.plain,
        }

    def _release(self, step: Release) -> Job | None:
        """Begin the release, in the transaction of the job's next row."""
        job, now = step.job, self._clock()
        name = next_release(self.db, job.endpoint)
        why = f"training {job.id}"
        verdict = show_verdict(self.db, step.verdict.id)
        try:
            wish = wish_for(job.policy, verdict, endpoint=job.endpoint, plan=self.plan.release, why=why)
            first, change = drafted(self.db, wish, at=now)
            after = job.to(Phase.RELEASING, at=now, release=name, verdict=verdict.id, reason=f"release {name}")

            def begin(connection: Connection) -> None:
                begin_beside(connection, replace(first, release=name), change)

            return move(self.db, self.plan, Move(job=after), beside=begin)
        except (StoreError, ConfigError) as error:
            self._say(f"{job.id[:8]} waits for its release: {error}")
            time.sleep(0)
            return None

    # -- work -------------------------------------------------------------------------------------------------------

    def _work(self, record: Record) -> None:
        """Have the work of the job that has begun be as its row says."""
        job = record.active
        name = None if job is None else work_of(job)
        if job is None or name is None or record.evidence.work is Work.ELSEWHERE:
            return
        works, key = self._works(job), f"{job.id}/{name}"
        if job.is_cancelled or is_late(self.plan, job, self._clock()):
            works.stop(key)
        elif record.evidence.work is Work.ABSENT:
            works.start(key, self.command(job, name))

    def _works(self, job: Job) -> Works:
        return self._local

    def command(self, job: Job, name: str) -> list[str]:
        """The command line of a job's work."""
        own = [sys.executable, "-P", "-m", "loomrl"]
        if name == "train":
            file = self._local.place(f"{job.id}/{name}") / "experiment.yaml"
            file.write_text(dump(Experiment.parse(job.experiment, recorded=True)), encoding="utf-8")
            return [*own, "train", str(file), "--run", job.run, "--json"]
        against = f"production:{self.plan.endpoint}"
        store = ["--store", self.plan.store_url]
        return [*own, "gate", job.policy, "--against", against, "--suite", self.plan.suite, *store, "--json"]


@contextmanager
def coordinating(db: LoomDB, plan: LoopExperiment, *, say: Say = print) -> Iterator[Coordinator]:
    """The coordinator of a loop, with its hubs open. An endpoint that is not there is a StoreError."""
    show_endpoint(db, plan.endpoint)
    with ExitStack() as stack:
        hubs = [
            stack.enter_context(open_endpoint_hub(plan.store_url, name, HubConfig()))
            for name in plan.data.endpoints
            if is_there(beside(plan.store_url, f"endpoint-{name}")) or name == plan.endpoint
        ]
        judging = None
        if plan.rewards is not None:
            judging = stack.enter_context(open_judging(db, plan.store_url, plan.endpoint, plan.rewards))
        yield Coordinator(db, plan, hubs=hubs, judging=judging, say=say)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
