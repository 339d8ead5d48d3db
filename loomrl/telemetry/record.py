"""The record as Prometheus reads it: the same from every process, and after every kill."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from loomrl.bus.agent import list_agents, open_agent_hub
from loomrl.bus.outbox import published
from loomrl.bus.sink import REJECTED
from loomrl.config import HubConfig
from loomrl.coordinator.alarm import BusWatch, open_alarms
from loomrl.coordinator.contract import ALERT
from loomrl.coordinator.job import JobPhase, TrainingJob
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_endpoint_hub
from loomrl.observability import family
from loomrl.observability.exposition import Route, metrics_route, targets_route
from loomrl.release.ab import AbReading, ArmResult
from loomrl.serving.monitor.ledger import KIND as HIT
from loomrl.store import LoomDB, beside
from loomrl.store.ab_tests import AbTest, list_tests
from loomrl.store.db import is_there
from loomrl.store.endpoints import Endpoint, Role, State, list_endpoints
from loomrl.store.events import EVENTS, Event
from loomrl.store.feedback import feedback_of
from loomrl.store.notes import list_notes
from loomrl.store.observations import read_observations
from loomrl.store.releases import OPEN, RELEASES, list_releases
from loomrl.store.replicas import ReplicaRole, ReplicaState, live_replicas
from loomrl.store.rewards import REWARDS, StoredReward, find_judged, newest_rewards
from loomrl.store.sessions import count_lost
from loomrl.store.trainings import list_trainings
from loomrl.store.verdicts import VERDICTS
from loomrl.telemetry.tally import Counts, Tally, counter_metric, spread
from loomrl.types import Source, Trajectory

PATIENCE_S = 2.0
"""Time for one look; observations that are left are read at the next one. A result is valid at every look."""
PAGE = 1000


@dataclass(slots=True)
class _Followed:
    reading: AbReading
    after: int = 0


class AbResults:
    """Follows the observations of running tests. One thread at a time."""

    def __init__(self, db: LoomDB) -> None:
        self._db = db
        self._followed: dict[tuple[str, float], _Followed] = {}
        """By name and beginning: a name may be used again."""

    def collect(self, now: float) -> Iterator[Metric]:
        """The results so far."""
        units = family.AB_UNITS.measured()
        mean = family.AB_MEAN.measured()
        difference = family.AB_DIFFERENCE.measured()
        running = {(test.name, test.started_at): test for test in list_tests(self._db) if test.is_running(now)}
        self._followed = {key: self._followed.get(key) or _Followed(AbReading(test)) for key, test in running.items()}
        until = time.monotonic() + PATIENCE_S
        for key, test in running.items():
            self._read(self._followed[key], test, until)
            arms = self._followed[key].reading.result().arms
            for arm in arms:
                units.add_metric([test.endpoint, test.name, arm.name], arm.units)
                for metric, bound, value in _differences(arm):
                    difference.add_metric([test.endpoint, test.name, arm.name, metric, bound], value)
            for name, metric, value in _means(arms):
                mean.add_metric([test.endpoint, test.name, name, metric], value)
        yield from (units, mean, difference)

    def _read(self, followed: _Followed, test: AbTest, until: float) -> None:
        while batch := read_observations(self._db, test.endpoint, after=followed.after, limit=PAGE):
            followed.reading.observe(each for _, each in batch)
            followed.after = batch[-1][0]
            if time.monotonic() > until:
                break


def _means(arms: Sequence[ArmResult]) -> Iterator[tuple[str, str, float]]:
    """Arm, metric and mean, as far as there are any. The first arm's stand in the findings about the others."""
    first, *others = arms
    sides = [(first.name, finding.guard.metric, finding.baseline) for finding in others[0].findings]
    sides += [(arm.name, finding.guard.metric, finding.challenger) for arm in others for finding in arm.findings]
    return ((name, metric, side.value) for name, metric, side in sides if math.isfinite(side.value))


def _differences(arm: ArmResult) -> Iterator[tuple[str, str, float]]:
    """Metric, bound and value, as far as there are any."""
    for finding in arm.findings:
        for bound, value in (("estimate", finding.difference), ("low", finding.low), ("high", finding.high)):
            if math.isfinite(value):
                yield finding.guard.metric, bound, value


SCRAPED = (ReplicaRole.GATEWAY, ReplicaRole.BUS, ReplicaRole.TRAINER)
"""Those that count by themselves. What a coordinator says is the record's, which is scraped once."""


def targets(db: LoomDB) -> list[dict[str, Any]]:
    """One group for each process that is up. Labels: `role`, `node`, `endpoint` of a gateway, `run` of a training."""
    return [
        {
            "targets": [row.address],
            "labels": {"role": row.role.value, "node": row.node}
            | ({"run": row.policy} if row.policy else {})
            | ({"endpoint": row.endpoint} if row.endpoint else {}),
        }
        for row in live_replicas(db)
        if row.role in SCRAPED and row.address and row.state is not ReplicaState.STARTING
    ]


PAGE = 1000
TRAJECTORIES = 200
WINDOW = 1000
"""Judged trajectories that means are over."""
HOUR_S = 3600.0
RELEASES_SHOWN = 50
STATUSES = ("queued", "running", "completed", "failed", "cancelled")
RELEASE_ENDS = ("started", "done", "rolled_back", "aborted", "stopped")
ALARMS = ("collection_errors", "bus_away", "training_unreachable", "release_stuck")
ALERTS = (*ALARMS, "jobs_failed", "job_failed", "validation_failed", "rollback", "release_ended", "reward_hacking")
OUTCOMES = ("allowed", "refused", "waiting", "error")
SERVING = (ReplicaRole.GATEWAY, ReplicaRole.FRONT, ReplicaRole.POLICY)
BESIDE = (ReplicaRole.BUS, ReplicaRole.TRAINER)
LOOP = "loop/"
"""Beginning of the notes of endpoints that a coordinator ever looked after."""
STARTED = "service.started"
ENDED = "service.ended"


class RecordCollector(Collector):
    """Reads LoomDB, and the hubs beside it, whenever it is asked. What cannot be read is a LoomError."""

    def __init__(self, db: LoomDB, url: str, *, clock: Callable[[], float] = time.time) -> None:
        self._db = db
        self._url = url
        self._clock = clock
        self._turn = threading.Lock()
        self._hubs: dict[str, tuple[Hub, Tally]] = {}
        self._events = Tally(db, "events", lambda after: EVENTS.read(db, after=after, limit=PAGE), _fold_events)
        self._rewards = Tally(
            db, "rewards", lambda after: REWARDS.read(db, after=after, limit=PAGE), self._fold_rewards
        )
        self._bus = BusWatch(db)
        self._ab = AbResults(db)

    def close(self) -> None:
        """Close the hubs. LoomDB is the caller's."""
        for hub, _ in self._hubs.values():
            hub.close()

    def describe(self) -> Iterator[Metric]:
        """Nothing: LoomDB is read only when scraped."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All families, as of now."""
        with self._turn:
            found = [*self._counts(), *self._trainings(), *self._serving(), *self._rewards_by_version(), *self._way()]
            found += [*self._release_ends(), *self._ab.collect(self._clock())]
        return iter(found)

    # -- counts -----------------------------------------------------------------------------------------------------

    def _counts(self) -> Iterator[Metric]:
        counts = Counts()
        for tally in (self._events, self._rewards, *(tally for _, tally in self._open_hubs())):
            counts.merge(tally.advance())
        endpoints = [each.name for each in list_endpoints(self._db)]
        yield counter_metric(counts, family.COLLECTED, [(name, "general") for name in endpoints])
        yield spread(counts, family.LENGTH)
        yield spread(counts, family.REWARD)
        yield counter_metric(counts, family.DEPLOYMENTS, [(status,) for status in RELEASE_ENDS])
        yield counter_metric(counts, family.VERDICTS, [(outcome,) for outcome in OUTCOMES])
        yield counter_metric(counts, family.ALERTED, [(name, alert) for name in endpoints for alert in ALERTS])
        yield counter_metric(counts, family.REJECTED, [("contract",)])
        yield counter_metric(counts, family.FEEDBACK, [("human", "thumb")])
        yield counter_metric(counts, family.HITS)

    def _open_hubs(self) -> Iterator[tuple[Hub, Tally]]:
        """The hubs of endpoints and of other people's agents, as far as there are any."""
        for endpoint in list_endpoints(self._db):
            name = f"endpoint-{endpoint.name}"
            if name not in self._hubs and is_there(beside(self._url, name)):
                self._add(name, open_endpoint_hub(self._url, endpoint.name, HubConfig()))
        for agent, name in list_agents(self._db).items():
            if name not in self._hubs and is_there(beside(self._url, name)):
                self._add(name, open_agent_hub(self._url, agent, HubConfig()))
        yield from self._hubs.values()

    def _add(self, name: str, hub: Hub) -> None:
        def read(after: int) -> Sequence[tuple[int, Trajectory]]:
            return list(hub.read(after, limit=TRAJECTORIES))

        self._hubs[name] = hub, Tally(self._db, f"hub/{name}", read, _fold_trajectories)

    def _read_rewards(self, after: int) -> Sequence[tuple[int, StoredReward]]:
        return REWARDS.read(self._db, after=after, limit=PAGE)

    def _fold_rewards(self, counts: Counts, page: Sequence[tuple[int, StoredReward]]) -> None:
        """The first reward of each trajectory."""
        seen = find_judged(self._db, [one.trajectory for _, one in page], position=page[0][0])
        for _, one in page:
            if one.trajectory not in seen:
                seen.add(one.trajectory)
                counts.observe(family.REWARD, one.total)

    # -- states -----------------------------------------------------------------------------------------------------

    def _trainings(self) -> Iterator[Metric]:
        newest = [TrainingJob.of(row) for row in list_trainings(self._db, limit=1_000_000)]
        reached = Counts()
        for job in newest:
            for status in _past_statuses(job):
                reached.add(family.JOBS, status)
            if job.begun_at and job.ended_at:
                reached.observe(family.DURATION, job.ended_at - job.begun_at)
            if job.samples:
                reached.observe(family.SAMPLES, job.samples)
        yield counter_metric(reached, family.JOBS, [(status,) for status in STATUSES])
        yield spread(reached, family.DURATION)
        yield spread(reached, family.SAMPLES)
        failed = family.FAILED_IN_A_ROW.measured()
        waiting = family.OPEN_JOBS.measured()
        for endpoint in sorted({each.name for each in list_endpoints(self._db)} | {job.endpoint for job in newest}):
            mine = [job for job in newest if job.endpoint == endpoint]
            failed.add_metric([endpoint], _streak(mine))
            found = Counter(job.phase.value for job in mine if job.is_open)
            for phase in (phase for phase in JobPhase if not phase.is_over):
                waiting.add_metric([endpoint, phase.value], found[phase.value])
        yield from (failed, waiting)

    def _serving(self) -> Iterator[Metric]:
        share = family.SHARE.measured()
        traffic = family.TRAFFIC.measured()
        wanted = family.WANTED.measured()
        processes = family.PROCESSES.measured()
        lost = family.UNJUDGED.measured()
        live = [row for row in live_replicas(self._db) if row.is_up]
        loops = list_notes(self._db, LOOP)
        versions = {row.policy: row.version for row in live if row.role is ReplicaRole.POLICY and row.version}
        most: dict[str, float] = {}
        there = Counter((row.role.value, row.endpoint) for row in live)
        for endpoint in self._endpoints():
            for arm in endpoint.arms:
                version = versions.get(arm.policy, arm.policy)
                share.add_metric([endpoint.name, arm.name, arm.role.value, version], arm.share)
                if arm.role is not Role.SHADOW:
                    most[version] = max(most.get(version, 0.0), 100 * arm.share)
            wanted.add_metric([endpoint.name], self._is_served(endpoint.name))
            has_loop = f"{LOOP}{endpoint.name}" in loops
            for role in (*SERVING, *([ReplicaRole.COORDINATOR] if has_loop else [])):
                there.setdefault((role.value, endpoint.name), 0)
            lost.add_metric([endpoint.name], count_lost(self._db, endpoint.name, since=self._clock() - HOUR_S))
        for role in BESIDE:
            there.setdefault((role.value, ""), 0)
        for version, percentage in most.items():
            traffic.add_metric([version], percentage)
        for (role_name, name), number in sorted(there.items()):
            processes.add_metric([role_name, name], number)
        yield from (share, traffic, wanted, processes, lost)

    def _rewards_by_version(self) -> Iterator[Metric]:
        mean = family.REWARD_MEAN.measured()
        confidence = family.CONFIDENCE.measured()
        age = family.REWARD_AGE.measured()
        by_version: dict[str, list[float]] = {}
        said: dict[tuple[str, str], list[float]] = {}
        for endpoint in self._endpoints():
            rewards = [one for _, one in newest_rewards(self._db, endpoint.name, limit=WINDOW)]
            if not rewards:
                continue
            confidence.add_metric([endpoint.name], math.fsum(one.confidence for one in rewards) / len(rewards))
            age.add_metric([endpoint.name], max(0.0, self._clock() - rewards[-1].created_at))
            version_of: dict[str, str] = {}
            for one in rewards:
                versions = one.content.get("versions", ())
                if len(versions) == 1:
                    version_of[one.trajectory] = str(versions[0])
                    by_version.setdefault(str(versions[0]), []).append(one.total)
            for given in feedback_of(self._db, list(version_of)):
                said.setdefault((version_of[given.trajectory], given.source), []).append(given.value)
        for version, totals in by_version.items():
            mean.add_metric([version], math.fsum(totals) / len(totals))
        yield from (mean, confidence, age)
        yield from _feedback(said)
        yield self._benchmarks()

    def _benchmarks(self) -> Metric:
        """By the latest verdict of each of the versions that were judged last."""
        found = family.BENCHMARK.measured()
        seen = set()
        for verdict in VERDICTS.latest(self._db, limit=100):
            for check in verdict.report.get("checks", ()):
                name = str(check["name"])
                success = check.get("figures", {}).get("success")
                if not name.startswith("benchmark ") or success is None or (verdict.policy, name) in seen:
                    continue
                seen.add((verdict.policy, name))
                found.add_metric([verdict.policy, name.removeprefix("benchmark ")], float(success["mean"]))
        return found

    def _way(self) -> Iterator[Metric]:
        """Alarms, the bus, releases."""
        alarm = family.ALARM.measured()
        open_release = family.RELEASE_AGE.measured()
        for endpoint in self._endpoints():
            holds = open_alarms(self._db, endpoint.name)
            for name in ALARMS:
                alarm.add_metric([endpoint.name, name], name in holds)
            newest = RELEASES.newest(self._db, endpoint=endpoint.name)
            is_open = newest is not None and newest.state == OPEN
            age = self._clock() - newest.created_at if is_open and newest is not None else 0.0
            open_release.add_metric([endpoint.name], max(0.0, age))
        yield from (alarm, open_release)
        self._bus.look()
        away = family.BUS_AWAY.measured()
        behind = family.BUS_BEHIND.measured()
        for process in ("outbox", "sink", "inbox"):
            since = self._bus.gone.get(process)
            away.add_metric([process], 0.0 if since is None else max(0.0, self._clock() - since))
        last = EVENTS.last(self._db)
        for place, cursor in published(self._db).items():
            behind.add_metric([place], last - cursor)
        yield from (away, behind)

    def _release_ends(self) -> Iterator[Metric]:
        """How the latest releases ended, and when."""
        found = family.RELEASED.measured()
        for row in list_releases(self._db, limit=RELEASES_SHOWN):
            if row.state != OPEN:
                version = str(row.content.get("challenger", ""))
                found.add_metric([row.release, row.endpoint, version, row.state], row.created_at)
        yield found

    def _endpoints(self) -> list[Endpoint]:
        return [each for each in list_endpoints(self._db) if each.state is not State.DELETED]

    def _is_served(self, endpoint: str) -> bool:
        """True if a service of the endpoint began and did not end in order."""
        started, ended = (EVENTS.last(self._db, kind=kind, subject=endpoint) for kind in (STARTED, ENDED))
        return started > ended


@contextmanager
def record_routes(db: LoomDB, url: str) -> Iterator[list[Route]]:
    """The routes `/metrics` and `/targets`."""
    with closing(RecordCollector(db, url)) as collector:
        registry = CollectorRegistry()
        registry.register(collector)
        yield [metrics_route(registry), targets_route(lambda: targets(db))]


def _feedback(said: Mapping[tuple[str, str], Sequence[float]]) -> Iterator[Metric]:
    """Feedback by version and source."""
    mean = family.FEEDBACK_MEAN.measured()
    count = family.FEEDBACK_COUNT.measured()
    for labels, values in said.items():
        mean.add_metric(labels, math.fsum(values) / len(values))
        count.add_metric(labels, len(values))
    yield from (mean, count)


def _fold_events(counts: Counts, page: Sequence[tuple[int, Event]]) -> None:
    for _, event in page:
        data = event.data
        match event.kind:
            case "feedback.given":
                counts.add(family.FEEDBACK, str(data["source"]), str(data["kind"]))
            case "verdict.made":
                counts.add(family.VERDICTS, str(data["outcome"]))
            case "release.moved" if (status := _status(data)) is not None:
                counts.add(family.DEPLOYMENTS, status)
            case "reward.alarm":
                counts.add(family.ALERTED, event.subject, "reward_hacking")
            case kind if kind == ALERT:
                counts.add(family.ALERTED, event.subject, str(data["alert"]))
            case kind if kind == HIT:
                named = (str(data[name]) for name in ("arm", "rule", "then"))
                counts.add(family.HITS, event.subject, *named, by=float(data["count"]))
            case kind if kind == REJECTED:
                for cause, number in data.items():
                    counts.add(family.REJECTED, str(cause), by=float(number))


def _status(moved: Any) -> str | None:
    """The event that a row of a release stands for: begun, or over."""
    if moved["number"] == 1:
        return "started"
    return str(moved["state"]) if moved["state"] != OPEN else None


def _fold_trajectories(counts: Counts, page: Sequence[tuple[int, Trajectory]]) -> None:
    for _, one in page:
        domain = "general" if one.source is Source.PRODUCTION else one.task.family
        counts.add(family.COLLECTED, one.task.environment, domain)
        steps = len(one.turns) if one.steps is None else len(one.steps.logprobs_T)
        counts.observe(family.LENGTH, steps)


def _past_statuses(job: TrainingJob) -> Iterator[str]:
    """The statuses of the contract that a job has had."""
    yield "queued"
    if job.begun_at:
        yield "running"
    if job.phase.status in ("completed", "failed", "cancelled"):
        yield job.phase.status
    if job.phase is JobPhase.CANCELLED and job.policy:
        yield "completed"  # its policy was cancelled in front of the gate


def _streak(newest_first: Sequence[TrainingJob]) -> int:
    """Failures since a training that did not fail."""
    streak = 0
    for job in (job for job in newest_first if job.phase.is_over and job.phase is not JobPhase.CANCELLED):
        if job.phase is not JobPhase.FAILED:
            break
        streak += 1
    return streak
