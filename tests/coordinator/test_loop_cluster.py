"""Trainings of a loop as jobs of a Ray cluster: submitted once, followed, stopped; and a cluster that goes away."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loomrl.cluster.job import Jobs
from loomrl.coordinator.alarm import open_alarms
from loomrl.coordinator.job import JobPhase, TrainingJob, Trigger, new_id
from loomrl.coordinator.ledger import ask_for, cancel
from loomrl.experiments.coordinate.loop import coordinating
from loomrl.own_ray import own_ray
from loomrl.store import open_store
from tests.cluster.cluster_support import AUTH, ROOT, RayCluster, environment, ray_of_its_own
from tests.coordinator.loop_support import loop, production
from tests.coordinator.test_loop_served import newest, until
from tests.feedback.served_support import ENDPOINT

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(1800)]


Cluster = tuple[RayCluster, subprocess.Popen[bytes]]


@pytest.fixture
def cluster(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """Two CPUs, whose jobs know the tests' environments; and the head."""
    for name, value in AUTH.items():
        monkeypatch.setenv(name, value)
    env = environment(Path(sys.executable), PYTHONPATH=str(ROOT), **AUTH)
    with ray_of_its_own(tmp_path, unused_tcp_port_factory, cpus=2, env=env) as found:
        yield found


def asked_by_hand(at: int) -> TrainingJob:
    return TrainingJob(id=new_id(), endpoint=ENDPOINT, trigger=Trigger.HAND, asked_at=at, at=at, since=at)


def test_training_is_a_job_of_the_cluster_and_its_absence_is_told(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_ray(num_cpus=2):  # it ends before the cluster is spoken to, whose token is another
        production(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    place = {"kind": "ray", "address": cluster[0].url}
    plan = loop(tmp_path, place=place, **{"triggers.count": None, "alarms.stuck_minutes": 0.0001})
    with open_store(plan.store_url) as db, coordinating(db, plan) as coordinator:
        asked = asked_by_hand(1)
        ask_for(db, plan, asked)
        until(coordinator, lambda: newest(db).phase not in (JobPhase.QUEUED, JobPhase.RUNNING))
        job = newest(db)
        assert (job.phase, job.fault, job.host) == (JobPhase.COMPLETED, None, "") or job.gates, job
        jobs = Jobs(cluster[0].url)
        (submitted,) = jobs.list()
        assert (submitted.id, submitted.run, submitted.status) == (f"{job.id}-train", job.run, "SUCCEEDED")
        cancel(db, job.id, who="ann", why="", at=time.time())
        until(coordinator, lambda: not newest(db).is_open)

    long = {"training.data.epochs": 1000, "training.train.updates": 100_000}
    endless = loop(tmp_path, place=place, **{"triggers.count": None} | long)
    with open_store(plan.store_url) as db, coordinating(db, endless) as coordinator:
        asked = asked_by_hand(2)
        ask_for(db, endless, asked)
        until(coordinator, lambda: bool(coordinator.observer.live(newest(db))) if newest(db).run else False)
        cancel(db, asked.id, who="ann", why="", at=time.time())
        until(coordinator, lambda: not newest(db).is_open)
        assert newest(db).phase is JobPhase.CANCELLED
        assert {each.status for each in jobs.list()} == {"SUCCEEDED", "STOPPED"}

        again = asked_by_hand(3)
        ask_for(db, endless, again)
        until(coordinator, lambda: newest(db).phase is JobPhase.RUNNING)
        os.killpg(cluster[1].pid, signal.SIGKILL)
        until(coordinator, lambda: "training_unreachable" in open_alarms(db, ENDPOINT))
        assert newest(db).phase is JobPhase.RUNNING
