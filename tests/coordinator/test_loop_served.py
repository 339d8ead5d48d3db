"""The loop end to end: what people said of a tiny policy trains the next version, which is judged and released."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loomrl.coordinator.job import JobPhase, TrainingJob, Trigger, new_id
from loomrl.coordinator.ledger import ask_for, cancel, jobs_of
from loomrl.coordinator.report import find_report
from loomrl.experiments.coordinate.loop import Coordinator, coordinating
from loomrl.release.controller import Controller
from loomrl.store import LoomDB, open_store
from loomrl.store.datasets import find_dataset
from loomrl.store.endpoints import show_endpoint
from loomrl.store.policies import lineage
from loomrl.store.runs import RUNS
from tests.coordinator.loop_support import loop, production
from tests.feedback.served_support import ENDPOINT
from tests.release import release_support

pytestmark = [pytest.mark.system, pytest.mark.slow]


@pytest.fixture(autouse=True)
def endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers and replicas are those of this endpoint."""
    monkeypatch.setattr(release_support, "ENDPOINT", ENDPOINT)


def newest(db: LoomDB) -> TrainingJob:
    return jobs_of(db, ENDPOINT)[1][-1]


def until(coordinator: Coordinator, holds: Callable[[], bool], *, seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, jobs_of(coordinator.db, ENDPOINT)
        if not coordinator.tick():
            time.sleep(0.2)


def test_what_people_said_trains_the_next_version_which_is_released(tmp_path: Path) -> None:
    production(tmp_path)
    plan = loop(tmp_path)
    with open_store(plan.store_url) as db, coordinating(db, plan) as coordinator:
        until(coordinator, lambda: bool(jobs_of(db, ENDPOINT)[1]) and newest(db).phase is JobPhase.RELEASING)
        job = newest(db)
        assert show_endpoint(db, ENDPOINT).stable.policy == "r/0"
        controller, callers = Controller(db, ENDPOINT), release_support.Callers(db, {})

        def is_over() -> bool:
            release_support.announce(db, job.policy)
            callers.come(50)
            controller.tick()
            return not newest(db).is_open

        until(coordinator, is_over)
        assert newest(db).phase is JobPhase.DONE
        assert show_endpoint(db, ENDPOINT).stable.policy == job.policy
        dataset = find_dataset(db, job.dataset)
        assert dataset.parent == "r/0"
        assert lineage(db, job.policy)["made_from"]["data"]["dataset"] == job.dataset
        assert json.loads(json.dumps(job.experiment))["data"]["dataset"] == job.dataset
        coordinator.tick()
        name = f"{ENDPOINT}/job-{job.id}"
        report = find_report(db, name)
        assert (report["outcome"], report["samples"]) == ("done", dataset.content["sizes"]["train"])
        assert report["validation"]["outcome"] == "allowed"
        assert report["deployment"]["state"] == "done"
        written = Path(plan.artifact_url) / "reports" / name
        assert json.loads(written.with_suffix(".json").read_text()) == report
        assert "done" in written.with_suffix(".md").read_text()
        assert coordinator.tick() is False, "there is nothing new to train on"
        again = ask_for(
            db, plan, TrainingJob(id=new_id(), endpoint=ENDPOINT, trigger=Trigger.HAND, asked_at=1, at=1, since=1)
        )
        assert again is not None
        until(coordinator, lambda: not newest(db).is_open, seconds=60)
        assert newest(db).fault is not None
        assert "nothing is left to train on: of 48 trajectories" in newest(db).reason, "it was trained on all of them"


def test_training_outlives_its_coordinator_and_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    production(tmp_path)
    plan = loop(tmp_path, **{"training.data.epochs": 100, "training.train.updates": 100_000})
    with open_store(plan.store_url) as db:
        with coordinating(db, plan) as coordinator:
            until(coordinator, lambda: bool(jobs_of(db, ENDPOINT)[1]) and newest(db).tenths > 0)
        with coordinating(db, plan) as successor:
            before = newest(db)
            successor.tick()
            assert successor.observer.live(before)["progress"]["current_step"] > 0
            cancel(db, before.id, who="ann", why="enough", at=time.time())
            until(successor, lambda: not newest(db).is_open)
        job = newest(db)
        assert (job.phase, job.reason) == (JobPhase.CANCELLED, "cancelled by ann (enough)")
        assert RUNS.require(db, job.run).status != "finished"
