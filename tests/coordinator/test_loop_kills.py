"""Coordinators that die at any instant: histories stay legal, nothing is trained twice, nothing released twice."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loomrl.config import HubConfig
from loomrl.coordinator.job import LEGAL, JobPhase, TrainingJob
from loomrl.coordinator.ledger import jobs_of
from loomrl.coordinator.report import MADE
from loomrl.hub.open import open_endpoint_hub
from loomrl.release.ledger import latest
from loomrl.store import LoomDB, open_store
from loomrl.store.endpoints import Arm, set_endpoint
from loomrl.store.events import EVENTS
from loomrl.store.policies import record_policy
from loomrl.store.releases import RELEASES, list_releases
from loomrl.store.runs import start_run
from loomrl.store.trainings import TRAININGS
from loomrl.types import PolicyVersion, Source
from tests.coordinator.loop_kills import ENDPOINT, run_of
from tests.hub.hub_samples import attempt
from tests.release.release_support import Callers, announce, kill_at_work

pytestmark = [pytest.mark.system, pytest.mark.slow]
ROOT = Path(__file__).parent.parent.parent


def prepare(db: LoomDB) -> None:
    """The endpoint serves a version of a run."""
    start_run(db, run_of("first"))
    made = {"number": 1, "url": "1", "run": "first", "algorithm": "kto", "experiment": "0" * 64}
    record_policy(db, PolicyVersion(id="first/1", **made))
    set_endpoint(db, ENDPOINT, [Arm(name="stable", policy="first/1")], at=1.0)


@contextmanager
def coordinators(url: str, folder: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    running = [started(url, folder) for _ in range(count)]
    try:
        yield running
    finally:
        for each in running:
            each.kill()
            each.communicate()


def started(url: str, folder: Path) -> subprocess.Popen[str]:
    paths = os.pathsep.join([*filter(None, sys.path), str(ROOT)])
    there = os.environ | {"PYTHONPATH": paths}
    command = [sys.executable, "-P", "-m", "tests.coordinator.loop_kills", "coordinate", url, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=there, cwd=ROOT)


def history(db: LoomDB) -> list[TrainingJob]:
    with db.read() as connection:
        rows = TRAININGS.fetch(connection, TRAININGS.select().order_by(TRAININGS.c.position))
    return [TrainingJob.of(row) for row in rows]


def legal(db: LoomDB, folder: Path) -> Counter[JobPhase]:
    """Whatever happened: histories are legal ones, on record once, and each piece of work was done once."""
    rows, now = history(db), dict[str, TrainingJob]()
    for row in rows:
        before = now.get(row.id)
        assert row.number == (1 if before is None else before.number + 1)
        assert before is None or row.phase in LEGAL[before.phase]
        now[row.id] = row
        assert sum(each.has_begun for each in now.values()) <= 1
    moved = [event.subject for _, event in EVENTS.read(db, kind="training.moved", limit=100_000)]
    assert Counter(moved) == {id: job.number for id, job in now.items()}
    asked = [event.subject for _, event in EVENTS.read(db, kind="training.requested", limit=100_000)]
    assert sorted(asked) == sorted(now)
    again = Counter(job.previous for job in now.values() if job.previous)
    assert max(again.values(), default=1) == 1
    released = [row.content["challenger"] for row in list_releases(db, limit=10_000)]
    assert len(released) == len(set(released))
    assert sorted(released) == sorted(job.policy for job in now.values() if job.release)
    reports = Counter(event.subject for _, event in EVENTS.read(db, kind=MADE, limit=10_000))
    assert set(reports.values()) <= {1}
    trained = Counter(job.run for job in now.values() if job.policy)
    assert set(trained.values()) <= {1}
    for job in now.values():
        folders = {path.name for path in (folder / "runs" / "jobs" / job.id).glob("*")}
        assert ("train" in folders) <= bool(job.begun_at)
    return Counter(job.phase for job in now.values())


def killed(url: str, folder: Path, *, kills: int, jobs: int, seed: int) -> Counter[JobPhase]:
    """Jobs of all kinds under coordinators that are killed."""
    rng, count = random.Random(seed), 0
    with (
        open_store(url) as db,
        open_endpoint_hub(url, ENDPOINT, HubConfig()) as hub,
        coordinators(url, folder, 2) as running,
    ):
        prepare(db)
        callers = Callers(db, {}, seed=seed)
        deadline = time.monotonic() + 60 * (kills + jobs)
        while kills > 0 or sum(not job.is_open for job in jobs_of(db, ENDPOINT)[1]) < jobs:
            assert time.monotonic() < deadline, jobs_of(db, ENDPOINT)[1][-1]
            new = [attempt(f"t-{count + n}", source=Source.PRODUCTION, finished_at=time.time()) for n in range(3)]
            hub.append(new)
            count += len(new)
            release = RELEASES.newest(db, endpoint=ENDPOINT)
            if release is not None and release.state == "open":
                announce(db, latest(db, ENDPOINT).challenger)
                callers.come(40)
            if kills > 0 and rng.random() < 0.3:
                at = rng.randrange(len(running))
                kill_at_work(running[at], after_s=rng.random() * 0.3)
                running[at] = started(url, folder)
                kills -= 1
            time.sleep(0.05)
        return legal(db, folder)


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_a_hundred_kills_of_coordinators_leave_legal_histories(recorded_store_url: str, tmp_path: Path) -> None:
    ends = killed(recorded_store_url, tmp_path, kills=100, jobs=40, seed=2)
    assert {JobPhase.DONE, JobPhase.REFUSED, JobPhase.FAILED} <= ends.keys()
