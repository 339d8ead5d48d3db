"""A look at a loop: everything that decisions, alarms and reports are made of."""

import json
import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from loomrl.config import Experiment, HubConfig
from loomrl.config.loop import LoopExperiment, RayPlace
from loomrl.coordinator.alarm import BusWatch, Collection, Signs, open_alarms
from loomrl.coordinator.contract import ALERT
from loomrl.coordinator.decision import (
    GateVerdict,
    JobEvidence,
    LoopRecord,
    ReleaseOutcome,
    TrainedPolicy,
    WorkState,
    work_of,
)
from loomrl.coordinator.degradation import DegradationWatch
from loomrl.coordinator.fault import fault_in
from loomrl.coordinator.job import Code, JobPhase, TrainingJob
from loomrl.coordinator.ledger import find_job, jobs_of
from loomrl.coordinator.report import MADE, DailyReport, daily, find_report
from loomrl.errors import ClusterError, ConfigError, DataError, did_you_mean, there_are
from loomrl.experiments.coordinate.work import ClusterWork, LocalWork, WorkFound
from loomrl.experiments.gate.party import Parties, Party, party_of, standing_verdict
from loomrl.experiments.gate.suite import resolve_suite
from loomrl.feedback.content import Contents
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_endpoint_hub
from loomrl.release.controller import AnchoredClock
from loomrl.serving.deployment.source import source_of
from loomrl.store import LoomDB, open_store
from loomrl.store.datasets import read_rows
from loomrl.store.endpoints import ENDPOINTS, Endpoint, show_endpoint
from loomrl.store.events import EVENTS, Event
from loomrl.store.notes import Notes
from loomrl.store.releases import read_release
from loomrl.store.rewards import reward_before, rewards_since
from loomrl.store.runs import RUNS, RunStatus
from loomrl.store.sessions import count_lost
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics

MOST_REVISIONS = 100_000
JOBS = "jobs"
"""Folder of the work of jobs, beside the runs."""
REWARD_ALARM = "reward.alarm"
DAY_S = 86_400.0
HOUR_S = 3600.0
CURRENT: Mapping[str, Metric] = {
    "reward_mean": Metric.REWARD_TOTAL,
    "loss": Metric.POLICY_LOSS,
    "kl_divergence": Metric.POLICY_KL,
    "policy_entropy": Metric.POLICY_ENTROPY,
    "learning_rate": Metric.LEARNING_RATE,
}
"""The contract's name → our metric."""


class LoopObserver:
    """Looks at a loop. What is read by cursor, it reads once."""

    def __init__(
        self, db: LoomDB, plan: LoopExperiment, hubs: Sequence[Hub], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._db = db
        self._plan = plan
        self._hubs = hubs
        self._clock = clock
        self.host = socket.gethostname()
        self.local = LocalWork(Path(plan.training.train.folder) / JOBS)
        self.cluster = ClusterWork(plan.place.address) if isinstance(plan.place, RayPlace) else None
        self.unreachable = ""
        """Why the cluster does not answer."""
        self.since = float(Notes(db).keep_first(f"loop/{plan.endpoint}", json.dumps(clock())))
        settings = plan.triggers.degradation
        self._watch = None if settings is None else DegradationWatch(db, plan.endpoint, settings)
        self._bus = BusWatch(db)
        self._collection = Collection()
        self._anchored = AnchoredClock(clock)
        self._production: tuple[int, str, float, int] = (0, "", 0.0, 0)
        """The endpoint's revision; the version in production, since when, and the rewards up to then."""
        self._trainings: dict[str, Experiment] = {}

    def look(self) -> LoopRecord:
        """The loop as it is now."""
        position, jobs = jobs_of(self._db, self._plan.endpoint)
        record = LoopRecord(
            endpoint=self._plan.endpoint,
            position=position,
            jobs=jobs,
            collected=self.collected(),
            since=self.since,
            jumped_s=self._anchored.look()[1],
            host=self.host,
        )
        if self._watch is not None:
            _, policy, _, after = self._stable()
            record = replace(record, fall=self._watch.look(policy, after=after))
        if record.active is not None:
            record = replace(record, evidence=self._evidence(record.active))
        return record

    def collected(self) -> int:
        """The trajectories since the beginning, without those that failed."""
        counts = (stats for hub in self._hubs for stats in hub.stats().environments.values())
        return sum(each.trajectories - each.failures for each in counts)

    def live(self, job: TrainingJob) -> dict[str, Any]:
        """The progress and the figures of a training now, as the contract has them."""
        rows, total = self._metrics(job)
        if not rows:
            return {}
        last = rows[-1]
        step = int(rows[-1]["step"])
        figures = {name: last.get(metric) for name, metric in CURRENT.items()}
        current = {name: value for name, value in figures.items() if value is not None and math.isfinite(value)}
        percent = round(100 * min(1.0, step / total), 2)
        left = (last["time"] - rows[0]["time"]) / max(1, len(rows) - 1) * (total - step)
        progress = {"current_step": step, "total_steps": total, "percent_complete": percent}
        return {"progress": progress | {"eta_seconds": round(max(0.0, left), 1)}, "metrics": {"current": current}}

    # -- the job that has begun -------------------------------------------------------------------------------------

    def _evidence(self, job: TrainingJob) -> JobEvidence:
        match job.phase:
            case JobPhase.RUNNING:
                return self._of_training(job)
            case JobPhase.COMPLETED:
                return JobEvidence(work=self.look_up(job).work, verdict=self._verdict(job))
            case _:
                row = read_release(self._db, job.release)[-1]
                return JobEvidence(release=ReleaseOutcome(name=row.release, phase=row.state, reason=row.reason))

    def look_up(self, job: TrainingJob) -> WorkFound:
        """The state of the work that a job needs now."""
        name = work_of(job)
        if name is None:
            return WorkFound(work=WorkState.ABSENT)
        if job.host not in ("", self.host):
            return WorkFound(work=WorkState.AWAY)
        if job.host:
            return self.local.look(f"{job.id}/{name}")
        assert self.cluster is not None, "it was begun on a cluster"
        try:
            seen = self.cluster.look(f"{job.id}-{name}")
        except ClusterError as error:
            self.unreachable = str(error)
            self.cluster.forget()
            return WorkFound(work=WorkState.AWAY)
        self.unreachable = ""
        return seen

    def _of_training(self, job: TrainingJob) -> JobEvidence:
        found = self.look_up(job)
        run = RUNS.find(self._db, job.run)
        if found.work is not WorkState.ENDED:
            rows, total = self._metrics(job)
            return JobEvidence(work=found.work, progress=min(1.0, rows[-1]["step"] / total) if rows else 0.0)
        if run is not None and run.status is RunStatus.FINISHED:
            kept = {name: run.result.get(name) for name in ("stopped", "updates", "before", "after")}
            return JobEvidence(
                work=WorkState.ENDED, outcome=TrainedPolicy(policy=str(run.result["policy"]), result=kept)
            )
        recorded = run.result.get("error") if run is not None and run.status is RunStatus.FAILED else None
        fault = fault_in(recorded, found.log, found.exit_code)
        broken = self._broken(job) if fault.code is Code.DATA else ()
        return JobEvidence(work=WorkState.ENDED, outcome=fault, broken=broken)

    def _metrics(self, job: TrainingJob) -> tuple[list[dict[str, float]], int]:
        """The lines of a training up to now, and how many it will have at most."""
        if job.id not in self._trainings:
            self._trainings = {job.id: Experiment.parse(job.experiment)}
        training = self._trainings[job.id]
        assert training.data is not None, "a loop's training has a data set"
        passes = math.ceil(job.samples / training.data.batch) * training.data.epochs
        file = metrics_file(training.train, job.run)
        return (read_metrics(file) if file.exists() else []), max(1, min(passes, training.train.updates))

    def _broken(self, job: TrainingJob) -> tuple[str, ...]:
        """The trajectories of a job's data set that are not what was frozen."""
        found = []
        with Contents(self._plan.store_url) as contents:
            for row in read_rows(self._db, job.dataset):
                try:
                    is_whole = contents.read(row) is not None
                except DataError:
                    is_whole = False
                if not is_whole:
                    found.append(row.trajectory)
        return tuple(found)

    def _verdict(self, job: TrainingJob) -> GateVerdict | None:
        (present,) = ENDPOINTS.latest(self._db, name=self._plan.endpoint, limit=1)
        suite = resolve_suite(self._plan.suite)
        baseline = party_of(source_of(present.stable.policy, self._db), suite.kind)
        found = standing_verdict(Parties(challenger=Party(job.policy), baseline=baseline), suite, self._db)
        if found is None:
            return None
        return GateVerdict(
            id=found.id,
            outcome=found.outcome.value,
            is_allowed=found.is_allowed,
            at=found.created_at,
            why=", ".join(found.failed_checks),
        )

    # -- what else is told ------------------------------------------------------------------------------------------

    def signs(self, record: LoopRecord) -> Signs:
        """The inputs of the alarms."""
        now = self._clock()
        self._bus.look()
        collected, rejected = self._collection.last_hour(record.collected, self._bus.rejected, at=now)
        lost = sum(count_lost(self._db, name, since=now - HOUR_S) for name in self._plan.data.endpoints)
        away = self._bus.away_since
        return Signs(
            collected=collected,
            lost=rejected + lost,
            bus_away_s=0.0 if away is None else now - away,
            unreachable=self.unreachable,
        )

    def day(self, record: LoopRecord, *, at: float) -> DailyReport:
        """The contents of the report of the 24 hours up to a moment."""
        judged = rewards_since(self._db, self._plan.endpoint, at - DAY_S)
        _, policy, since, _ = self._stable()
        return DailyReport(
            at=at,
            endpoint=self._plan.endpoint,
            jobs=record.jobs,
            rewards=[reward.total for reward in judged],
            confidence=math.fsum(reward.confidence for reward in judged) / len(judged) if judged else None,
            collected=record.collected,
            new=record.new,
            policy=policy,
            since=since,
            means=() if self._watch is None else tuple(self._watch.means),
            alerts=[_alert_line(event) for event in self._alerts(at - DAY_S)],
            open_alarms=open_alarms(self._db, self._plan.endpoint),
        )

    def _alerts(self, since: float) -> list[Event]:
        found: list[Event] = []
        for kind in (ALERT, REWARD_ALARM):
            after = 0
            while page := EVENTS.read(self._db, after=after, kind=kind, subject=self._plan.endpoint):
                after = page[-1][0]
                found += [event for _, event in page if event.created_at > since]
        return sorted(found, key=lambda event: event.created_at)

    def _stable(self) -> tuple[int, str, float, int]:
        """The version in production, since when it is the stable one, and the position of the rewards up to then."""
        (newest,) = ENDPOINTS.latest(self._db, name=self._plan.endpoint, limit=1)
        if newest.revision != self._production[0]:
            since = _stable_since(ENDPOINTS.latest(self._db, name=self._plan.endpoint, limit=MOST_REVISIONS))
            version = self._version(newest.stable.policy)
            after = reward_before(self._db, self._plan.endpoint, since)
            self._production = (newest.revision, version, since, after)
        return self._production

    def _version(self, policy: str) -> str:
        """The version that trajectories of a policy name; its key, if it is no longer on record."""
        try:
            return source_of(policy, self._db).version
        except ConfigError:
            return policy


def _stable_since(history: Sequence[Endpoint]) -> float:
    """The time since which the present stable policy has been it."""
    newest, *earlier = history
    since = newest.created_at
    for each in earlier:
        if each.stable.policy != newest.stable.policy:
            break
        since = each.created_at
    return since


def _alert_line(event: Event) -> tuple[float, str, str]:
    return event.created_at, str(event.data.get("alert", "reward_hacking")), str(event.data["reason"])


def report_of(plan: LoopExperiment, *, job: str | None, day: str | None) -> Mapping[str, Any]:
    """The report of a job, the newest of a day, or one of the last 24 hours as of now; which is not kept."""
    if job is not None and day is not None:
        raise ConfigError("--job and --day are both given: one report is printed.")
    with open_store(plan.store_url) as db:
        show_endpoint(db, plan.endpoint)
        if job is not None:
            return _find(db, plan, f"job-{find_job(db, job).id}")
        if day is not None:
            return _find(db, plan, day)
        with ExitStack() as stack:
            hubs = [
                stack.enter_context(open_endpoint_hub(plan.store_url, name, HubConfig()))
                for name in plan.data.endpoints
            ]
            observer = LoopObserver(db, plan, hubs)
            return daily(plan, observer.day(observer.look(), at=time.time()))


def _find(db: LoomDB, plan: LoopExperiment, wanted: str) -> Mapping[str, Any]:
    known = [name.removeprefix(f"{plan.endpoint}/") for name in _names(db) if name.startswith(f"{plan.endpoint}/")]
    fitting = [name for name in known if name.startswith(wanted)]
    if not fitting:
        raise ConfigError(f"there is no report {wanted!r:.60}. {there_are(known)}{did_you_mean(wanted, known)}")
    found = find_report(db, f"{plan.endpoint}/{fitting[-1]}")
    assert found is not None, "its name is on record"
    return found


def _names(db: LoomDB) -> list[str]:
    """The names of all reports, oldest first."""
    names: list[str] = []
    after = 0
    while page := EVENTS.read(db, after=after, kind=MADE):
        after = page[-1][0]
        names += [event.subject for _, event in page]
    return names
