"""A coordinator's looks and steps, with work that is a line of shell."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loomrl.artifacts import open_artifacts
from loomrl.checkpoints import Checkpoints
from loomrl.config import HubConfig
from loomrl.coordinator.alarm import open_alarms
from loomrl.coordinator.contract import ALERT
from loomrl.coordinator.job import Code, JobPhase, TrainingJob
from loomrl.coordinator.ledger import jobs_of
from loomrl.coordinator.report import MADE
from loomrl.experiments.coordinate.loop import Coordinator
from loomrl.hub.hub import Hub
from loomrl.hub.open import open_endpoint_hub
from loomrl.release.ledger import latest
from loomrl.store import LoomDB, open_store
from loomrl.store.datasets import list_datasets
from loomrl.store.endpoints import Arm, Role, set_endpoint, show_endpoint
from loomrl.store.events import EVENTS
from loomrl.store.policies import record_policy
from loomrl.store.releases import list_releases
from loomrl.store.runs import RunStatus, finish_run, start_run
from loomrl.types import PolicyVersion, Source
from tests.coordinator.loop_kills import ENDPOINT, gate, run_of, settings
from tests.coordinator.test_loop_kills import prepare
from tests.hub.hub_samples import attempt
from tests.release.recorded import RecordedRun


class Shell(Coordinator):
    """A coordinator whose trainings are a line of shell."""

    line = "sleep 60"

    def command(self, job: TrainingJob, name: str) -> list[str]:
        return ["/bin/sh", "-c", self.line]


class Site:
    """A loop, and what happens around it."""

    def __init__(self, db: LoomDB, hub: Hub, folder: Path, url: str) -> None:
        self.db, self.hub, self.plan = db, hub, settings(url, folder)
        self.ahead_s = 0.0
        self.one = self.coordinator()
        hub.append([attempt(f"t-{n}", source=Source.PRODUCTION, finished_at=time.time()) for n in range(6)])

    def coordinator(self) -> Shell:
        return Shell(self.db, self.plan, hubs=[self.hub], clock=lambda: time.time() + self.ahead_s, say=lambda _: None)

    @property
    def jobs(self) -> list[TrainingJob]:
        return list(jobs_of(self.db, ENDPOINT)[1])

    def until(self, holds: Callable[[], bool], *, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, self.jobs
            self.one.tick()
            time.sleep(0.005)

    def begun(self, line: str) -> TrainingJob:
        """A job that runs this line."""
        self.one.line = line
        self.until(lambda: bool(self.jobs) and self.jobs[-1].phase is JobPhase.RUNNING)
        return self.jobs[-1]

    def finish(self, job: TrainingJob) -> str:
        """What a training leaves on record."""
        start_run(self.db, run_of(job.run))
        version = f"{job.run}/1"
        made = {"number": 1, "url": "1", "run": job.run, "algorithm": "kto", "experiment": "0" * 64}
        record_policy(self.db, PolicyVersion(id=version, **made))
        finish_run(self.db, job.run, status=RunStatus.FINISHED, finished_at=1.0, result={"policy": version})
        return version

    def names(self) -> list[str]:
        return [event.data["alert"] for _, event in EVENTS.read(self.db, kind=ALERT)]


@pytest.fixture
def site(sqlite_url: str, tmp_path: Path) -> Iterator[Site]:
    with open_store(sqlite_url) as db, open_endpoint_hub(sqlite_url, ENDPOINT, HubConfig()) as hub:
        prepare(db)
        yield Site(db, hub, tmp_path, sqlite_url)


@contextmanager
def seeded(outcome: str) -> Iterator[str]:
    """A name by which the gate of the kills' tests comes to this outcome."""
    import random

    for number in range(1000):
        rng = random.Random(name := f"{outcome}-{number}")
        rng.random()
        if rng.random() >= 0.2 and rng.choice(["allowed", "allowed", "refused", "error"]) == outcome:
            yield name
            return


def test_allowed_policy_is_released_once_its_endpoint_is_free(site: Site) -> None:
    job = site.begun("sleep 0.2")
    policy = site.finish(job)
    site.until(lambda: site.jobs[-1].gates == 1)
    with seeded("allowed") as name:
        gate(site.plan.store_url, policy, site.plan.suite, name)
    divided = [
        Arm(name="stable", policy="first/1", share=0.5),
        Arm(name="other", policy="x", share=0.5, role=Role.CANARY),
    ]
    set_endpoint(site.db, ENDPOINT, divided, at=2.0)
    site.one.tick()
    site.ahead_s = 3700.0  # the clock jumps by an hour, and nothing is late by that
    site.until(lambda: "release_stuck" in open_alarms(site.db, ENDPOINT))
    assert (site.jobs[-1].phase, site.jobs[-1].is_cancelled) == (JobPhase.COMPLETED, False)
    assert list_releases(site.db) == []
    set_endpoint(site.db, ENDPOINT, [Arm(name="stable", policy="first/1")], at=3.0)
    site.until(lambda: site.jobs[-1].phase is JobPhase.RELEASING)
    release = latest(site.db, ENDPOINT)
    assert (release.challenger, release.row.who, release.row.content["why"]) == (
        policy,
        "coordinator",
        f"training {job.id}",
    )
    assert [arm.policy for arm in show_endpoint(site.db, ENDPOINT).arms] == ["first/1", policy]
    site.one.tick()
    assert open_alarms(site.db, ENDPOINT) == {}


def test_refused_policy_is_told_of_with_a_report(site: Site) -> None:
    job = site.begun("true")
    policy = site.finish(job)
    with seeded("refused") as name:
        gate(site.plan.store_url, policy, site.plan.suite, name)
    site.until(lambda: not site.jobs[-1].is_open)
    site.one.tick()
    assert (site.jobs[-1].phase, site.names()) == (JobPhase.REFUSED, ["validation_failed"])
    ((_, report),) = EVENTS.read(site.db, kind=MADE)
    assert (report.data["outcome"], report.data["validation"]["outcome"]) == ("refused", "refused")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("echo 'loomrl: LearnerError: out of memory'; exit 2", Code.OOM),
        ("echo 'loomrl: LearnerError: the loss is nan'; exit 2", Code.CONVERGENCE),
        ("kill -9 $$", Code.INFRA),
    ],
)
def test_failure_is_read_off_what_a_training_leaves_and_tried_again(site: Site, line: str, code: Code) -> None:
    job = site.begun(line)
    site.until(lambda: any(each.previous == job.id for each in site.jobs))
    failed = next(each for each in site.jobs if each.id == job.id)
    assert failed.fault.code is code
    site.one.line = "sleep 60"
    site.until(lambda: site.jobs[-1].phase is JobPhase.RUNNING)
    again = site.jobs[-1]
    assert (again.previous, again.run == job.run) == (job.id, code is Code.INFRA)
    assert again.experiment["data"]["batch"] == (16 if code is Code.OOM else 32)


def test_broken_data_is_left_out_and_whole_data_is_told_of(site: Site) -> None:
    line = "echo 'loomrl: DataError: trajectory t-3 is not what was frozen'; exit 2"
    first = site.begun("sleep 0.3; " + line)
    assert first.samples == 6
    site.hub.delete(["t-3"])
    site.one.line = line
    site.until(lambda: len(site.jobs) == 2 and not any(job.is_open for job in site.jobs))
    failed, again = sorted(site.jobs, key=lambda job: job.attempt)
    assert (again.previous, again.selection, again.samples) == (failed.id, {"without": ["t-3"]}, 5)
    assert site.names() == ["job_failed"]
    assert [each.content["sizes"]["train"] for each in list_datasets(site.db)] == [5, 6]


def test_two_coordinators_start_one_training(site: Site) -> None:
    other = site.coordinator()
    started = Path(site.plan.training.train.folder) / "started"
    other.line = site.one.line = f"echo x >> {started}; sleep 60"
    for _ in range(12):
        site.one.tick()
        other.tick()
    (job,) = site.jobs
    assert job.phase is JobPhase.RUNNING
    site.until(started.exists)
    time.sleep(0.3)
    assert started.read_text() == "x\n"


def test_work_of_another_machine_is_left_alone_until_its_time_is_over(site: Site) -> None:
    site.begun("true")
    other = site.coordinator()
    other.observer.host = "elsewhere"
    for _ in range(5):
        other.tick()
    assert site.jobs[-1].phase is JobPhase.RUNNING


def test_daily_report_is_made_once_when_its_moment_has_passed(site: Site) -> None:
    plan = site.plan.override({"reports.schedule": "0 8 * * *", "triggers.count": None})
    at = 1_800_000_000.0  # 2027-01-15 08:00 UTC
    now = at - 3600
    made = [Shell(site.db, plan, hubs=[site.hub], clock=lambda: now, say=lambda _: None) for _ in range(2)]
    for now in (at - 3600, at - 1, at, at + 60):  # noqa: B007 - the clock reads it
        assert not any(each.tick() for each in made)
    reports = [report for _, report in EVENTS.read(site.db, kind=MADE)]
    assert [report.subject for report in reports] == [f"{ENDPOINT}/2027-01-{day}T08-00-00" for day in (14, 15)]
    assert reports[1].data["trajectories"]["collected"] == 6


def test_checkpoints_of_old_trainings_are_deleted_except_the_best_and_the_last(site: Site, tmp_path: Path) -> None:
    job = site.begun("sleep 60")
    run = RecordedRun(site.db, tmp_path, id=job.run)
    checkpoints = Checkpoints(open_artifacts(run.experiment.artifact_url), job.run)
    for number in range(4):
        (folder := tmp_path / f"made-{number}").mkdir()
        (folder / "course.json").write_text('{"kept": {"best": 1}}')
        checkpoints.put(number, folder)
        made = {"url": checkpoints.url(number), "run": job.run, "algorithm": "ppo", "experiment": "0" * 64}
        record_policy(site.db, PolicyVersion(id=f"{job.run}/{number}", number=number, **made))
    finish_run(site.db, job.run, status=RunStatus.FINISHED, finished_at=time.time())
    site.ahead_s = 89 * 86_400.0
    site.one.tick()
    assert checkpoints.numbers() == [0, 1, 2, 3]
    site.ahead_s = 91 * 86_400.0
    site.one.tick()
    assert checkpoints.numbers() == [1, 3]
